"""Trials on held-out data: a structure is trained without some outputs and simulates them, fold by fold."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, PyTree

from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.errors import DataError
from tausid.linear import LinearModel
from tausid.model.model import Model
from tausid.model.restore import with_limits
from tausid.model.structure import SAMPLES_PER_STATE, Structure
from tausid.shapes import Array
from tausid.training.checkpoint import load_trials, save_trials
from tausid.training.driver import Session
from tausid.training.holdout import Split, cut_folds
from tausid.training.parts import Folds
from tausid.training.problem import Problem, validation_score
from tausid.training.progress import ProgressUpdate
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task
from tausid.training.result import FoldCurve, FoldCurves, TrialKey
from tausid.training.run_state import RunState, Status
from tausid.training.start import approximate

# Errors below this share of the deviation are as good as none: what is left to choose by is rounding.
NEGLIGIBLE = 1e-4
# A structure is better where its error is lower by this factor; otherwise what was tried first stays.
BETTER = 0.98
# A structure is given up where folds so far leave it behind by this factor.
HOPELESS = 1.2
# Inputs this much larger than the held-out ones must not make a model diverge, as polynomials may out of range.
LARGER_INPUTS = 1.5
# What trials say that were not done, or given up.
NOTHING = FoldCurves((), (), (np.inf,), 0)


class Trials:
    """Trials of structures on the same held-out data; those that an interrupted run has on disk are not repeated.

    Args:
        task: what is fitted.
        session: progress, folder, Ctrl-C.
        planned: how many structures there are at least.
    """

    def __init__(self, task: Task, session: Session, planned: int) -> None:
        self.task = task
        self.session = session
        self.splits = cut_folds(task.problem.split, task.problem.recipe)
        self.curves = {} if session.folder is None else load_trials(session.folder, task.problem)
        self.planned = planned * len(self.splits)
        self.done = 0
        self.seconds = 0.0  # spent on all trials, also before an interruption
        self._linear: dict[tuple[int, int], LinearModel] = {}

    @property
    def most_states(self) -> int:
        """So many states that all held-out data are long enough for their estimate."""
        return min(len(record) for split in self.splits for record in split.validation) // (2 * SAMPLES_PER_STATE)

    def of(self, recipe: Recipe, rival: Recipe | None = None, enough: float = BETTER) -> FoldCurves:
        """What all trials of one structure say together.

        The first folds may be enough to see that it is not better than its rival by the factor `enough`. All errors are
        infinite where no simulation stayed finite, where the structure was given up or the records cannot carry it, and
        after an interruption.
        """
        curves: list[FoldCurve] = []
        for k, split in enumerate(self.splits):
            key = trial_key(recipe.structure, k)
            if key not in self.curves:
                try:
                    curve = self._try(recipe, k, split, must_endure=rival is not None)
                except DataError:
                    if rival is None:
                        raise
                    return NOTHING
                if self.session.interrupted.is_set():
                    return NOTHING
                self.curves[key] = curve
                if self.session.folder is not None:
                    save_trials(self.session.folder, self.task.problem, self.curves)
            self.done += 1
            self.seconds += self.curves[key].seconds
            curves.append(self.curves[key])
            if rival is not None:
                best = pool([self.curves[trial_key(rival.structure, i)] for i in range(k + 1)]).lowest
                if pool(curves).lowest > HOPELESS * enough / BETTER * best:
                    return NOTHING
        return pool(curves)

    def weights(self, recipe: Recipe, k: int) -> PyTree[Array]:
        """The best weights of the k-th trial of a structure; it is done again."""
        return self._train(recipe, k, self.splits[k])[1].best_weights

    def _try(self, recipe: Recipe, k: int, split: Split, *, must_endure: bool) -> FoldCurve:
        began = time.perf_counter()
        problem, run = self._train(recipe, k, split)
        scored = sum(int((~np.isnan(record.y)).sum()) for record in split.validation)
        errors = [_start_error(problem), *(row.validation for row in run.history)]
        if must_endure and not endures(problem.model_with(run.best_weights), split.validation):
            errors = [np.inf] * len(errors)
        if run.status == Status.DIVERGED and run.recoveries:
            errors[-1] = np.inf
        steps = (0, *(row.step for row in run.history))
        return FoldCurve(steps, tuple(errors), scored, time.perf_counter() - began)

    def _train(self, recipe: Recipe, k: int, split: Split) -> tuple[Problem, RunState]:
        problem = self._problem(recipe, k, split)

        def tell(before: RunState, run: RunState) -> ProgressUpdate:
            return self._update(problem, recipe, k, run)

        return problem, self.session.train(problem, self.session.begin(problem), tell, kept=False)

    def _problem(self, recipe: Recipe, k: int, split: Split) -> Problem:
        """As on all records: further states than the linear approximation of these has start apart from it."""
        first = self.task.problem
        try:
            bla = None
            if first.linear_order is not None:
                bla = self._approximation(k, split, min(recipe.structure.order, first.linear_order))
            return self.task.start(recipe, split, bla, first.initial_model.scaling)
        except DataError as error:
            if not isinstance(recipe.holdout, Folds):
                raise
            raise DataError(
                f"each fold must be able to train without its stretch; fold {k + 1} of {len(self.splits)} with "
                f"{describe(recipe.structure)} is not: {error} Use fewer folds, or give validation records."
            ) from None

    def _approximation(self, k: int, split: Split, order: int) -> LinearModel:
        if (k, order) not in self._linear:
            self._linear[k, order] = approximate(split.train, self.task.problem.recipe, order=order)
        return self._linear[k, order]

    def _update(self, problem: Problem, recipe: Recipe, k: int, run: RunState) -> ProgressUpdate:
        most, row = problem.stop, run.history[-1] if run.history else None
        planned = max(self.planned, self.done + 1)
        fold = f", fold {k + 1} of {len(self.splits)}" if isinstance(recipe.holdout, Folds) else ""
        return ProgressUpdate(
            step=self.done * most + run.step,
            max_steps=(planned + 1) * most,
            loss=row.loss if row else float("nan"),
            validation=row.validation if row else float("nan"),
            best=run.best_score,
            best_step=self.done * most + run.best_step,
            recoveries=run.recoveries,
            steps_per_second=run.step / max(run.seconds, 1e-9) if run.step > 1 else float("nan"),
            status=Status.RUNNING,
            note=f"{describe(recipe.structure)}{fold}, iteration {run.step}",
        )


def trial_key(structure: Structure, k: int) -> TrialKey:
    """What tells a trial from others of the same fit."""
    return (structure.order, structure.network, structure.activation, bool(structure.nonlinear_g), k)


def describe(structure: Structure) -> str:
    """A structure in words: states, network, and which parts are nonlinear."""
    kinds = {"mlp": structure.activation, "both": f"polynomial and {structure.activation}"}
    network = kinds.get(structure.network, structure.network)
    parts = "f and g" if structure.nonlinear_g else "f"
    return f"{structure.nx} state{'s' * (structure.order > 1)}, {network}, {parts} nonlinear"


def pool(curves: Sequence[FoldCurve]) -> FoldCurves:
    """Curves together, at all steps that one of them has; between and after its steps one stays at its last error."""
    steps = sorted({step for curve in curves for step in curve.steps})
    scores = np.array([[_error_at(curve, step) for step in steps] for curve in curves])
    scores = np.where(np.isfinite(scores), scores, np.inf)
    weights = [curve.scored for curve in curves]
    pooled = geometric_mean(scores, weights)
    # The first of those that are as good.
    chosen = steps[int(np.argmin(geometric_mean(np.maximum(scores, NEGLIGIBLE), weights)))]
    return FoldCurves(tuple(steps), tuple(map(tuple, scores.tolist())), tuple(pooled.tolist()), chosen)


def _error_at(curve: FoldCurve, step: int) -> float:
    return curve.errors[int(np.searchsorted(curve.steps, step, side="right")) - 1]


def geometric_mean(scores: Float[np.ndarray, "folds steps"], weights: Sequence[int]) -> Float[np.ndarray, "steps"]:
    """Weighted geometric means over the folds: what counts is by how much each of them gets better."""
    return np.exp(np.average(np.log(np.maximum(scores, np.finfo(float).tiny)), axis=0, weights=weights))


def endures(model: Model, records: Sequence[Record]) -> bool:
    """Whether simulations stay finite with inputs `LARGER_INPUTS` times as far from their mean in training."""
    mean = model.scaling.u_mean
    larger = [dataclasses.replace(record, u=mean + LARGER_INPUTS * (record.u - mean)) for record in records]
    return all(model.simulate(record, throw=False).status == "ok" for record in larger)


def _start_error(problem: Problem) -> float:
    """The held-out error of the start, as the final fit has it; infinite where known equations stand alone, of which
    nothing is trained but what finds their initial states."""
    model = problem.initial_model
    if model.physics is not None and problem.recipe.structure.correction == "none":
        return np.inf
    if problem.linear_order is not None:  # a linear approximation is in units of the records that it was found from
        own = Scaling.from_records(problem.split.train)
        limited = with_limits(model.state_space, model.structure, own)
        model = dataclasses.replace(model, scaling=own, state_space=limited)
    deviation, weights = problem.initial_model.scaling.y_std, problem.recipe.trainer.output_weights
    return validation_score(model, problem.split.validation, output_weights=weights, deviation=deviation)
