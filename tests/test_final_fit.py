"""The final fit: as many iterations as folds say, and again from a fold's weights where it went astray."""

from __future__ import annotations

import threading

import jax
import numpy as np
import pytest
from problems import wiener_record
from tausid.training.final_fit import final_fit

import tausid
from tausid.model.structure import Structure
from tausid.training import final_fit as module
from tausid.training.driver import Session
from tausid.training.parts import FromLinear, LevenbergMarquardt
from tausid.training.problem import Problem, validation_score
from tausid.training.recipe import Recipe
from tausid.training.resolve import resolve
from tausid.training.result import FoldCurves
from tausid.training.run_state import RunState
from tausid.training.search import Choice
from tausid.training.trials import Trials

STRUCTURE = Structure(nx=2, hidden=(3,), activation="tanh")


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Two iterations; what they lead to from the random weights is still far from the minimum."""
    start, trainer = FromLinear(nonlinear="random", weight_range=0.5), LevenbergMarquardt(iterations=2)
    recipe = Recipe(STRUCTURE, start=start, trainer=trainer, holdout=None)
    return resolve(recipe, wiener_record(80), tau=2.0, seed=0).problem


def session(report=lambda update: None) -> Session:
    return Session(None, report, threading.Event())


def take(problem: Problem, weights=None, times: int = 1) -> RunState:
    """Two iterations from some weights on, several times."""
    for _ in range(times):
        run = session().begin(problem, weights)
        run = session().train(problem, run, lambda before, now: None, kept=False)
        weights = run.best_weights
    return run


def error_of(problem: Problem, run: RunState) -> float:
    return validation_score(problem.model_with(run.best_weights), problem.split.train, output_weights=None)


class DoneTrials(Trials):
    """Trials that have been done; counts what is asked of them."""

    def __init__(self, weights) -> None:
        self.done, self.seconds = 2, 1.0
        self.found = weights
        self.asked: list[int] = []

    def weights(self, recipe, k):
        self.asked.append(k)
        return self.found


def choice_after(problem: Problem, trials: DoneTrials, lowest: float) -> Choice:
    """Two folds, of which the second is better, prefer two iterations."""
    scores = ((1.0, 0.6, 0.5), (1.0, 0.5, 0.4))
    return Choice(problem.recipe, FoldCurves((0, 1, 2), scores, (1.0, 0.6, lowest), 2), trials)


def same_weights(a: RunState, b: RunState) -> bool:
    pairs = zip(jax.tree.leaves(a.best_weights), jax.tree.leaves(b.best_weights), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def test_a_fit_that_is_worse_than_its_folds_begins_again_with_the_best_of_them(problem):
    good, alone = take(problem, times=20), take(problem)
    lowest = error_of(problem, good)
    assert error_of(problem, alone) > 2 * module.ASTRAY * lowest  # two iterations are too few from its own start
    trials, notes = DoneTrials(good.best_weights), []
    done = final_fit(problem, choice_after(problem, trials, lowest), session(lambda u: notes.append(u.note)))
    assert (done.from_fold, trials.asked, done.step, done.status) == (2, [1], 2, "completed")
    assert same_weights(done, take(problem, good.best_weights))
    assert error_of(problem, done) < 1.01 * lowest
    assert notes[-1] == "final fit again, from fold 2, iteration 2 of 2"
    assert done.seconds > done.history[-1].seconds  # those of the first attempt count, too


def test_a_fit_that_is_as_good_as_its_folds_stays(problem):
    alone, trials = take(problem), DoneTrials(None)
    choice = choice_after(problem, trials, error_of(problem, alone) / (0.99 * module.ASTRAY))
    done = final_fit(problem, choice, session())
    assert (done.from_fold, trials.asked) == (0, [])
    assert same_weights(done, alone)


def test_errors_that_are_as_good_as_none_are_not_compared(problem, monkeypatch):
    monkeypatch.setattr(module, "validation_score", lambda *arguments, **options: 1e-4)
    trials = DoneTrials(None)
    done = final_fit(problem, choice_after(problem, trials, 1e-7), session())
    assert (done.from_fold, trials.asked) == (0, [])


def test_where_no_fold_helps_the_first_fit_stays(problem):
    trials = DoneTrials(problem.first_weights)  # leads to the same end
    done = final_fit(problem, choice_after(problem, trials, 1e-6), session())
    assert (done.from_fold, trials.asked) == (0, [1, 0])
    assert same_weights(done, take(problem))


def quick_fit(**changes) -> tausid.FitResult:
    parts = {"trainer": LevenbergMarquardt(iterations=3), "holdout": tausid.Folds(2), "progress": None}
    return tausid.fit(wiener_record(120), seed=0, structure=STRUCTURE, **{**parts, **changes})


def test_the_best_of_all_is_kept_told_and_resumed(tmp_path, monkeypatch):
    record, said = wiener_record(120), []

    def stop(update):
        if "again" in update.note:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "ASTRAY", 0.0)  # nothing is good enough, so that all folds are tried
    result = quick_fit(progress=said.append)
    assert {u.note.split(", ")[1] for u in said if "again" in u.note} == {"from fold 1", "from fold 2"}
    errors = {u.note.rsplit(",", 1)[0]: u.loss for u in said if u.note.startswith("final fit")}
    assert len(errors) == 3 and min(errors, key=errors.__getitem__) != "final fit"
    assert "restarted from fold" in result.message
    train = tausid.evaluate(result.model, record).total_rmse
    # Stopped in the second attempt, it resumes to the same end; and what has ended is read again.
    with pytest.raises(KeyboardInterrupt):
        quick_fit(progress=stop, out=tmp_path)
    for _ in range(2):
        again = quick_fit(out=tmp_path, resume=True)
        assert again.message == result.message
        assert tausid.evaluate(again.model, record).total_rmse == train
    monkeypatch.setattr(module, "ASTRAY", np.inf)
    first = quick_fit()
    assert train < tausid.evaluate(first.model, record).total_rmse
    assert "restarted" not in first.message
