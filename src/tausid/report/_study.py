"""The page on a study: many runs, their distributions, the best and the failed ones."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tausid import plots
from tausid.errors import StorageError
from tausid.report._html import number, picture, render

TABLE = "results.csv"
# Columns that say what came out of a run; any other column that varies says what was asked of it.
OUTCOMES = frozenset(
    ("run", "id", "number", "trial", "seed", "status", "steps", "best_step", "seconds", "train_rmse", "validation_rmse",
     "test_rmse", "version", "message", "model", "folder", "path", "started", "finished", "tau", "tau_seconds",
     "ts_over_tau")
)  # fmt: skip
SCORES = {"test_rmse": "test RMSE", "validation_rmse": "validation RMSE", "train_rmse": "training RMSE"}
WHOLE = ("completed", "early-stopped")
BEST = 10
# A box plot is cut off where runs lie so many times above the median of all.
FAR = 4.0


@dataclass(frozen=True)
class StudyTable:
    """The runs of a study, as its `results.csv` has them.

    Args:
        name: what to call the study.
        columns: names of the columns.
        rows: one row per run, text by column.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]

    @property
    def score(self) -> str:
        """The column to compare by: the test error, or what comes nearest to it."""
        return next((name for name in SCORES if np.isfinite(self.scores(name)).any()), "test_rmse")

    @property
    def axes(self) -> tuple[str, ...]:
        """Columns that say what was asked of a run, where runs differ in it."""
        asked = [name for name in self.columns if name not in OUTCOMES]
        return tuple(name for name in asked if len({row[name] for row in self.rows}) > 1)

    def scores(self, column: str) -> list[float]:
        """The numbers of a column; infinite where a run has none.

        Args:
            column: its name.

        Returns:
            One number per run.
        """
        return [_score(row, column) for row in self.rows]

    def groups(self) -> dict[float | str, list[Mapping[str, str]]]:
        """Runs by what was asked of them: by Ts/tau where that tells groups apart, by their settings otherwise.

        Returns:
            The runs of each group, by rising value or in the table's order.
        """
        groups: dict[float | str, list[Mapping[str, str]]] = {}
        for row in self.rows:
            groups.setdefault(self._label(row), []).append(row)
        values = {label: {_ratio(row) for row in rows} for label, rows in groups.items()}
        single = [next(iter(found)) for found in values.values() if len(found) == 1]
        if len(single) == len(groups) and len(set(single)) == len(groups) and np.isfinite(single).all():
            numbered = dict(zip(single, groups.values(), strict=True))
            return {value: numbered[value] for value in sorted(numbered)}
        return groups

    def _label(self, row: Mapping[str, str]) -> str:
        if self.axes:
            return ", ".join(row[name] if len(self.axes) == 1 else f"{name} = {row[name]}" for name in self.axes)
        ratios = [_ratio(other) for other in self.rows]
        repeated = len(set(ratios)) < len(ratios)
        return number(_ratio(row)) if repeated and np.isfinite(ratios).all() else "all runs"


