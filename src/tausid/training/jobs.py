"""Jobs of a search: what is trained without some outputs, and what comes of it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.data.records import Record
from tausid.errors import DataError
from tausid.model.arrays import named_arrays
from tausid.model.initial import FreeState
from tausid.model.model import Model
from tausid.training.candidates import describe
from tausid.training.checkpoint import StoredTrial
from tausid.training.parts import Folds
from tausid.training.problem import Problem
from tausid.training.recipe import Recipe
from tausid.training.result import FoldCurve
from tausid.training.run_state import RunState, Status

# Inputs this much larger than the held-out ones must not make a model diverge, as polynomials may out of range.
LARGER_INPUTS = 1.5
# Where the inputs of training are repeated so often, those of so many samples of a record, no output may be so many
# deviations away: a record may be too short to show that a slow mode grows.
REPEATED, REPEATED_SAMPLES, RUNAWAY = 8, 4096, 100.0


@dataclass(frozen=True, eq=False)
class Trial:
    """A training without some outputs.

    Args:
        curve: how well it simulates them.
        model: the one that does it best; None where none does.
    """

    curve: FoldCurve
    model: Model | None

    @property
    def training_error(self) -> float:
        """Root mean square of the training errors at the last step; infinite where there is no model."""
        return float("inf") if self.model is None else float(np.sqrt(self.curve.losses[-1]))

    def stored(self) -> StoredTrial:
        """The trial for its file."""
        return StoredTrial(self.curve, {} if self.model is None else named_arrays(self.model.state_space))


@dataclass(frozen=True)
class Job:
    """What is trained: a candidate, on all records but those of a fold, from its own start or another.

    Args:
        recipe: the candidate.
        fold: which fold is held out; None for none, in a final fit.
        variant: which of several random starts.
        steps: where it ends; None for the trainer's own end.
        loss: training error above which it does not end there.
        begin: the fold whose model it begins with; None for its own start.
        further: whether it does not end there at all, but where nothing is gained any more.
    """

    recipe: Recipe
    fold: int | None
    variant: int = 0
    steps: int | None = None
    loss: float = math.inf
    begin: int | None = None
    further: bool = False


def job_key(job: Job) -> str:
    """What tells a job from others of the same fit, for its file."""
    structure, start = job.recipe.structure, job.recipe.start
    parts = (structure.order, structure.network, structure.hidden, structure.activation, bool(structure.nonlinear_g))
    begins = (start.kind, getattr(start, "stretches", False), getattr(job.recipe.trainer, "independent", None))
    return repr((*parts, *begins, job.fold, job.variant, job.steps, job.loss, job.begin, job.further))


def endures(model: Model, records: Sequence[Record]) -> bool:
    """Whether simulations stay finite with inputs `LARGER_INPUTS` times as far from their mean in training."""
    mean = model.scaling.u_mean
    larger = [dataclasses.replace(record, u=mean + LARGER_INPUTS * (record.u - mean)) for record in records]
    return all(model.simulate(record, throw=False).status == "ok" for record in larger)


def lasts(model: Model, records: Sequence[Record]) -> bool:
    """Whether simulations do not run away where the inputs of training are repeated; integrals of them may grow.

    A model with an encoder is not asked: its state at the start is not known without outputs.
    """
    initial = model.state_space.initial
    if not isinstance(initial, FreeState):
        return True
    x0 = np.asarray(initial.expected, float)
    runs = (model.simulate(_repeated(record), x0=x0, throw=False) for record in records)
    return all(np.all(np.abs(model.scaling.normalize_y(run.y)) <= RUNAWAY) for run in runs)


def _repeated(record: Record) -> Record:
    """The first samples of a record `REPEATED` times, one after the other."""
    part = record.part(0, min(len(record), REPEATED_SAMPLES))
    u, y = (np.tile(array, (REPEATED, 1)) for array in (part.u, part.y))
    steps = np.tile(np.append(np.diff(part.t), part.ts), REPEATED)
    return dataclasses.replace(part, u=u, y=y, t=np.cumsum(steps))


def finished(problem: Problem, run: RunState, began: float) -> Trial:
    """What a training that ended says."""
    held_out, model = problem.split.validation, problem.model_with(run.best_weights)
    errors = [run.first_score, *(row.validation for row in run.history)]
    if run.status == Status.DIVERGED or (held_out and not endures(model, held_out)):
        errors = [np.inf] * len(errors)
    scored = sum(int((~np.isnan(record.y)).sum()) for record in held_out)
    losses = (run.first_loss, *(row.loss for row in run.history))
    steps = (0, *(row.step for row in run.history))
    curve = FoldCurve(steps, tuple(errors), max(scored, 1), time.perf_counter() - began, losses)
    lost = run.status == Status.DIVERGED or np.isinf(losses[-1])  # Adam does not know the loss of its start
    return Trial(curve, None if lost else model)


def failed(began: float) -> Trial:
    """What a training that cannot begin says."""
    return Trial(FoldCurve((0,), (np.inf,), 1, time.perf_counter() - began), None)


def cannot_train(job: Job, folds: int, error: DataError) -> DataError:
    """The error where the candidate that was asked for cannot be trained without a fold."""
    if not isinstance(job.recipe.holdout, Folds):
        return error
    return DataError(
        f"each fold must be able to train without its stretch; fold {(job.fold or 0) + 1} of {folds} with "
        f"{describe(job.recipe.structure)} is not: {error} Use fewer folds, or give validation records."
    )
