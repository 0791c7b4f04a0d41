"""Finished runs as a table: one row per run in `results.csv`, and what they say together."""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tausid.errors import ConfigError, unknown_name
from tausid.storage import write_table

RESULTS = "results.csv"


class StudyStatus(StrEnum):
    """What the status of a run may be beside that of its training."""

    FAILED = "failed"
    BUSY = "busy"


OUTCOME = (
    "seed", "status", "steps", "best_step", "seconds", "cpu_seconds", "train_rmse", "validation_rmse", "test_rmse",
    "validation_nrmse", "tau_seconds", "final_ts_over_tau", "structure", "consensus", "version", "run", "model",
    "message",
)  # fmt: skip
SCORES_END = OUTCOME.index("test_rmse") + 1  # where further scores have their place
# What runs are compared by, the best first.
SCORES = ("test_rmse", "validation_rmse", "train_rmse")


@dataclass(frozen=True)
class StudyResults:
    """Finished runs of a study.

    Args:
        name: name of the study.
        rows: one mapping per run, as in `results.csv`.
    """

    name: str
    rows: tuple[Mapping[str, Any], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(dict.fromkeys(key for row in self.rows for key in row))

    @property
    def axes(self) -> tuple[str, ...]:
        """What tells the runs apart beside the seed: the variant and those axes that have several values."""
        asked = [key for key in self.columns if key not in OUTCOME and not _is_score(key)]
        return tuple(key for key in asked if key == "variant" or len({str(row.get(key)) for row in self.rows}) > 1)

    @property
    def score(self) -> str:
        """The column to compare by: the test error or, where no run has one, what comes nearest to it."""
        candidates = [key for score in SCORES for key in self.columns if key.split(":")[0] == score]
        return next((key for key in candidates if scores_of(self.rows, key)), SCORES[0])

    def check_score(self, score: str) -> None:
        """Check that a column can be compared by.

        Args:
            score: its name.

        Raises:
            ConfigError: no such column.
        """
        if score not in self.columns and score not in SCORES:
            raise ConfigError(unknown_name("score", score, {*SCORES, *filter(_is_score, self.columns)}))

    def groups(self, by: Sequence[str] | None = None) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
        """Rows that share their values on some columns.

        Args:
            by: the columns; by default all axes but the seed.

        Returns:
            Rows by these values (tuples for lists), sorted by them where they are numbers.

        Raises:
            ConfigError: an unknown column.
        """
        keys = self.axes if by is None else tuple(by)
        for key in keys:
            if key not in self.columns:
                raise ConfigError(unknown_name("column", key, self.columns))
        found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in self.rows:
            found.setdefault(tuple(_hashable(row.get(key)) for key in keys), []).append(row)
        numeric = all(isinstance(value, int | float) for values in found for value in values)
        return dict(sorted(found.items())) if numeric else found

    def summary(self, by: Sequence[str] | None = None, *, score: str | None = None) -> list[dict[str, Any]]:
        """Number of runs, and best, median, mean, standard deviation and worst of a score, per group.

        A run without a score (it failed, or its simulation diverged) counts among the runs, not in the score; `scored`
        says how many count.

        Args:
            by: columns to group by; by default all axes but the seed.
            score: the column to summarize; by default the test error or, where there is none, the validation error.

        Returns:
            One mapping per group.

        Raises:
            ConfigError: an unknown column.
        """
        column = self.score if score is None else score
        self.check_score(column)
        keys = self.axes if by is None else tuple(by)
        return [
            {**dict(zip(keys, values, strict=True)), "runs": len(rows), **_describe(scores_of(rows, column))}
            for values, rows in self.groups(by).items()
        ]


def scores_of(rows: Iterable[Mapping[str, Any]], score: str = "test_rmse") -> list[float]:
    """The scores of those rows that have one."""
    values = [row.get(score) for row in rows]
    return [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]


def read_results(folder: str | os.PathLike[str]) -> StudyResults:
    """Read `results.csv` of a study.

    Args:
        folder: the study's folder, or the file itself.

    Raises:
        ConfigError: there is no such file, or it is none of a study.
    """
    folder = Path(folder)
    path = folder if folder.suffix == ".csv" else folder / RESULTS
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            cells = list(reader)
            columns = reader.fieldnames or ()
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(
            f"a study's folder must hold {RESULTS}; {path} cannot be read ({error}). Run it with `tausid study run`."
        ) from None
    if any(None in row for row in cells):
        raise ConfigError(
            f"{path} must have a cell per column in each row; one has more. Let `tausid study run --resume` write it "
            "anew."
        )
    if "status" not in columns:
        raise ConfigError(f"{path} must be the results of a study; it has no column `status`. Check the path.")
    rows = tuple({key: _value(text) for key, text in row.items()} for row in cells)
    return StudyResults(path.resolve().parent.name, rows)


def write_results(folder: Path, results: StudyResults) -> Path:
    """Write `results.csv`, atomically."""
    axes = [key for key in results.columns if key not in OUTCOME and not _is_score(key)]
    scores = [key for key in results.columns if _is_score(key) and key not in OUTCOME]
    header = [*axes, *OUTCOME[:SCORES_END], *scores, *OUTCOME[SCORES_END:]]
    return write_table(folder / RESULTS, header, [[_text(row.get(key)) for key in header] for row in results.rows])


def _describe(scores: Sequence[float]) -> dict[str, Any]:
    if not scores:
        return {"scored": 0, **dict.fromkeys(("best", "median", "mean", "std", "worst"))}
    return {
        "scored": len(scores),
        "best": min(scores),
        "median": statistics.median(scores),
        "mean": statistics.fmean(scores),
        "std": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "worst": max(scores),
    }


def _is_score(key: str) -> bool:
    return "_rmse" in key or "_fit_percent" in key


def _hashable(value: Any) -> Any:
    return tuple(_hashable(part) for part in value) if isinstance(value, list | tuple) else value


def _text(value: Any) -> str:
    """JSON, but text as it is, unless it would be read as something else: a variant named 1 or true."""
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) and _value(value) == value else json.dumps(value)


def _value(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