def read_study(folder: str | os.PathLike[str]) -> StudyTable:
    """Read the table of a study.

    Args:
        folder: the study's folder, which holds `results.csv`.

    Returns:
        The table.

    Raises:
        StorageError: the file cannot be read, has no runs, or lacks the columns `status` and a score.
    """
    path = Path(folder) / TABLE
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows = tuple({name: text or "" for name, text in row.items() if name} for row in reader)
            columns = tuple(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StorageError(f"{path} must be the table of a study; it cannot be read ({error}).") from None
    if not rows or "status" not in columns or not set(SCORES) & set(columns):
        raise StorageError(
            f"{path} must have runs, a column `status`, and one of {', '.join(SCORES)}; it has {len(rows)} runs and "
            f"the columns {', '.join(columns) or 'none'}. Write it with `tausid study`."
        )
    return StudyTable(Path(folder).resolve().name, columns, rows)


def study_page(study: StudyTable) -> str:
    """The page on a study.

    Args:
        study: its table.

    Returns:
        The page.

    Raises:
        MissingExtraError: jinja2 or matplotlib is not installed.
    """
    groups = study.groups()
    numeric = all(isinstance(key, float) for key in groups)
    what = "Ts/tau" if numeric else ", ".join(study.axes) or "group"
    return render(
        "study.html",
        title=study.name,
        sentence=_sentence(study, groups, what),
        what=what,
        score=SCORES[study.score],
        table=[_summary(key, rows, study.score) for key, rows in groups.items()],
        boxes=_boxes(study, groups, what),
        best=_best(study),
        failures=_failures(study),
        whole=sum(_is_whole(row, study.score) for row in study.rows),
        count=len(study.rows),
        versions=sorted({row.get("version", "") for row in study.rows} - {""}),
        columns=study.columns,
    )


def _sentence(study: StudyTable, groups: Mapping[float | str, Sequence[Mapping[str, str]]], what: str) -> str:
    medians = {key: float(np.median([_score(row, study.score) for row in rows])) for key, rows in groups.items()}
    best = min(medians, key=lambda key: medians[key])
    lowest = min(study.scores(study.score))
    if not np.isfinite(medians[best]):
        return "No group of runs has a finite score in half of its runs."
    label = best if isinstance(best, str) else f"{what} = {number(best)}"
    kind = SCORES[study.score]
    if len(groups) == 1:
        return f"The median {kind} is {number(medians[best])}, the best run has {number(lowest)}."
    worst = max(medians.values())
    than = f"{worst / medians[best]:.1f} times as large" if np.isfinite(worst) else "without end"
    return (
        f"{label} is best: its median {kind} is {number(medians[best])}, that of the worst group {than}. "
        f"The best of all runs has {number(lowest)}."
    )


def _summary(key: float | str, rows: Sequence[Mapping[str, str]], column: str) -> dict[str, Any]:
    scores = np.array([_score(row, column) for row in rows])
    finite = scores[np.isfinite(scores)]
    several = len(finite) > 1
    return {
        "group": key if isinstance(key, str) else number(key),
        "runs": len(rows),
        "failed": int(sum(not _is_whole(row, column) for row in rows)),
        "best": number(float(finite.min())) if len(finite) else number(None),
        "median": number(float(np.median(scores))),
        "mean": number(float(finite.mean())) if len(finite) else number(None),
        "deviation": number(float(finite.std(ddof=1)), 3) if several else number(None),
        "worst": number(float(scores.max())),
    }


def _boxes(
    study: StudyTable, groups: Mapping[float | str, Sequence[Mapping[str, str]]], what: str
) -> dict[str, str] | None:
    sets = {key: [_score(row, study.score) for row in rows] for key, rows in groups.items()}
    scores = np.concatenate([np.asarray(values) for values in sets.values()])
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return None
    top = FAR * float(np.median(finite))
    label = f"{what} (no unit)" if what == "Ts/tau" else what
    y_max = top if finite.max() > top > 0 else None
    drawn = plots.plot_study_boxes(sets, x_label=label, y_label=SCORES[study.score], y_max=y_max)
    return picture(drawn, f"Box plot of the {SCORES[study.score]} by {what}")


def _best(study: StudyTable) -> dict[str, Any]:
    order = np.argsort(study.scores(study.score), kind="stable")[:BEST]
    wanted = [*study.axes, "ts_over_tau", "seed", study.score, "validation_rmse", "train_rmse", "steps", "seconds"]
    columns = [name for name in dict.fromkeys(wanted) if name in study.columns]
    rows = [study.rows[i] for i in order if np.isfinite(_score(study.rows[i], study.score))]
    return {"columns": columns, "rows": [[_short(row[name]) for name in columns] for row in rows]}


def _failures(study: StudyTable) -> list[dict[str, Any]]:
    """Runs without a result by their cause, the commonest first, with up to five of their seeds."""
    failed = [row for row in study.rows if not _is_whole(row, study.score)]
    causes = Counter((row["status"], row.get("message", "")) for row in failed)
    return [
        {
            "status": status or "unknown",
            "message": message or "no message",
            "count": count,
            "seeds": ", ".join(
                [row.get("seed", "?") for row in failed if (row["status"], row.get("message", "")) == cause][:5]
            ),
        }
        for cause, count in causes.most_common()
        for status, message in [cause]
    ]


def _is_whole(row: Mapping[str, str], column: str) -> bool:
    return row["status"] in WHOLE and bool(np.isfinite(_score(row, column)))


def _score(row: Mapping[str, str], column: str) -> float:
    value = _number(row.get(column, ""))
    return value if np.isfinite(value) else np.inf


def _ratio(row: Mapping[str, str]) -> float:
    """Ts/tau to four digits: what a study asked for, whatever the last bits."""
    value = _number(row.get("ts_over_tau", ""))
    return float(f"{value:.4g}") if value > 0 else float("nan")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _short(text: str) -> str:
    value = _number(text)
    return number(value) if np.isfinite(value) else text
