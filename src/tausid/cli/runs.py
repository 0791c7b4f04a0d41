"""Folders and files that commands write."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tausid.data.records import Record
from tausid.errors import ConfigError
from tausid.model.course import Simulation
from tausid.model.ensembles import AnyModel, load_model
from tausid.results.runs import RunFolder
from tausid.storage import write_table


def prepare_run(out: Path | None, name: str, seed: int, *, resume: bool, overwrite: bool) -> RunFolder:
    """The folder of a run, with nothing in it that could be lost unasked."""
    if resume and overwrite:
        raise ConfigError("`--resume` and `--overwrite` cannot be combined; got both. Choose one.")
    if out is None:
        if resume:
            raise ConfigError("`--resume` needs the folder of the run; no --out was given. Add --out FOLDER.")
        return RunFolder(_next_free(Path("runs") / f"{name}-seed{seed}"))
    if RunFolder(out).is_used and not (resume or overwrite):
        raise ConfigError(
            f"`--out` must be a folder without a run; {out} holds one. Resume it with --resume, replace it with "
            "--overwrite, or choose another folder."
        )
    return RunFolder(out)


def load(path: Path) -> AnyModel:
    """The model of a file, or of a run's folder."""
    return RunFolder(path).load_model() if path.is_dir() else load_model(path)


def describe_engines(model: AnyModel | None) -> dict[str, str]:
    """Which engines there are here, and which one `auto` takes, in words."""
    from tausid.engine.choice import Engine
    from tausid.engine.engines import describe_engine
    from tausid.engine.fused import fused_missing
    from tausid.engine.library import instruction_sets
    from tausid.engine.library import missing as library_missing
    from tausid.model.free_run import why_not_compiled

    missing, reason = fused_missing(), library_missing()
    taken = "scan" if missing else "fused, for residual networks of one to four hidden layers and a fixed step"
    if model is not None:
        taken = describe_engine(model.state_space.field, model.integrator)
        reason = why_not_compiled(model.state_space, Engine(model.integration.engine))
    return {
        "simulation": "C++, in double precision" if reason is None else f"JAX, because {reason}",
        "auto": taken,
        "fused": f"not available: {missing}" if missing else f"available ({', '.join(instruction_sets())})",
        "scan": "available, for every model on every device",
    }


def write_simulation(path: Path, record: Record, simulation: Simulation) -> Path:
    """Write a simulation as CSV: time, inputs and measured outputs (on the record's own samples), simulated outputs,
    and of an ensemble the band.
    """
    simulated = [f"{name}_simulated" for name in record.output_names]
    columns: list[np.ndarray] = [simulation.t[:, None]]
    header = ["t"]
    if len(simulation.t) == len(record) and np.array_equal(simulation.t, record.t):
        columns += [record.u, record.y]
        header += [*record.input_names, *record.output_names]
    columns.append(simulation.y)
    if simulation.low is not None and simulation.high is not None:
        columns += [simulation.low, simulation.high]
        simulated += [f"{name}_{end}" for end in ("low", "high") for name in record.output_names]
    return write_table(path, [*header, *simulated], np.concatenate(columns, axis=1).tolist())


def _next_free(folder: Path) -> Path:
    free, number = folder, 1
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free
