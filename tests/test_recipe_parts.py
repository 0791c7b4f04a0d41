"""Folds, the second-order finish, and the choice of a size."""

from __future__ import annotations

import dataclasses
import itertools
import math
import signal

import jax
import numpy as np
import pytest
from problems import SMALL, oscillator_record, small_fit, wiener_record
from tausid.training.folds import cut_folds, pool
from tausid.training.loop import RunState

import tausid
from tausid import ConfigError
from tausid.training import HistoryRow


def same(a: tausid.Model, b: tausid.Model) -> bool:
    pairs = zip(jax.tree.leaves(a.state_space), jax.tree.leaves(b.state_space), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def test_folds_hold_out_every_sample_once_and_never_train_on_it():
    record = wiener_record(203)
    config = tausid.recipe_config("windows", folds=4, horizon=20, na=3, nb=5)
    scored = []
    for split in cut_folds([record], config):
        (held_out,) = split.validation
        first = 0 if held_out.t[0] == record.t[0] else 5  # the samples before a stretch give its initial state
        stretch = set(held_out.t[first:])
        assert not stretch & {t for part in split.train for t in part.t}
        assert stretch | {t for part in split.train for t in part.t} == set(record.t)
        scored += sorted(stretch)
    assert scored == record.t.tolist()


def test_folds_of_several_records_hold_out_a_stretch_of_each():
    records = [wiener_record(100), wiener_record(60, seed=2)]
    splits = cut_folds(records, tausid.recipe_config("windows", folds=2, horizon=20))
    assert [[len(part) for part in split.train] for split in splits] == [[50, 30], [50, 30]]
    assert [[len(part) for part in split.validation] for split in splits] == [[50, 30], [55, 35]]


def test_folds_that_leave_nothing_are_refused():
    with pytest.raises(ConfigError, match="`folds` must leave stretches to train on"):
        cut_folds([wiener_record(50)], tausid.recipe_config("windows", folds=2, horizon=40))


@pytest.mark.parametrize(
    "settings",
    [
        {"folds": 1},
        {"folds": 2, "protocol": "paper"},
    ],
)
def test_folds_are_checked(settings):
    with pytest.raises(ConfigError, match="`folds` must be 0, or 2 and more"):
        tausid.recipe_config("windows", **settings)
    with pytest.raises(ConfigError, match="`max_steps` must be 0 where folds choose the iterations"):
        tausid.recipe_config("windows", folds=2, finish="lm")
    with pytest.raises(ConfigError, match="`folds` must have no validation records"):
        small_fit(folds=2, validation=wiener_record(60))


def curve(*scores: tuple[int, float], status: str = "running") -> RunState:
    rows = tuple(HistoryRow(step, 0.1, score, 1e-3, 2.0, 0.0) for step, score in scores)
    state = dataclasses.make_dataclass("State", ["history", "status", "step"])
    return state(rows, status, rows[-1].step if rows else 0)


def test_the_step_is_the_one_of_the_lowest_pooled_error():
    runs = [curve((10, 3.0), (20, 1.0), (30, 2.0)), curve((10, 3.0), (20, 5.0), (30, 2.0))]
    found = pool(runs, [100, 100])
    assert found.steps == (10, 20, 30)
    np.testing.assert_allclose(found.pooled, [3.0, math.sqrt(5), 2.0])
    assert found.chosen == 30
    assert pool(runs, [300, 100]).pooled[1] == pytest.approx(5**0.25)


def test_a_fold_that_is_behind_or_has_diverged_counts():
    assert pool([curve((10, 3.0), (20, 1.0)), curve((10, 3.0))], [1, 1]).steps == (10,)
    lost = pool([curve((10, 3.0), (20, 1.0)), curve((10, 3.0), status="diverged")], [1, 1])
    assert lost.chosen == 10 and lost.pooled == pytest.approx((3.0, math.inf))
    # After a recovery validations come at other steps; the latest one counts.
    shifted = pool([curve((10, 3.0), (20, 2.0)), curve((10, 3.0), (15, 2.0), (25, 9.0))], [1, 1])
    assert shifted.steps == (10, 15, 20)
    assert shifted.chosen == 20
    assert pool([curve(), curve()], [1, 1]).chosen == 0


def test_folds_choose_the_steps_of_one_fit_on_everything_and_resume(tmp_path):
    seen = []
    record = wiener_record(200)
    result = small_fit(record, folds=2, learning_rate=2e-2, progress=seen.append, validate_every=10)
    curves = result.folds
    assert curves.steps == (10, 20, 30, 40, 50, 60)
    assert result.steps == curves.chosen == curves.steps[int(np.argmin(curves.pooled))]
    assert result.message.startswith(f"2 folds chose {curves.chosen} steps")
    assert [row.validation for row in result.history] == list(curves.pooled[: len(result.history)])
    assert {update.note for update in seen} == {"fold 1 of 2", "fold 2 of 2", ""}
    assert result.model.provenance["folds"]["chosen"] == curves.chosen
    # The final fit is that on everything without validation, with the schedule of all steps.
    whole = small_fit(record, validation_fraction=0.0, learning_rate=2e-2, validate_every=10)
    if curves.chosen == 60:
        assert same(result.model, whole.model)
    assert result.history[0].loss == whole.history[0].loss

    def stop(update):
        if update.step == 30:
            signal.raise_signal(signal.SIGINT)

    settings = {"folds": 2, "learning_rate": 2e-2, "validate_every": 10, "out": tmp_path}
    first = small_fit(record, **settings, progress=stop)
    assert first.status == "interrupted"
    again = small_fit(record, **settings, resume=True)
    assert same(again.model, result.model)
    assert again.folds == curves
    with pytest.raises(ConfigError, match="`out` must be a folder without a run"):
        small_fit(record, **settings)


def test_folds_stop_together_when_their_pooled_error_falls_no_more():
    result = small_fit(folds=2, learning_rate=1e-7, max_steps=400, patience=60)
    assert result.folds.steps[-1] - result.folds.chosen == 60


LINEAR = {
    "recipe": "windows", "tau": 2.0, "seed": 0, "nx": 2, "network": "polynomial", "degree": 1, "horizon": 50,
    "validation_fraction": 0.0, "weight_decay": 0.0, "max_steps": 100, "learning_rate": 1e-2, "substeps": 2,
    "progress": None,
}  # fmt: skip


def test_the_finish_reaches_the_floor_of_linear_least_squares():
    record = oscillator_record(300, noise=0.05)
    result = tausid.fit(record, **LINEAR, finish="lm", finish_steps=60)
    floor = float(tausid.estimate_bla(record, nx=2).rmse[0])
    # The linear fit has a free initial state and eight more samples; the encoder sees noise: within one percent.
    assert tausid.evaluate(result.model, record).rmse["y"] < 1.01 * floor
    losses = [row.loss for row in result.history[2:]]
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(losses))
    assert "iterations of lm followed" in result.message


