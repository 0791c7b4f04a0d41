"""The page on a study: many runs, their distributions, the best and the failed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tausid.errors import ConfigError
from tausid.results import plots
from tausid.results.report._html import number, picture, render
from tausid.results.study_results import StudyResults, scores_of
from tausid.training.run_state import Status

LABELS = {"test_rmse": "test RMSE", "validation_rmse": "validation RMSE", "train_rmse": "training RMSE"}
WHOLE = (Status.COMPLETED, Status.EARLY_STOPPED)
BEST = 10
# A box plot is cut off where runs lie so many times above the median of all.
FAR = 4.0

# Runs by what was asked of them: by Ts/tau where that alone tells them apart, by a label otherwise.
Groups = Mapping[float | str, Sequence[Mapping[str, Any]]]


def study_page(study: StudyResults) -> str:
    """The page on a study.

    Args:
        study: its finished runs.

    Raises:
        ConfigError: it has no runs.
    """
    if not study.rows:
        raise ConfigError(f"a report must have finished runs; the study {study.name} has none yet. Run it first.")
    groups = _groups(study)
    what = "Ts/tau" if study.axes == ("ts_over_tau",) else ", ".join(study.axes) or "group"
    return render(
        "study.html",
        title=study.name,
        sentence=_sentence(study, groups, what),
        what=what,
        score=_label(study.score),
        table=[_summary(key, rows, study.score) for key, rows in groups.items()],
        boxes=_boxes(study, groups, what),
        best=_best(study),
        failures=_failures(study),
        whole=sum(_is_whole(row, study.score) for row in study.rows),
        count=len(study.rows),
        versions=sorted({str(row.get("version") or "") for row in study.rows} - {""}),
        columns=study.columns,
    )


def _groups(study: StudyResults) -> Groups:
    if study.axes == ("ts_over_tau",):
        return {values[0]: rows for values, rows in study.groups().items()}
    return {_name(study.axes, values): rows for values, rows in study.groups().items()}


def _name(axes: Sequence[str], values: Sequence[Any]) -> str:
    """What to call a group: its value where there is one axis, all of them by their names otherwise."""
    if len(axes) == 1:
        return _short(values[0])
    return ", ".join(f"{axis} = {_short(value)}" for axis, value in zip(axes, values, strict=True)) or "all runs"


def _label(score: str) -> str:
    """A score in words; that of one of several test records has the record's name behind a colon."""
    column, _, record = score.partition(":")
    return LABELS.get(column, column) + (f" of {record}" if record else "")


def _sentence(study: StudyResults, groups: Groups, what: str) -> str:
    medians = {key: float(np.median([_score(row, study.score) for row in rows])) for key, rows in groups.items()}
    best = min(medians, key=lambda key: medians[key])
    lowest = min(_score(row, study.score) for row in study.rows)
    if not np.isfinite(medians[best]):
        return "In every group at least half of the runs have no finite score."
    label = best if isinstance(best, str) else f"{what} = {number(best)}"
    kind = _label(study.score)
    if len(groups) == 1:
        return f"The median {kind} is {number(medians[best])}, the best run has {number(lowest)}."
    worst = max(medians.values())
    than = f"{worst / medians[best]:.1f} times as large" if np.isfinite(worst) else "infinite"
    return (
        f"{label} is best: its median {kind} is {number(medians[best])}, that of the worst group {than}. "
        f"The best of all runs has {number(lowest)}."
    )


def _summary(key: float | str, rows: Sequence[Mapping[str, Any]], column: str) -> dict[str, Any]:
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


def _boxes(study: StudyResults, groups: Groups, what: str) -> dict[str, str] | None:
    sets = {key: [_score(row, study.score) for row in rows] for key, rows in groups.items()}
    scores = np.concatenate([np.asarray(values) for values in sets.values()])
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return None
    top = FAR * float(np.median(finite))
    label = f"{what} (no unit)" if what == "Ts/tau" else what
    y_max = top if finite.max() > top > 0 else None
    drawn = plots.plot_study_boxes(sets, x_label=label, y_label=_label(study.score), y_max=y_max)
    return picture(drawn, f"Box plot of the {_label(study.score)} by {what}")


def _best(study: StudyResults) -> dict[str, Any]:
    order = np.argsort([_score(row, study.score) for row in study.rows], kind="stable")[:BEST]
    wanted = [
        *study.axes,
        "final_ts_over_tau",
        "seed",
        study.score,
        "validation_rmse",
        "train_rmse",
        "steps",
        "seconds",
    ]
    columns = [name for name in dict.fromkeys(wanted) if name in study.columns]
    rows = [study.rows[i] for i in order if np.isfinite(_score(study.rows[i], study.score))]
    return {"columns": columns, "rows": [[_short(row.get(name)) for name in columns] for row in rows]}


def _failures(study: StudyResults) -> list[dict[str, Any]]:
    """Runs without a result by their cause, the commonest first, with up to five of their seeds."""
    failed = [row for row in study.rows if not _is_whole(row, study.score)]
    causes = Counter(map(_cause, failed))
    return [
        {
            "status": status or "unknown",
            "message": message or "no message",
            "count": count,
            "seeds": ", ".join([_short(row.get("seed")) for row in failed if _cause(row) == (status, message)][:5]),
        }
        for (status, message), count in causes.most_common()
    ]


def _cause(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row["status"] or ""), str(row.get("message") or "")


def _is_whole(row: Mapping[str, Any], column: str) -> bool:
    return row["status"] in WHOLE and bool(np.isfinite(_score(row, column)))


def _score(row: Mapping[str, Any], column: str) -> float:
    """The score of a run, infinite where it has none."""
    return next(iter(scores_of([row], column)), np.inf)


def _short(value: Any) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)
