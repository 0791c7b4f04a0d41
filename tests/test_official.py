"""Official scores: the initial state from the official window alone, every later sample, at the official rate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import tausid
from tausid import ConfigError, Dataset, EnsembleModel, Record, evaluate_official, recipes
from tausid.data.plants import LinearPlant, response, simulate
from tausid.errors import DataError
from tausid.model.official import simulate_window

WINDOW = 20


@dataclass(frozen=True)
class FineLinearPlant(LinearPlant):
    """The same plant on a clock ten times as fast."""

    ts = LinearPlant.ts / 10
    settle = 2.0


@pytest.fixture(scope="module")
def model() -> tausid.Model:
    """A plant that is linear, with the network at zero: the linear start is all there is to find."""
    train = simulate("linear", seed=1, samples=400, noise=1e-3).train
    recipe = recipes.default(nx=3, hidden=(2,), network="mlp", activation="tanh")
    recipe = recipe.change({"trainer.iterations": 2, "holdout": "none"})
    return tausid.fit(train, recipe=recipe, seed=0, progress=None).model


def official(record: Record) -> Dataset:
    return Dataset(train=record, test=record, name="linear", score_skip=WINDOW)


def test_a_model_is_scored_at_the_official_rate_though_it_was_trained_at_another(model):
    record = simulate(FineLinearPlant(), seed=0, samples=1500, noise=0.0).test
    assert model.ts == pytest.approx(10 * record.ts)
    score = evaluate_official(model, official(record)).records[0]
    assert (score.n_skipped, score.n_scored, score.n_initial) == (WINDOW, 1500 - WINDOW, WINDOW)
    # The linear start is exact but for noise of a thousandth of the output's deviation.
    assert score.nrmse["y"] < 0.02


def test_nothing_after_the_window_is_looked_at(model):
    record = simulate("linear", seed=2, samples=200).test
    changed = record.y.copy()
    changed[WINDOW:] += 100.0
    before = simulate_window(model, record, WINDOW).y
    after = simulate_window(model, replace(record, y=changed), WINDOW).y
    np.testing.assert_array_equal(before, after)
    moved = record.y.copy()
    moved[: WINDOW - 1] += 1.0
    assert np.abs(simulate_window(model, replace(record, y=moved), WINDOW).y - before).max() > 1e-2


def test_the_score_is_the_error_of_every_later_sample(model):
    data = official(simulate("linear", seed=2, samples=200).test)
    y = simulate_window(model, data.test, WINDOW).y
    scores = evaluate_official(model, data)
    by_hand = np.sqrt(np.mean((data.test.y[WINDOW:] - y[WINDOW:]) ** 2))
    assert scores.pooled.rmse["y"] == pytest.approx(by_hand, rel=1e-12)


def test_an_ensemble_is_scored_with_a_state_for_each_member(model):
    data = official(simulate("linear", seed=2, samples=200).test)
    other = replace(model, scaling=replace(model.scaling, y_mean=model.scaling.y_mean + 0.1))
    single = [simulate_window(member, data.test, WINDOW).y for member in (model, other)]
    both = EnsembleModel((model, other), (1.0, 1.0))
    found = simulate_window(both, data.test, WINDOW)
    np.testing.assert_allclose(found.y, np.mean(single, axis=0), rtol=1e-12)
    assert evaluate_official(both, data).pooled.n_skipped == WINDOW


def test_an_encoder_that_needs_more_than_the_window_begins_from_zero():
    train = simulate("linear", seed=1, samples=200, noise=1e-3).train
    settings = {"trainer.steps": 5, "structure.na": 30, "structure.nb": 30, "structure.hidden": (4,)}
    encoded = tausid.fit(train, recipe="windows", nx=3, seed=0, settings=settings, progress=None).model
    assert evaluate_official(encoded, official(train)).pooled.n_skipped == WINDOW


def test_a_dataset_without_an_official_window_is_refused(model):
    with pytest.raises(ConfigError, match="must have an official window; dataset 'linear' has none. Score it with"):
        evaluate_official(model, "linear")
    with pytest.raises(DataError, match="must have at least 21 samples"):
        short = simulate("linear", seed=0, samples=20).test
        evaluate_official(model, official(short))


def test_the_response_of_the_finer_plant_is_the_same_at_the_shared_samples():
    u = np.random.default_rng(0).standard_normal(30)
    fine = response(FineLinearPlant(), np.repeat(u, 10))[::10]
    np.testing.assert_allclose(fine, response("linear", u), atol=1e-5)  # steps of order 4
