"""Folds with Adam, which the default recipe has with Levenberg-Marquardt; and the latter with an encoder."""

from __future__ import annotations

import itertools
import math
import signal

import jax
import numpy as np
import pytest
from problems import oscillator_record, small_fit, wiener_record

import tausid
from tausid import ConfigError, Folds, FromLinear, LevenbergMarquardt, Structure, recipes
from tausid.training.holdout import Split, cut_folds
from tausid.training.parts import RandomDynamics
from tausid.training.pooling import pool
from tausid.training.result import FoldCurve, FoldCurves


def same(a: tausid.Model, b: tausid.Model) -> bool:
    pairs = zip(jax.tree.leaves(a.state_space), jax.tree.leaves(b.state_space), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def folds_of(*records: tausid.Record, count: int) -> tuple[Split, ...]:
    """What Adam is tried on, with an encoder that sees five samples."""
    return cut_folds(Split(records, ()), recipes.windows(na=3, nb=5).change({"holdout.count": count}))


def test_folds_hold_out_every_sample_once_and_never_train_on_it():
    record = wiener_record(203)
    scored = []
    for split in folds_of(record, count=4):
        (held_out,), (train,) = split.validation, split.train
        np.testing.assert_array_equal(train.u, record.u)  # so that it is simulated as a whole
        seen = train.t[~np.isnan(train.y[:, 0])]
        assert sorted([*held_out.t, *seen]) == record.t.tolist()
        scored += held_out.t.tolist()
    assert scored == record.t[5:].tolist()  # the first ones give its initial state


def test_folds_of_several_records_hold_out_a_stretch_of_each():
    splits = folds_of(wiener_record(100), wiener_record(60, seed=2), count=2)
    assert [[len(part) for part in split.validation] for split in splits] == [[45, 25], [50, 30]]
    measured = [[int((~np.isnan(part.y)).sum()) for part in split.train] for split in splits]
    assert measured == [[55, 35], [50, 30]]


def test_folds_that_leave_nothing_are_refused():
    with pytest.raises(ConfigError, match="none of 8 parts has"):
        folds_of(wiener_record(48), count=8)


def curve(*scores: tuple[int, float], scored: int = 1) -> FoldCurve:
    steps, errors = zip(*scores, strict=True)
    return FoldCurve(steps, errors, scored, 0.0)


def test_the_step_is_the_one_of_the_lowest_pooled_error():
    first, second = ((10, 3.0), (20, 1.0), (30, 2.0)), ((10, 3.0), (20, 5.0), (30, 2.0))
    found = pool([curve(*first), curve(*second)])
    assert found.steps == (10, 20, 30)
    np.testing.assert_allclose(found.pooled, [3.0, math.sqrt(5), 2.0])
    assert found.chosen == 30
    assert pool([curve(*first, scored=300), curve(*second, scored=100)]).pooled[1] == pytest.approx(5**0.25)


def test_a_fold_that_has_ended_stays_where_it_is_and_one_that_has_diverged_counts():
    ended = pool([curve((0, 4.0), (10, 3.0), (20, 1.0)), curve((0, 4.0), (10, 3.0))])
    assert ended.steps == (0, 10, 20)
    np.testing.assert_allclose(ended.pooled, [4.0, 3.0, math.sqrt(3)])
    lost = pool([curve((10, 3.0), (20, 1.0)), curve((10, 3.0), (20, math.inf))])
    assert lost.chosen == 10 and lost.pooled == pytest.approx((3.0, math.inf))
    # After a recovery validations come at other steps; the latest one counts.
    shifted = pool([curve((10, 3.0), (20, 2.0)), curve((10, 3.0), (15, 2.0), (25, 9.0))])
    assert shifted.steps == (10, 15, 20, 25)
    np.testing.assert_allclose(shifted.pooled, [3.0, math.sqrt(6), 2.0, math.sqrt(18)])
    assert shifted.chosen == 20
    assert FoldCurves((), (), (), 0).lowest == math.inf


def test_folds_choose_the_steps_of_one_fit_on_everything_and_resume(tmp_path):
    seen = []
    record = wiener_record(200)
    settings = {"trainer.learning_rate": 2e-2, "trainer.validate_every": 10}
    result = small_fit(record, settings, holdout=Folds(2), progress=seen.append)
    curves = result.folds
    assert curves.steps == (0, 10, 20, 30, 40, 50, 60)
    assert result.steps == curves.chosen == curves.steps[int(np.argmin(curves.pooled))] > 0
    assert result.message.startswith(f"2 folds chose {curves.chosen} steps")
    assert [row.validation for row in result.history] == [curves.at(row.step) for row in result.history]
    notes = {update.note.rpartition(", ")[2] for update in seen}  # a slow fold is told of several times
    assert {"fold 1 of 2", "fold 2 of 2"} < notes and len(notes) == 3  # and the final fit
    assert result.model.provenance["folds"]["chosen"] == curves.chosen
    # The final fit is that on everything without validation, with the schedule of all steps.
    losses = []

    def stop_there(update):
        losses.append(update.loss)
        if update.step == max(10, curves.chosen - 10):
            signal.raise_signal(signal.SIGINT)

    whole = small_fit(record, settings, holdout=None, progress=stop_there)
    assert whole.steps == curves.chosen
    assert same(result.model, whole.model)
    assert [row.loss for row in result.history] == losses

    def stop(update):
        if "fold 1 of 2" in update.note:
            signal.raise_signal(signal.SIGINT)

    first = small_fit(record, settings, holdout=Folds(2), progress=stop, out=tmp_path)
    assert (first.status, first.steps) == ("interrupted", 60)  # the model of fold 1 is the best one so far
    again = small_fit(record, settings, holdout=Folds(2), out=tmp_path, resume=True)
    assert same(again.model, result.model)
    assert again.folds == curves
    with pytest.raises(ConfigError, match="`out` must be a folder without a run"):
        small_fit(record, settings, holdout=Folds(2), out=tmp_path)


# Levenberg-Marquardt with an encoder


def test_with_an_encoder_a_linear_plant_reaches_the_floor_of_linear_least_squares():
    record = oscillator_record(300, noise=0.05)
    structure = Structure(nx=2, network="polynomial", degree=1, initial_state="encoder")
    trainer = LevenbergMarquardt(iterations=60)
    result = tausid.fit(
        record, seed=0, tau=2.0, structure=structure, start=RandomDynamics(), trainer=trainer, holdout=None,
        settings={"integration.substeps": 2}, progress=None,
    )  # fmt: skip
    floor = float(tausid.estimate_bla(record, nx=2).rmse[0])
    # The linear fit has a free initial state and five more samples; the encoder sees noise: within one percent.
    assert tausid.evaluate(result.model, record).rmse["y"] < 1.01 * floor
    losses = [row.loss for row in result.history]
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(losses))
    assert result.message.startswith(f"{result.steps} iteration")


