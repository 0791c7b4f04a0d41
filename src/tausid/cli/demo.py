"""`tausid demo`: the whole path once, on the cascaded tanks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tausid
from tausid.cli.printing import describe_tau, print_pairs, print_scores
from tausid.cli.report import write_report_if_possible
from tausid.cli.runs import write_simulation
from tausid.data.records import Dataset
from tausid.results.runs import Run, write_run
from tausid.storage import check_writable

# The official download may wait forever without internet; the demo must not.
DOWNLOAD_SECONDS = 30.0


def run_demo(out: Path, iterations: int | None = None) -> None:
    """Identify the tanks, print tau and scores, write model, simulation, picture and report.

    Args:
        out: folder to write to.
        iterations: most iterations of the fit; None is the recipe's.
    """
    check_writable(out)
    data = load_tanks()
    changes: dict[str, Any] = {} if iterations is None else {"settings": {"trainer.iterations": iterations}}
    result = tausid.fit(data.train, seed=0, **changes)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    run = replace(
        Run.from_result(result, train=data.train, tests=data.tests),
        name=data.name.replace("_", " "),
        command=f"tausid demo --out {out}" + ("" if iterations is None else f" --iterations {iterations}"),
    )
    model, (test, *_) = result.model, run.of_role("test")
    print_pairs({"tau": describe_tau(model), "status": f"{result.status}: {result.message}"})
    print_scores(run.scores, model)
    paths, _ = write_run(out, run)
    figure = tausid.plots.plot_simulation(test.record, test.simulation)
    print_pairs(
        {
            "model": paths["model"],
            "simulation": write_simulation(out / "simulation.csv", test.record, test.simulation),
            "picture": tausid.plots.save_figure(figure, out / "simulation.png"),
            **write_report_if_possible(out),
        }
    )


def load_tanks() -> Dataset:
    """The benchmark record where it can be had, simulated tanks otherwise; says which.

    Returns:
        One record to train on and one to test with.
    """
    try:
        data = tausid.datasets.load("cascaded_tanks", timeout=DOWNLOAD_SECONDS)
    except tausid.DataError as reason:
        print("The real cascaded tanks record cannot be had here, so this demo uses the built-in SIMULATOR.")
        print(f"Why: {reason}\n")
        return tausid.datasets.simulate_tanks(seed=0)
    print("This demo uses the REAL cascaded tanks record: 1024 measured samples to train on, 1024 to test.\n")
    return data
