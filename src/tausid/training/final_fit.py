"""The final fit on all training records, after held-out data have chosen its structure and its number of steps."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import numpy as np
from jaxtyping import PyTree

from tausid.shapes import Array
from tausid.training.driver import Session, progress_update
from tausid.training.parts import Adam, LevenbergMarquardt
from tausid.training.problem import Problem, validation_score
from tausid.training.progress import ProgressUpdate
from tausid.training.result import FoldCurves
from tausid.training.run_state import RunState, Status
from tausid.training.search import Choice
from tausid.training.trials import NEGLIGIBLE

# A fit has gone astray where its error on its own records is so many times the one of folds on what they did not see.
ASTRAY = 1.5


def final_fit(problem: Problem, choice: Choice, session: Session) -> RunState:
    """Train on all records, for as many steps as folds say; what an earlier session finished is not done again."""
    saved = session.resume(problem)
    if saved is not None and saved.status != Status.RUNNING:
        return saved
    if session.interrupted.is_set():
        return _untrained(problem, choice, Status.INTERRUPTED)
    done = (
        _fit_with_folds(problem, choice, choice.curves, session)
        if choice.curves
        else _fit(problem, saved, choice, session)
    )
    if done.status != Status.INTERRUPTED:
        session.keep(problem, done)
    return done


def _fit(problem: Problem, saved: RunState | None, choice: Choice, session: Session) -> RunState:
    if saved is None:
        saved = session.begin(problem)
        saved = dataclasses.replace(saved, seconds=saved.seconds + choice.seconds)
    return _train(problem, saved, choice, session)


def _fit_with_folds(problem: Problem, choice: Choice, curves: FoldCurves, session: Session) -> RunState:
    """A fit may end in a bad minimum. That is seen on training data: simulated as new records, from estimated initial
    states, they must not be much worse than what folds held out. Where they are, it restarts from the best fold."""
    if np.isinf(curves.lowest):
        return _untrained(problem, choice, Status.DIVERGED)
    if curves.chosen == 0:
        return _untrained(problem, choice, Status.COMPLETED)
    # Errors that are as good as none differ by rounding: nothing goes astray there.
    good = ASTRAY * max(curves.lowest, NEGLIGIBLE)
    began, best, lowest = time.perf_counter(), None, np.inf
    for number, weights in _starts(choice, curves):
        begun = dataclasses.replace(session.begin(problem, weights), from_fold=number)
        done = _train(problem, begun, choice, session)
        if done.status == Status.INTERRUPTED:
            return done if number == 0 else _untrained(problem, choice, Status.INTERRUPTED)
        model = problem.model_with(done.best_weights)
        error = validation_score(model, problem.split.train, output_weights=problem.recipe.trainer.output_weights)
        if best is None or error < lowest:
            best, lowest = done, error
        if lowest <= good:
            break
    assert best is not None
    return dataclasses.replace(best, seconds=choice.seconds + time.perf_counter() - began)


def _untrained(problem: Problem, choice: Choice, status: Status) -> RunState:
    """The start itself, as what training ended with."""
    weights = problem.first_weights
    return RunState(None, weights, 0, weights, np.inf, 0, (), choice.seconds, status)


def _starts(choice: Choice, curves: FoldCurves) -> Iterator[tuple[int, PyTree[Array] | None]]:
    """Weights to begin with: the own ones, then those of each fold, by their errors."""
    yield 0, None
    if choice.trials is not None:
        for k in np.argsort([min(scores) for scores in curves.scores], kind="stable").tolist():
            yield k + 1, choice.trials.weights(choice.recipe, k)


def _train(problem: Problem, run: RunState, choice: Choice, session: Session) -> RunState:
    curves, ahead = choice.curves, choice.tried * problem.recipe.trainer.most
    again = f" again, from fold {run.from_fold}" if run.from_fold else ""

    def tell(before: RunState, now: RunState) -> ProgressUpdate:
        update = progress_update(problem, before, now)
        if curves is not None:
            update = dataclasses.replace(update, validation=curves.at(now.step), best=curves.lowest)
        if not isinstance(problem.recipe.trainer, LevenbergMarquardt):
            return update
        return dataclasses.replace(
            update,
            step=ahead + now.step,
            max_steps=ahead + problem.stop,
            best_step=ahead + (now.best_step if curves is None else curves.chosen),
            steps_per_second=update.steps_per_second if now.step > 1 else float("nan"),
            note=f"final fit{again}, iteration {now.step} of {problem.stop}",
        )

    return session.train(problem, run, tell, kept=curves is None and isinstance(problem.recipe.trainer, Adam))
