"""Levenberg-Marquardt as a trainer: iterations on the full simulation error, validated as they go."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from tausid.data.records import Record
from tausid.model.initial import FreeState
from tausid.model.state_space import StateSpace
from tausid.shapes import Float
from tausid.training.full_error import full_error
from tausid.training.holdout import can_be_scored
from tausid.training.least_squares import iterate
from tausid.training.problem import Problem, recipe_score
from tausid.training.result import HistoryRow
from tausid.training.run_state import RunState, Status

# Iterations after which held-out data are simulated: all of the first ones, then ever fewer.
VALIDATED = tuple(sorted({round(1.5**i) for i in range(30)}))
# A trial ends after so many iterations: what is still getting better then goes on in its final fit.
TRIED = 86
# Training ends where the training error fell by a smaller share than this from one validation to the next, that is, in
# the last third of its iterations; not before so many of them, as it may rest on a plateau at first.
# A trial need not end where a final fit does: it is compared with others.
CREEPING, CREEPING_TRIAL, FEWEST = 0.01, 0.03, 30


def init(problem: Problem, weights: StateSpace | None = None) -> RunState:
    """The state before the first iteration, from the untrained model on, or from another one."""
    began, start = time.perf_counter(), problem.first_weights if weights is None else weights
    point = full_error(problem).begin(start, _first_states(problem, start))
    start = full_error(problem).model(point)
    first = _score(problem, start)
    return RunState(
        inner=point,
        weights=start,
        step=0,
        best_weights=start,
        best_score=first if np.isfinite(first) else np.inf,
        best_step=0,
        history=(),
        seconds=time.perf_counter() - began,
        status=Status.RUNNING,
        first_score=first if np.isfinite(first) else np.inf,
        first_loss=point.cost,
    )


def step(problem: Problem, run: RunState) -> RunState:
    """One iteration, a validation now and then, and whether training ends."""
    began, error = time.perf_counter(), full_error(problem)
    point, number = iterate(*error.at(run.inner), error.decay), run.step + 1
    enough = number >= problem.stop and point.cost <= problem.last_loss and not problem.further
    last = point.converged or enough or number >= _most(problem)
    run = dataclasses.replace(run, inner=point, step=number, seconds=run.seconds + time.perf_counter() - began)
    if number not in VALIDATED and not last:
        return run
    began, weights, validated = time.perf_counter(), error.model(point), bool(problem.split.validation)
    now = _score(problem, weights)
    if now < run.best_score or not validated:
        run = dataclasses.replace(run, best_weights=weights, best_score=now, best_step=number)
    seconds = run.seconds + time.perf_counter() - began
    row = HistoryRow(number, point.cost, now, float("nan"), problem.initial_model.tau, seconds)
    run = dataclasses.replace(run, weights=weights, history=(*run.history, row), seconds=seconds)
    if not last and not _creeps(problem, run):
        return run
    # Without a finite start there is no better point; without a finite score none that can be told to be good.
    simulates = np.isfinite(point.cost) and (not validated or np.isfinite(run.best_score))
    return dataclasses.replace(run, status=Status.COMPLETED if simulates else Status.DIVERGED)


def _most(problem: Problem) -> int:
    return min(problem.recipe.trainer.most, TRIED) if problem.trial else problem.recipe.trainer.most


def _creeps(problem: Problem, run: RunState) -> bool:
    """Whether next to nothing is gained any more; a final fit takes the iterations that folds chose all the same."""
    if run.step < max(FEWEST, problem.last_step or 0) or len(run.history) < 2:
        return False
    share = CREEPING_TRIAL if problem.trial else CREEPING
    before, now = run.history[-2].loss, run.history[-1].loss
    return before - now < share * now


def _first_states(problem: Problem, model: StateSpace) -> Float[np.ndarray, "B nx"]:
    """Where the search for the initial states begins; an encoder is fitted to what comes out."""
    if isinstance(model.initial, FreeState) and len(model.initial.x0) == len(problem.split.train):
        return np.asarray(model.initial.x0, float)
    return np.zeros((len(problem.split.train), model.nx))


def _score(problem: Problem, weights: StateSpace) -> float:
    """The error on held-out data, or on the training records where that is larger; NaN where nothing is held out.

    Both are simulated like new records, from estimated initial states. No model is better on new data than on its own:
    short held-out stretches of a slow plant may seem to say so, as there is no time to drift away.
    """
    model, held_out = problem.model_with(weights), problem.split.validation
    several = (held_out, _own_records(problem))
    scores = [recipe_score(model, records, problem.recipe) for records in several if held_out and records]
    return max(scores, default=float("nan"))


def _own_records(problem: Problem) -> tuple[Record, ...]:
    """The training records that can be simulated like new ones."""
    structure = problem.recipe.structure
    free = structure.initial_state == "free"
    return tuple(record for record in problem.split.train if free and can_be_scored(record.y, structure))
