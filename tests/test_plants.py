"""Whole identifications of plants that are difficult in different ways, judged by their noise floors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from problems import PLANTS, Plant, multisine, oscillator_at

import tausid
from tausid import FromLinear, Random, Record, Structure

STRUCTURE = Structure(nx=2, hidden=(16,), activation="tanh", initial_state="encoder")
TRAINER = tausid.Adam(batch=32, weight_decay=0.0, validate_every=100)
LINEAR = FromLinear(nonlinear="random", weight_range=0.3, bias_range=0.0)


def fit(records, settings: dict[str, Any], **arguments) -> tausid.FitResult:
    """A training by Adam with some settings by their keys, and `tau`, which is none."""
    parts = {"start": Random(weight_range=0.3), "structure": STRUCTURE, "trainer": TRAINER}
    changed = {**parts, **settings}
    tau = changed.pop("tau", "bla")
    return tausid.fit(records, recipe="windows", seed=0, tau=tau, settings=changed, progress=None, **arguments)


@dataclass(frozen=True)
class Case:
    """How a plant is identified, and by what factor of its noise floor the free run may miss: at the end, and early."""

    factor: float
    early: float
    settings: dict[str, Any] = field(default_factory=dict)
    records: int = 1
    samples: int = 1000
    early_steps: int = 300


# Factors have a margin of a quarter to a half over what was found: seeds and processors differ by less.
CASES = {
    "autonomous": Case(
        2.0,
        2.0,
        {"start.A": "zero-mean", "trainer.horizon": 100, "structure.na": 10, "trainer.learning_rate": 1e-2},
        records=5,
        samples=200,
    ),
    "static": Case(1.2, 6.0, {"structure.nx": 1, "tau": 1.0, "trainer.horizon": 20, "trainer.learning_rate": 1e-2}),
    "integrator": Case(
        3.0,
        11.0,
        {
            "start": LINEAR,
            "structure.na": 10,
            "structure.nb": 10,
            "trainer.horizon": 100,
            "trainer.learning_rate": 5e-3,
        },
    ),
    "lightly damped": Case(
        2.5,
        10.0,
        {"start": LINEAR, "structure.na": 8, "structure.nb": 8, "trainer.horizon": 100, "trainer.learning_rate": 2e-3},
        early_steps=1000,
    ),
    "stiff": Case(
        1.5, 2.0, {"start": LINEAR, "integration.substeps": 8, "trainer.horizon": 50, "trainer.learning_rate": 1e-2}
    ),
}


def identify(plant: Plant, case: Case, steps: int) -> float:
    """The RMSE of a free run over a new record, in units of the plant's noise, with a refined initial state."""
    train = [plant.record(case.samples, seed=seed, name=f"train {seed}") for seed in range(case.records)]
    held_out = plant.record(200, seed=50)
    result = fit(train, {**case.settings, "trainer.steps": steps}, validation=held_out)
    test = plant.record(300, seed=70)
    return tausid.evaluate(result.model, test, x0="refine").rmse["y"] / plant.noise


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_is_identified_roughly_in_a_few_steps(name):
    error = identify(PLANTS[name], CASES[name], CASES[name].early_steps)
    # The noise floor is 1; a model that knows nothing is off by 20 to 70 of it.
    assert error < CASES[name].early


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_is_identified_to_its_noise_floor(name):
    assert identify(PLANTS[name], CASES[name], 3000) < CASES[name].factor


# A clock with jitter and lost samples


def irregular_clock(samples: int, ts: float, *, dropped: float, jitter: float, seed: int) -> np.ndarray:
    """A regular clock with jitter, of which samples are lost."""
    rng = np.random.default_rng(seed)
    t = ts * (np.arange(samples) + jitter * rng.uniform(-0.5, 0.5, samples))
    return t[np.sort(rng.permutation(samples)[: round(samples * (1.0 - dropped))])]


def wiener_at(t: np.ndarray, *, seed: int, noise: float = 0.02) -> Record:
    """The oscillator behind a saturation, driven by a smooth signal that is known at the samples only."""
    u, x = oscillator_at(t, seed=seed)
    y = np.tanh(1.5 * x) + noise * np.random.default_rng(seed + 1).standard_normal(len(t))
    return Record.from_arrays(u, y, t=t, name="wiener")


def error_of_fit(t: np.ndarray, steps: int) -> float:
    """RMSE of a free run over a regular record of the same plant."""
    settings = {"start": LINEAR, "integration.hold": "first", "trainer.horizon": 60, "trainer.learning_rate": 5e-3}
    result = fit(wiener_at(t, seed=0), {**settings, "trainer.steps": steps})
    return tausid.evaluate(result.model, wiener_at(0.5 * np.arange(500), seed=9)).rmse["y"]


def compare(steps: int) -> float:
    """How many times larger the error is with 30 % of the samples lost and 20 % jitter."""
    some = irregular_clock(1200, 0.5, dropped=0.3, jitter=0.2, seed=1)
    return error_of_fit(some, steps) / error_of_fit(0.5 * np.arange(1200), steps)


def test_a_jittered_clock_with_lost_samples_trains_as_well_early_on():
    # Both are far from converged here, and differ by the windows that they drew.
    assert compare(300) < 1.5


@pytest.mark.slow
def test_a_jittered_clock_with_lost_samples_is_as_good_as_a_regular_one():
    assert compare(6000) < 1.25


def test_the_irregular_clock_has_the_jitter_and_losses_that_it_says():
    t = irregular_clock(1000, 0.5, dropped=0.3, jitter=0.2, seed=0)
    assert len(t) == 700
    steps = np.diff(t)
    assert np.median(steps) == pytest.approx(0.5, rel=0.1)  # most steps are whole, but for the jitter
    assert steps.min() > 0.35 and steps.max() > 1.4


def test_the_plant_at_any_times_is_the_plant_at_regular_ones():
    regular = 0.5 * np.arange(100)
    u, x = oscillator_at(regular, seed=3)
    some = np.sort(np.random.default_rng(0).choice(100, 40, replace=False))
    u_some, x_some = oscillator_at(regular[some], seed=3)
    np.testing.assert_allclose(u_some, u[some], atol=1e-12)
    np.testing.assert_allclose(x_some, x[some], atol=1e-12)
    assert np.std(multisine(100, lines=5, seed=0)) == pytest.approx(1.0)
