"""Where a training is: what both trainers share, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import PyTree

from tausid.shapes import Array
from tausid.training.result import HistoryRow


class Status(StrEnum):
    """How a training goes, or how it ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    EARLY_STOPPED = "early-stopped"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"


@dataclass(frozen=True, eq=False)
class RunState:
    """Where training is; replaced as a whole after every call of a trainer's `step`.

    Args:
        inner: what the trainer carries on: moments and rate, or the point of its search.
        weights: trained arrays now.
        step: steps or iterations taken.
        best_weights: trained arrays with the best validation score.
        best_score: that score, normalized; infinite before the first finite one.
        best_step: its step.
        history: one row per validation.
        seconds: time spent.
        status: how it goes.
        recoveries: how often Adam went back to its best weights.
        from_fold: the fold whose weights this fit began with, counted from 1; 0 where it began with its own.
    """

    inner: PyTree
    weights: PyTree[Array]
    step: int
    best_weights: PyTree[Array]
    best_score: float
    best_step: int
    history: tuple[HistoryRow, ...]
    seconds: float
    status: Status
    recoveries: int = 0
    from_fold: int = 0
