"""`tausid demo`: the whole path once, on the cascaded tanks."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import tausid
from tausid.cli.printing import describe_tau, print_pairs, print_scores
from tausid.cli.report import write_report_if_possible
from tausid.cli.runs import write_simulation
from tausid.data.records import Dataset
from tausid.errors import MissingExtraError
from tausid.results.runs import Experiment, Run, RunFolder
from tausid.storage import check_writable
from tausid.training.run_state import Status

# Most seconds for the download of the record; the demo goes on without it.
DOWNLOAD_SECONDS = 30.0


def run_demo(out: Path, iterations: int | None = None) -> None:
    """Identify the tanks, print tau and scores, write model, simulation, picture and report."""
    check_writable(out)
    data = load_tanks()
    _say("Fitting a model to the training record; this takes some ten seconds ...")
    changes: dict[str, Any] = {} if iterations is None else {"settings": {"trainer.iterations": iterations}}
    result = tausid.fit(data.train, seed=0, **changes)
    if result.status == Status.INTERRUPTED:
        raise KeyboardInterrupt
    print_pairs({"tau": describe_tau(result.model), "status": f"{result.status}: {result.message}"})
    _say("Scoring the model: it simulates both records from their inputs ...")
    run = replace(
        Run.from_result(result, train=data.train, tests=data.tests),
        name=data.name.replace("_", " "),
        command=f"tausid demo --out {out}" + ("" if iterations is None else f" --iterations {iterations}"),
    )
    print_scores(run.scores, result.model)
    _say(f"Writing the model, the simulation, a picture and a report to {out} ...")
    print_pairs(_write(out, run))
    print("\nNext, a model of your own data:")
    print(f"  {_program()} fit YOUR.csv --input INPUT_COLUMN --output OUTPUT_COLUMN --ts SECONDS")


def load_tanks() -> Dataset:
    """The benchmark record where it is available, simulated tanks otherwise; says which."""
    _say("Loading the cascaded tanks record ...")
    try:
        data = tausid.datasets.load("cascaded_tanks", timeout=DOWNLOAD_SECONDS)
    except tausid.DataError as error:
        reason, *_ = str(error).splitlines()
        print("The real record is not available, so this demo uses the built-in SIMULATOR of the tanks.")
        print(f"Reason: {reason}")
        return tausid.datasets.simulate_tanks(seed=0)
    print("This is the REAL record: 1024 measured samples to train on, 1024 to test.")
    return data


def _write(out: Path, run: Run) -> dict[str, Path]:
    files = RunFolder(out)
    files.write(run)
    test, *_ = run.of_role("test")
    return {
        "model": files.model_file,
        "simulation": write_simulation(out / "simulation.csv", test.record, test.simulation),
        **_write_picture(out, test),
        **write_report_if_possible(out),
    }


def _write_picture(out: Path, test: Experiment) -> dict[str, Path]:
    """The picture of a simulation; a note without matplotlib, as the model itself is whole."""
    try:
        figure = tausid.plots.plot_simulation(test.record, test.simulation)
        return {"picture": tausid.plots.save_figure(figure, out / "simulation.png")}
    except MissingExtraError as missing:
        print(f"note: no picture was written: {missing}", file=sys.stderr)
        return {}


def _say(stage: str) -> None:
    """What comes next, at once, also where standard output is a file."""
    print(stage, flush=True)


def _program() -> str:
    """How this program is called: by its path where the shell does not find its name."""
    called = Path(sys.argv[0])
    return str(called) if called.stem == "tausid" and shutil.which("tausid") is None else "tausid"
