"""What goes on around a trainer's `init` and `step`: progress, checkpoints, Ctrl-C."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tausid.model.state_space import StateSpace
from tausid.training.checkpoint import load_checkpoint, save_checkpoint
from tausid.training.parts import Adam
from tausid.training.problem import Problem
from tausid.training.progress import ProgressUpdate
from tausid.training.run_state import RunState, Status

SECONDS_BETWEEN_CHECKPOINTS = 10.0

Tell = Callable[[RunState, RunState], ProgressUpdate]  # of the state before and after a step


def trainer_of(problem: Problem) -> ModuleType:
    """The module with the pair `init(problem) -> state` and `step(problem, state) -> state`."""
    if isinstance(problem.recipe.trainer, Adam):
        from tausid.training import adam

        return adam
    from tausid.training import levenberg_marquardt

    return levenberg_marquardt


@dataclass(frozen=True, eq=False)
class Session:
    """What all trainings of a fit share.

    Args:
        folder: where checkpoints go; None for nowhere.
        report: called with what is known after each step.
        interrupted: set by Ctrl-C.
    """

    folder: Path | None
    report: Callable[[ProgressUpdate], None]
    interrupted: threading.Event

    def begin(self, problem: Problem, weights: StateSpace | None = None) -> RunState:
        """The state before the first step, from the start that the problem has or from other weights."""
        return trainer_of(problem).init(problem, weights)

    def resume(self, problem: Problem) -> RunState | None:
        """Where an earlier session left a training; None where it left nothing to go on from."""
        saved = None if self.folder is None else load_checkpoint(self.folder, problem)
        if saved is None or saved.status != Status.INTERRUPTED:
            return saved
        return dataclasses.replace(saved, status=Status.RUNNING)

    def train(self, problem: Problem, run: RunState, tell: Tell, *, kept: bool) -> RunState:
        """Take steps until training ends or is interrupted; checkpoints are `kept` where it can go on from them."""
        step, saved_at = trainer_of(problem).step, time.monotonic() - SECONDS_BETWEEN_CHECKPOINTS
        while run.status == Status.RUNNING:
            before, run = run, step(problem, run)
            if self.interrupted.is_set() and run.status == Status.RUNNING:
                run = dataclasses.replace(run, status=Status.INTERRUPTED)
            self.report(tell(before, run))
            due = time.monotonic() - saved_at >= SECONDS_BETWEEN_CHECKPOINTS
            if kept and self.folder is not None and (due or run.status != Status.RUNNING):
                save_checkpoint(self.folder, problem, run)
                saved_at = time.monotonic()
        return run

    def keep(self, problem: Problem, run: RunState) -> None:
        """Write a training that has ended."""
        if self.folder is not None:
            save_checkpoint(self.folder, problem, run)


def progress_update(problem: Problem, before: RunState, run: RunState) -> ProgressUpdate:
    """How a training goes by itself."""
    row = run.history[-1] if run.history else None
    return ProgressUpdate(
        step=run.step,
        max_steps=problem.stop,
        loss=row.loss if row else float("nan"),
        validation=row.validation if row else float("nan"),
        best=run.best_score,
        best_step=run.best_step,
        recoveries=run.recoveries,
        steps_per_second=(run.step - before.step) / max(run.seconds - before.seconds, 1e-9),
        status=run.status,
    )
