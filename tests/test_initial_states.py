"""The estimate of an initial state: out of wrong minima by states seen in training, as before where there are none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from problems import wiener_record

import tausid
from tausid import ConfigError, DataError, Record, recipes
from tausid.engine.choice import Engine
from tausid.engine.compiled import Samples, System
from tausid.engine.integrators import FixedStep
from tausid.engine.library import missing
from tausid.engine.networks import Network
from tausid.model.free_run import estimate_initial_state
from tausid.model.initial import SEEN_STATES, FreeState
from tausid.model.state_estimate import SimulationError
from tausid.model.state_space import StateSpace
from tausid.model.tau import Tau
from tausid.training.resolve import resolve


def quick_fit(records: Record | list[Record], initial_samples: int | str = "auto") -> tausid.Model:
    recipe = recipes.default(nx=2, hidden=(3,), network="mlp", activation="tanh", initial_samples=initial_samples)
    recipe = recipe.change({"trainer.iterations": 3, "holdout": "none"})
    return tausid.fit(records, recipe=recipe, seed=0, progress=None).model


@pytest.fixture(scope="module")
def thirty() -> tausid.Model:
    """A model that estimates an initial state from thirty samples."""
    return quick_fit(wiener_record(100), 30)


def estimate(seen: list[float], y: float, engine: str = "auto") -> float:
    """The state of a model that stays where it is and shows `y = x^3 - 3 x`, from -1.5 on."""
    initial = FreeState(np.zeros((1, 1)), np.array([-1.5]), np.array([[1e-3]]), np.asarray(seen, float)[:, None])
    g = Network(np.array([[-3.0]]), coefficients=np.array([[0.0, 1.0]]), degree=3)
    model = StateSpace(f=Network(np.zeros((1, 2))), g=g, initial=initial, tau=Tau(1.0))
    outputs, steps = np.full((5, 1), y), np.ones(4)
    found = estimate_initial_state(
        model, np.zeros((5, 1)), outputs, steps, FixedStep("euler"), np.array([-1.5]), Engine()
    )
    return float(found[0])


@pytest.mark.parametrize("engine", ["auto", "scan"])
def test_a_wrong_minimum_is_left_for_a_much_lower_one(engine):
    root = float(np.real(np.roots([1.0, 0.0, -3.0, -5.0])[0]))  # of x^3 - 3 x = 5
    assert estimate([0.0] * 4, 5.0, engine) == pytest.approx(-1.0, abs=0.01)  # where the search from -1.5 ends
    assert estimate([-2.0, 0.5, 2.0, 3.5], 5.0, engine) == pytest.approx(root, abs=1e-3)


@pytest.mark.skipif(missing() is not None, reason="no compiled library")
def test_errors_and_their_equations_agree_with_finite_differences():
    rng, network = np.random.default_rng(0), {"hidden": (4,), "activation": "tanh", "weight_range": 0.5, "bias": True}
    f, g = Network.random(rng, 3, 2, **network), Network.random(rng, 3, 1, **network)
    system = System.of(f, g, 0.5, None, FixedStep("rk4"))
    y = np.where(rng.random((30, 1)) < 0.2, np.nan, rng.normal(size=(30, 1)))
    samples = Samples.join([rng.normal(size=(30, 1))], [y], [rng.uniform(0.1, 1.0, 29)])
    tightness, expected = rng.normal(size=(2, 2)), rng.normal(size=2)
    error = SimulationError(system, system.pack(f, g), samples, expected, tightness)
    states = rng.normal(size=(5, 2))
    np.testing.assert_allclose(error(states), [error(state[None])[0] for state in states], rtol=1e-12)
    K, k = error.equations(states)
    slopes = [(error(states + step) - error(states - step)) / 2e-5 for step in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(2 * k, np.transpose(slopes), rtol=1e-6)  # central differences: rounding over the step
    assert np.linalg.eigvalsh(K - tightness.T @ tightness).min() > 0


@pytest.mark.parametrize("engine", ["auto", "scan"])
def test_a_minimum_that_is_about_as_low_does_not_change_the_estimate(engine):
    near = estimate([-1.5] * 3, -1.0, engine)  # x^3 - 3 x = -1 has three roots, of which the guess leads to -1.879
    assert near == pytest.approx(-1.879, abs=1e-2)
    assert estimate([1.5, 0.3, 1.6], -1.0, engine) == near


def test_a_model_keeps_states_of_all_of_its_training_records():
    records = [wiener_record(100), wiener_record(60, seed=1)]
    model = quick_fit(records)
    seen = np.asarray(model.state_space.initial.seen)
    along = np.concatenate(
        [model.simulate(r, x0=x0).x for r, x0 in zip(records, model.state_space.initial.x0, strict=True)]
    )
    assert seen.shape == (SEEN_STATES, 2)
    # Evenly in time, in single precision after training in double.
    np.testing.assert_allclose(seen, along[np.linspace(0, 159, SEEN_STATES).round().astype(int)], atol=1e-3)


@pytest.mark.parametrize(
    ("samples", "seconds", "expected"),
    [
        (1600, 1.0, 30),  # three tau of ten samples
        (1600, 0.1, 20),  # at least 20
        (240, 1.0, 30),  # an eighth of the record at most
        (200, 1.0, 25),
        (100, 1.0, 20),
    ],
)
def test_a_free_initial_state_is_estimated_from_three_tau(samples, seconds, expected):
    record = wiener_record(samples)

    def resolved(recipe: tausid.Recipe, *records: Record) -> int:
        recipe = recipe.change({"holdout": "none", "start": "random"})  # no linear approximation: it would take seconds
        problem = resolve(recipe, records, tau=10 * seconds * record.ts, seed=0).problem
        return problem.recipe.structure.samples_for_initial_state()

    assert resolved(recipes.default(nx=2), record) == expected
    assert resolved(recipes.default(nx=2), wiener_record(3200), record) == expected
    assert resolved(recipes.default(nx=2, initial_samples=17), record) == 17
    assert resolved(recipes.windows(nx=2), record) == 5  # what an encoder sees


def test_as_many_samples_as_the_settings_say_find_the_state_and_are_not_scored(thirty):
    record, model = wiener_record(100), thirty
    score = tausid.evaluate(model, record)
    assert (score.n_initial, score.n_skipped, score.n_scored) == (30, 30, 70)
    # What comes after them says nothing about the state.
    bent = dataclasses.replace(record, y=np.where(np.arange(100)[:, None] < 30, record.y, record.y + 5))
    np.testing.assert_array_equal(model.simulate(bent).x[0], model.simulate(record).x[0])
    bent = dataclasses.replace(record, y=np.where(np.arange(100)[:, None] < 29, record.y, record.y + 5))
    assert np.any(model.simulate(bent).x[0] != model.simulate(record).x[0])
    few = dataclasses.replace(model, structure=dataclasses.replace(model.structure, initial_samples=3))
    assert tausid.evaluate(few, record).n_initial == 10  # 5 nx


def test_half_of_a_short_record_is_left_to_be_simulated(thirty):
    model = thirty
    assert [tausid.evaluate(model, wiener_record(n)).n_initial for n in (80, 60, 50, 41, 25)] == [30, 30, 25, 20, 20]
    with pytest.raises(DataError, match="'wiener' must have at least 21 samples for the initial state; got 20"):
        model.simulate(dataclasses.replace(wiener_record(20), name="wiener"))


def test_the_number_of_samples_is_checked():
    with pytest.raises(ConfigError, match="`initial_samples` must be a whole number of at least 1; got 0"):
        tausid.Structure(initial_samples=0)
