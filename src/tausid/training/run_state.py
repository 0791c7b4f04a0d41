"""Where a training is: what both trainers share, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tausid.model.state_space import StateSpace
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
        weights: the model now.
        step: steps or iterations taken.
        best_weights: the model with the best validation score.
        best_score: that score, normalized; infinite before the first finite one.
        best_step: its step.
        history: one row per validation.
        seconds: time spent.
        status: how it goes.
        recoveries: how often Adam went back to its best weights.
        first_score: the validation score before the first step.
        first_loss: the loss before the first step; NaN where it is not known.
    """

    inner: Any
    weights: StateSpace
    step: int
    best_weights: StateSpace
    best_score: float
    best_step: int
    history: tuple[HistoryRow, ...]
    seconds: float
    status: Status
    recoveries: int = 0
    first_score: float = float("inf")
    first_loss: float = float("nan")
