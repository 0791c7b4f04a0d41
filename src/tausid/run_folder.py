"""The folder of a run: what lies in it, and what is said of it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tausid.evaluation import Scores
from tausid.simulation import Model
from tausid.storage import write_text
from tausid.training import FitResult, HistoryRow

MODEL, RESULT, HISTORY = "model.safetensors", "result.json", "history.csv"


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


def _history_csv(history: Sequence[HistoryRow]) -> str:
    names = [field.name for field in dataclasses.fields(HistoryRow)]
    rows = (
        [" ".join(map(str, v)) if isinstance(v, tuple) else number_cell(v) for v in dataclasses.astuple(row)]
        for row in history
    )
    return csv_text(names, rows)


def number_cell(value: float) -> str:
    """A number as a CSV cell with all its digits; empty for NaN.

    Args:
        value: the number.

    Returns:
        The cell.
    """
    return "" if value != value else repr(value)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as CSV text.

    Args:
        header: names of the columns.
        rows: cells, row by row.

    Returns:
        The text.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
