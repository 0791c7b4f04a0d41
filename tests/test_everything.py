"""The fit on everything: as many iterations as folds say, and again from a fold's weights where it went astray."""

from __future__ import annotations

import dataclasses
import threading

import jax
import numpy as np
import pytest
from problems import wiener_record
from tausid.training.choosing import Choice
from tausid.training.everything import fit_everything
from tausid.training.finishing import finish
from tausid.training.loop import Problem, RunState, start_run, validation_score
from tausid.training.protocols import Split
from tausid.training.setup import settle, start_problem

import tausid
from tausid.training import everything
from tausid.training.result import FoldCurves

SETTINGS = {"nx": 2, "hidden": (3,), "activation": "tanh", "network": "mlp", "nonlinear_start": "random",
            "weight_range": 0.5, "finish_parts": "both"}  # fmt: skip
QUICK = {"seed": 0, "nx": 2, "hidden": (3,), "activation": "tanh", "network": "mlp", "finish_parts": "both", "folds": 2,
         "finish_steps": 3, "progress": None}  # fmt: skip


@pytest.fixture(scope="module")
def problem() -> Problem:
    record = wiener_record(80)
    return start_problem(settle(tausid.recipe_config(**SETTINGS), [record]), 2.0, Split((record,), ()), None)


def take(problem: Problem, weights, most: int) -> RunState:
    run = dataclasses.replace(start_run(problem), best_weights=weights)
    return finish(problem, run, most=most, parts="both", report=lambda a, b: None, interrupted=threading.Event())


def error_of(problem: Problem, run: RunState) -> float:
    return validation_score(problem.model_with(run.best_weights), problem.split.train)


class Folds:
    """Trials that have been done; counts what is asked of them."""

    done, seconds = 2, 1.0

    def __init__(self, weights) -> None:
        self.found = weights
        self.asked: list[int] = []

    def weights(self, config, k):
        self.asked.append(k)
        return self.found


def choose_after(problem: Problem, folds: Folds, lowest: float) -> Choice:
    """Two folds, of which the second is better, prefer two iterations."""
    scores = ((1.0, 0.6, 0.5), (1.0, 0.5, 0.4))
    return Choice(problem.config, FoldCurves((0, 1, 2), scores, (1.0, 0.6, lowest), 2), folds)


def same_weights(a: RunState, b: RunState) -> bool:
    pairs = zip(jax.tree.leaves(a.best_weights), jax.tree.leaves(b.best_weights), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def test_a_fit_that_is_worse_than_its_folds_begins_again_with_the_best_of_them(problem):
    start, good = start_run(problem), take(problem, start_run(problem).best_weights, 40)
    lowest = error_of(problem, good)
    alone = take(problem, start.best_weights, 2)
    assert error_of(problem, alone) > 2 * everything.ASTRAY * lowest  # two iterations are too few from its own start
    folds, notes = Folds(good.best_weights), []
    done = fit_everything(
        problem, start, choose_after(problem, folds, lowest), lambda u: notes.append(u.note), threading.Event()
    )
    assert (done.from_fold, folds.asked, done.step, done.finished) == (2, [1], 2, True)
    assert same_weights(done, take(problem, good.best_weights, 2))
    assert error_of(problem, done) < 1.01 * lowest
    assert notes[-1] == "lm again, from fold 2, iteration 2 of 2"
    assert done.seconds > done.history[-1].seconds  # those of the first attempt count, too


def test_a_fit_that_is_as_good_as_its_folds_stays(problem):
    start = start_run(problem)
    alone, folds = take(problem, start.best_weights, 2), Folds(None)
    choice = choose_after(problem, folds, error_of(problem, alone) / (0.99 * everything.ASTRAY))
    done = fit_everything(problem, start, choice, lambda u: None, threading.Event())
    assert (done.from_fold, folds.asked) == (0, [])
    assert same_weights(done, alone)


def test_errors_that_are_as_good_as_none_are_not_compared(problem, monkeypatch):
    monkeypatch.setattr(everything, "validation_score", lambda model, records: 1e-4)
    folds = Folds(None)
    done = fit_everything(
        problem, start_run(problem), choose_after(problem, folds, 1e-7), lambda u: None, threading.Event()
    )
    assert (done.from_fold, folds.asked) == (0, [])


def test_where_no_fold_helps_the_first_fit_stays(problem):
    start = start_run(problem)
    folds = Folds(start.best_weights)  # leads to the same end
    done = fit_everything(problem, start, choose_after(problem, folds, 1e-6), lambda u: None, threading.Event())
    assert (done.from_fold, folds.asked) == (0, [1, 0])
    assert same_weights(done, take(problem, start.best_weights, 2))


def test_the_best_of_all_is_kept_told_and_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(everything, "ASTRAY", 0.0)  # nothing is good enough, so that all folds are tried
    record, said = wiener_record(120), []
    result = tausid.fit(record, **{**QUICK, "progress": said.append}, out=tmp_path)
    assert {u.note.split(", ")[1] for u in said if "again" in u.note} == {"from fold 1", "from fold 2"}
    errors = {u.note.rsplit(",", 1)[0]: u.loss for u in said if u.note.startswith("lm")}
    assert len(errors) == 3 and min(errors, key=errors.__getitem__) != "lm"
    assert "from the weights of fold" in result.message
    monkeypatch.setattr(everything, "ASTRAY", np.inf)
    first = tausid.fit(record, **QUICK)
    train = [tausid.evaluate(fit.model, record).total_rmse for fit in (result, first)]
    assert train[0] < train[1] and "from the weights" not in first.message
    again = tausid.fit(record, **QUICK, out=tmp_path, resume=True)
    assert again.message == result.message
    assert tausid.evaluate(again.model, record).total_rmse == train[0]


def test_stopped_in_the_second_attempt_it_resumes_to_the_same_end(tmp_path, monkeypatch):
    monkeypatch.setattr(everything, "ASTRAY", 0.0)
    record = wiener_record(120)
    whole = tausid.fit(record, **QUICK)

    def stop(update):
        if "again" in update.note:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tausid.fit(record, **{**QUICK, "progress": stop}, out=tmp_path)
    resumed = tausid.fit(record, **QUICK, out=tmp_path, resume=True)
    assert resumed.message == whole.message
    assert tausid.evaluate(resumed.model, record).total_rmse == tausid.evaluate(whole.model, record).total_rmse
