"""The folder of a run: what lies in it, and what is said of it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tausid.errors import ConfigError
from tausid.evaluation import Scores
from tausid.records import Record
from tausid.rollout import describe_engine, fused_missing, instruction_sets
from tausid.simulation import Model, Simulation
from tausid.storage import write_text
from tausid.training import FitResult, HistoryRow
from tausid.training.checkpoint import FILE_NAME as CHECKPOINT

MODEL, RESULT, HISTORY = "model.safetensors", "result.json", "history.csv"


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
    held = [out / file for file in (CHECKPOINT, MODEL, RESULT, HISTORY) if (out / file).exists()]
    if held and not (resume or overwrite):
        raise ConfigError(
            f"`--out` must be a folder without a run; {out} holds one. Go on with it by --resume, replace it by "
            "--overwrite, or choose another folder."
        )
    return out


def write_run(
    folder: Path, result: FitResult, train: Scores, tests: Scores | None
) -> tuple[dict[str, Path], dict[str, Any]]:
    """Write model, history and summary of a finished fit.

    Args:
        folder: the run's folder.
        result: the fit.
        train: scores of the training records.
        tests: scores of the test records, if there are any.

    Returns:
        The paths by what they are, and the summary as plain JSON values.
    """
    paths = {"model": result.model.save(folder / MODEL)}
    summary = {
        **score_dict(train),
        "status": result.status,
        "message": result.message,
        "steps": result.steps,
        "best_step": result.best_step,
        "seconds": result.seconds,
        **describe_model(result.model, paths["model"]),
        "protocol": result.config.protocol,
        "recipe": result.config.recipe,
        **({} if tests is None else {"test": score_dict(tests)}),
    }
    paths["history"] = write_text(folder / HISTORY, _history_csv(result.history))
    paths["summary"] = write_text(folder / RESULT, json.dumps(summary, indent=2) + "\n")
    return paths, summary


def score_dict(scores: Scores) -> dict[str, Any]:
    """Scores as plain JSON values: those of the first record; with several, of each by name and of all together.

    Args:
        scores: scores of records.

    Returns:
        The values.
    """
    first = scores.records[0].as_dict()
    if len(scores.records) == 1:
        return first
    by_name = {score.record: score.as_dict() for score in scores.records}
    return {**first, "records": by_name, "pooled": scores.pooled.as_dict()}


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
    rows = ([_cell(value) for value in row] for row in table.tolist())
    return write_text(path, _csv([*header, *simulated], rows))


def _next_free(folder: Path) -> Path:
    free, number = folder, 1
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def _history_csv(history: Sequence[HistoryRow]) -> str:
    names = [field.name for field in dataclasses.fields(HistoryRow)]
    rows = (
        [" ".join(map(str, v)) if isinstance(v, tuple) else _cell(v) for v in dataclasses.astuple(row)]
        for row in history
    )
    return _csv(names, rows)


def _cell(value: float) -> str:
    return "" if value != value else repr(value)


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