def test_the_finish_improves_on_adam_where_it_is_nonlinear(tmp_path):
    record, fresh = wiener_record(400), wiener_record(300, seed=7)
    settings = {
        **SMALL, "tau": 2.0, "seed": 0, "hidden": (6,), "activation": "tanh", "weight_range": 0.3, "horizon": 40,
        "max_steps": 300, "learning_rate": 1e-2, "validation": wiener_record(200, seed=5),
    }  # fmt: skip
    adam = tausid.fit(record, **settings)
    finished = tausid.fit(record, **settings, finish="lm", finish_steps=12, out=tmp_path)
    assert finished.history[: len(adam.history)][-1].validation == adam.history[-1].validation
    assert finished.best_step > 300
    assert tausid.evaluate(finished.model, fresh).rmse["y"] < 0.7 * tausid.evaluate(adam.model, fresh).rmse["y"]
    again = tausid.fit(record, **settings, finish="lm", finish_steps=12, out=tmp_path, resume=True)
    assert same(again.model, finished.model)
    assert again.steps == finished.steps
    leaves = jax.tree.leaves(finished.model.state_space.f)
    assert {str(leaf.dtype) for leaf in leaves} == {"float32"}


def test_the_smallest_size_within_the_tolerance_is_chosen():
    record = wiener_record(200)
    settings = {
        "recipe": "windows",
        "tau": 2.0,
        "horizon": 20,
        "batch": 16,
        "max_steps": 100,
        "progress": None,
        "learning_rate": 1e-2,
    }
    tight = tausid.choose_size(record, nx=[1, 2], hidden=[[4]], seed=0, tolerance=0.0, **settings)
    best = min(tight.rows, key=lambda row: row.error)
    assert (tight.nx, tight.hidden) == (best.nx, best.hidden)
    assert tight.nx == 2  # the plant is an oscillator
    direct = tausid.fit(record, nx=2, hidden=[4], seed=0, **settings)
    assert tight.rows[1].error == min(row.validation for row in direct.history)
    loose = tausid.choose_size(record, nx=[1, 2], hidden=[[4]], seed=0, tolerance=100.0, **settings)
    assert loose.nx == 1


def test_sizes_that_cannot_be_compared_are_refused():
    with pytest.raises(ConfigError, match="must have a size to try"):
        tausid.choose_size(wiener_record(200), nx=[], hidden=[[4]], seed=0)
    with pytest.raises(ConfigError, match="held-out free run that stays finite"):
        tausid.choose_size(
            wiener_record(200), nx=[1], hidden=[[2]], seed=0, recipe="windows", tau=2.0, horizon=20, max_steps=1,
            progress=None, validation_fraction=0.0,
        )  # fmt: skip
