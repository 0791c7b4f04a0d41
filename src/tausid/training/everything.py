"""The fit on everything, after held-out data have chosen its structure and its number of iterations."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Array, PyTree

from tausid.training.choosing import NEGLIGIBLE, Choice
from tausid.training.finishing import finish
from tausid.training.loop import Problem, RunState, progress_update, validation_score
from tausid.training.progress import ProgressUpdate
from tausid.training.result import FoldCurves

# A fit has gone astray where its error on its own records is so many times the one of folds on what they did not see.
ASTRAY = 1.5


def fit_everything(
    problem: Problem,
    run: RunState,
    choice: Choice,
    report: Callable[[ProgressUpdate], None],
    interrupted: threading.Event,
) -> RunState:
    """Take the second-order steps, as many as folds say.

    Folds and the fit on everything may end in different minima, and its own may be a bad one. That is seen on training
    data: simulated as new records, from estimated initial states, they must not be much worse than what folds held out.
    Where they are, the fit begins again with the weights of a fold, of the best one first.
    """
    curves = choice.curves
    if interrupted.is_set():
        return dataclasses.replace(run, status="interrupted")
    if curves is None:
        return _take(problem, run, choice, report, interrupted)
    if np.isinf(curves.lowest):
        return dataclasses.replace(run, status="diverged")
    if curves.chosen == 0:
        return dataclasses.replace(run, finished=True)
    # Errors that are as good as none differ by rounding: nothing goes astray there.
    good = ASTRAY * max(curves.lowest, NEGLIGIBLE)
    began, best, lowest = time.perf_counter(), run, np.inf
    for number, weights in _starts(run, choice, curves):
        begun = dataclasses.replace(run, best_weights=weights, from_fold=number)
        done = _take(problem, begun, choice, report, interrupted)
        if interrupted.is_set() and not done.finished:
            return dataclasses.replace(run, status="interrupted")
        error = validation_score(problem.model_with(done.best_weights), problem.split.train)
        if number == 0 or error < lowest:
            best, lowest = done, error
        if lowest <= good:
            break
    return dataclasses.replace(best, seconds=run.seconds + time.perf_counter() - began)


def _starts(run: RunState, choice: Choice, curves: FoldCurves) -> Iterator[tuple[int, PyTree[Array]]]:
    """Weights to begin with: the own ones, then those of each fold, by their errors."""
    yield 0, run.best_weights
    if choice.trials is not None:
        for k in np.argsort([min(scores) for scores in curves.scores], kind="stable").tolist():
            yield k + 1, choice.trials.weights(choice.config, k)


def _take(
    problem: Problem,
    run: RunState,
    choice: Choice,
    report: Callable[[ProgressUpdate], None],
    interrupted: threading.Event,
) -> RunState:
    config, curves = problem.config, choice.curves
    most = config.finish_steps if curves is None else curves.chosen
    ahead = choice.tried * config.finish_steps
    again = f" again, from fold {run.from_fold}" if run.from_fold else ""

    def tell(before: RunState, now: RunState) -> None:
        number = now.step - run.step
        update = progress_update(problem, before, now)
        if curves is not None:
            update = dataclasses.replace(update, validation=curves.pooled[number], best=curves.lowest)
        report(
            dataclasses.replace(
                update,
                step=ahead + now.step,
                max_steps=ahead + run.step + most,
                best_step=ahead + (now.best_step if curves is None else curves.chosen),
                steps_per_second=update.steps_per_second if number > 1 else float("nan"),
                status="running",
                note=f"{config.finish}{again}, iteration {number} of {most}",
            )
        )

    return finish(problem, run, most=most, parts=config.finish_parts, report=tell, interrupted=interrupted)
