"""Finished runs as a table: one row per run in `results.csv`, and what they say together."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tausid.errors import ConfigError, unknown_name
from tausid.runs import csv_table
from tausid.storage import write_text

RESULTS = "results.csv"
OUTCOME = (
    "ts_over_tau", "seed", "status", "steps", "best_step", "seconds", "train_rmse", "validation_rmse", "test_rmse",
    "tau_seconds", "version", "model", "message",
)  # fmt: skip


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
    def axes(self) -> tuple[str, ...]:
        """What tells the runs apart beside the seed: the variant and the axes."""
        known = {*OUTCOME, "run"}
        columns = dict.fromkeys(key for row in self.rows for key in row if key not in known and not _is_score(key))
        varied = [key for key in columns if len({str(row.get(key)) for row in self.rows}) > 1 or key == "variant"]
        if not any(key in ("tau", "variant") for key in varied) and _varies(self.rows, "ts_over_tau"):
            varied.append("ts_over_tau")
        return tuple(varied)

    def groups(self, by: Sequence[str] | None = None) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
        """Rows that share their values on some columns.

        Args:
            by: the columns; by default all axes but the seed.

        Returns:
            Rows by these values, sorted by them where they are numbers.

        Raises:
            ConfigError: an unknown column.
        """
        columns = {key for row in self.rows for key in row}
        keys = self.axes if by is None else tuple(by)
        for key in keys:
            if key not in columns:
                raise ConfigError(unknown_name("column", key, columns))
        found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in self.rows:
            found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
        numeric = all(isinstance(value, int | float) for values in found for value in values)
        return dict(sorted(found.items())) if numeric else found

    def summary(self, by: Sequence[str] | None = None, *, score: str = "test_rmse") -> list[dict[str, Any]]:
        """Number of runs, and best, median, mean, standard deviation and worst of a score, per group.

        A run without a score (it failed, or its simulation diverged) counts among the runs, not in the score; `scored`
        says how many count.

        Args:
            by: columns to group by; by default all axes but the seed.
            score: the column to summarize.

        Returns:
            One mapping per group.

        Raises:
            ConfigError: an unknown column.
        """
        if self.rows and not any(score in row for row in self.rows):
            raise ConfigError(unknown_name("score", score, {key for row in self.rows for key in row if _is_score(key)}))
        keys = self.axes if by is None else tuple(by)
        return [
            {**dict(zip(keys, values, strict=True)), "runs": len(rows), **_describe(scores_of(rows, score))}
            for values, rows in self.groups(by).items()
        ]


def scores_of(rows: Iterable[Mapping[str, Any]], score: str = "test_rmse") -> list[float]:
    """The scores of those rows that have one.

    Args:
        rows: rows of results.
        score: the column.

    Returns:
        Numbers.
    """
    values = [row.get(score) for row in rows]
    return [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]


def read_results(folder: Path) -> StudyResults:
    """Read `results.csv` of a study.

    Args:
        folder: the study's folder, or the file itself.

    Returns:
        The finished runs.

    Raises:
        ConfigError: there is no such file, or it is none of a study.
    """
    path = folder if folder.suffix == ".csv" else folder / RESULTS
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = tuple({key: _value(text) for key, text in row.items()} for row in csv.DictReader(file, strict=True))
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(
            f"a study's folder must hold {RESULTS}; {path} cannot be read ({error}). Run it with `tausid study run`."
        ) from None
    if any("status" not in row for row in rows):
        raise ConfigError(f"{path} must be the results of a study; it has no column `status`. Check the path.")
    return StudyResults(path.resolve().parent.name, rows)


def write_results(folder: Path, results: StudyResults) -> Path:
    """Write `results.csv`, atomically.

    Args:
        folder: the study's folder.
        results: the finished runs.

    Returns:
        The path.

    Raises:
        StorageError: it cannot be written.
    """
    columns = list(dict.fromkeys(key for row in results.rows for key in row))
    axes = [key for key in columns if key not in OUTCOME and key != "run" and not _is_score(key)]
    scores = [key for key in columns if _is_score(key) and key not in OUTCOME]
    header = [*axes, *OUTCOME[:9], *scores, *OUTCOME[9:]]
    return write_text(
        folder / RESULTS, csv_table(header, [[_text(row.get(key)) for key in header] for row in results.rows])
    )


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


def _varies(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return len({row.get(key) for row in rows}) > 1


def _is_score(key: str) -> bool:
    return "_rmse" in key


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