def test_with_an_encoder_it_improves_on_adam_where_a_plant_is_nonlinear(tmp_path):
    record, fresh, held_out = wiener_record(400), wiener_record(300, seed=7), wiener_record(200, seed=5)
    structure = Structure(nx=2, hidden=(6,), activation="tanh", initial_state="encoder")
    parts = {"structure": structure, "start": FromLinear(nonlinear="random", weight_range=0.3), "progress": None}
    adam = tausid.Adam(steps=300, horizon=40, batch=16, learning_rate=1e-2)
    by_adam = tausid.fit(record, seed=0, tau=2.0, validation=held_out, **parts, trainer=adam)
    second = {**parts, "trainer": LevenbergMarquardt(iterations=12), "search": "fixed", "out": tmp_path}
    by_lm = tausid.fit(record, seed=0, tau=2.0, validation=held_out, **second)
    assert by_lm.best_step > 0
    assert tausid.evaluate(by_lm.model, fresh).rmse["y"] < 0.7 * tausid.evaluate(by_adam.model, fresh).rmse["y"]
    again = tausid.fit(record, seed=0, tau=2.0, validation=held_out, **second, resume=True)
    assert same(again.model, by_lm.model)
    assert again.steps == by_lm.steps
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(by_lm.model.state_space.f)} == {"float64"}
