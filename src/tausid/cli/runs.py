"""The folder of a run: what lies in it, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tausid.errors import ConfigError
from tausid.evaluation import Score
from tausid.records import Record
from tausid.rollout import describe_engine, fused_missing, instruction_sets
from tausid.runs import (
    HISTORY,
    MODEL,
    RECORDS,
    RESULT,
    Experiment,
    Run,
    csv_cell,
    csv_table,
    write_experiments,
    write_history,
)
from tausid.simulation import Model, Simulation
from tausid.storage import write_text
from tausid.training import FitResult
from tausid.training.checkpoint import FILE_NAME as CHECKPOINT


def prepare_run(out: Path | None, name: str, seed: int, *, resume: bool, overwrite: bool) -> Path:
    """The folder of a run, with nothing in it that could be lost unasked.

    Args:
        out: the folder asked for; without it a new one under `runs`.
        name: name of the data.
        seed: the seed.
        resume: whether to go on with the run in it.
        overwrite: whether to start anew in it.

    Returns:
        The folder.

    Raises:
        ConfigError: it holds a run and neither was asked for, or both were; or --resume without --out.
    """
    if resume and overwrite:
        raise ConfigError("`--resume` and `--overwrite` must not come together; got both. Choose one.")
    if out is None:
        if resume:
            raise ConfigError("`--resume` must know which run to go on with; no --out was given. Add --out FOLDER.")
        return _next_free(Path("runs") / f"{name}-seed{seed}")
    held = [out / file for file in (CHECKPOINT, MODEL, RESULT, HISTORY, RECORDS) if (out / file).exists()]
    if held and not (resume or overwrite):
        raise ConfigError(
            f"`--out` must be a folder without a run; {out} holds one. Go on with it by --resume, replace it by "
            "--overwrite, or choose another folder."
        )
    return out


def write_run(folder: Path, result: FitResult, run: Run) -> tuple[dict[str, Path], dict[str, Any]]:
    """Write model, history, records and summary of a finished fit.

    Args:
        folder: the run's folder.
        result: the fit.
        run: the same with its records and free runs.

    Returns:
        The paths by what they are, and the summary as plain JSON values.
    """
    paths = {"model": result.model.save(folder / MODEL)}
    tests = scores_by_name(run.of_role("test"))
    summary = {
        **score_dict(scores_by_name(run.of_role("train"))),
        **run.summary,
        **describe_model(result.model, paths["model"]),
        "protocol": result.config.protocol,
        "recipe": result.config.recipe,
        **({"test": score_dict(tests)} if tests else {}),
        "data": run.name,
        "command": run.command,
        "sources": dict(run.sources),
    }
    write_experiments(folder, run.experiments)
    paths["history"] = write_history(folder, result.history)
    paths["summary"] = write_text(folder / RESULT, json.dumps(summary, indent=2) + "\n")
    return paths, summary


def scores_by_name(experiments: Iterable[Experiment]) -> dict[str, Score]:
    """Scores by the name of their record.

    Args:
        experiments: the free runs.

    Returns:
        The scores.
    """
    return {experiment.record.name: experiment.score for experiment in experiments}


def score_dict(scores: Mapping[str, Score]) -> dict[str, Any]:
    """Scores as plain JSON values: those of the first record, and of all by name where there are several.

    Args:
        scores: scores by record.

    Returns:
        The values.
    """
    first = next(iter(scores.values())).as_dict()
    several = {"records": {name: score.as_dict() for name, score in scores.items()}} if len(scores) > 1 else {}
    return {**first, **several}


def describe_model(model: Model, path: Path) -> dict[str, Any]:
    """What is said of a model in every JSON object.

    Args:
        model: the model.
        path: its file.

    Returns:
        Plain JSON values.
    """
    return {
        "tau": model.tau,
        "ts_over_tau": model.ts_over_tau,
        "seed": model.config.seed,
        "model": str(path),
    }


def describe_engines(model: Model | None) -> dict[str, str]:
    """Which engines there are here, and which one `auto` takes, in words.

    Args:
        model: the model to be computed; by default one as the paper's.

    Returns:
        Sentences by what they are about.
    """
    missing = fused_missing()
    taken = "scan" if missing else "fused, for residual networks of one to four hidden layers and a fixed step"
    if model is not None:
        taken = describe_engine(model.state_space.field, model.integrator)
    return {
        "auto": taken,
        "fused": f"not available: {missing}" if missing else f"available ({', '.join(instruction_sets())})",
        "scan": "available, for every model on every device",
    }


def write_simulation(path: Path, record: Record, simulation: Simulation) -> Path:
    """Write a simulation as CSV: time, inputs and measured outputs (on the record's own samples), simulated outputs.

    Args:
        path: where to write.
        record: the record.
        simulation: its simulation.

    Returns:
        The path.
    """
    simulated = [f"{name}_simulated" for name in record.output_names]
    columns: list[np.ndarray] = [simulation.t[:, None]]
    header = ["t"]
    if len(simulation.t) == len(record) and np.array_equal(simulation.t, record.t):
        columns += [record.u, record.y]
        header += [*record.input_names, *record.output_names]
    table = np.concatenate([*columns, simulation.y], axis=1)
    rows = ([csv_cell(value) for value in row] for row in table.tolist())
    return write_text(path, csv_table([*header, *simulated], rows))


def _next_free(folder: Path) -> Path:
    free, number = folder, 1
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free
