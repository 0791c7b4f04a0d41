"""The estimate of an initial state: by closed forms, near states seen in training, out of wrong minima."""

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
from tausid.model.free_run import estimate_initial_state, run
from tausid.model.initial import SEEN_STATES, FreeState
from tausid.model.state_estimate import SimulationError
from tausid.model.state_priors import Priors, _goes_on
from tausid.model.state_space import StateSpace
from tausid.model.tau import Tau
from tausid.training.full_error import expectation, spread_out
from tausid.training.problem import validation_score
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
        model, np.zeros((5, 1)), outputs, steps, FixedStep("euler"), np.array([-1.5]), Engine(engine)
    )
    return float(found[0])


@pytest.mark.parametrize("engine", ["auto", "scan"])
def test_a_wrong_minimum_is_left_for_a_much_lower_one(engine):
    root = float(np.real(np.roots([1.0, 0.0, -3.0, -5.0])[0]))  # of x^3 - 3 x = 5
    assert estimate([0.0] * 4, 5.0, engine) == pytest.approx(-1.0, abs=0.01)  # where the search from -1.5 ends
    assert estimate([-2.0, 0.5, 2.0, 3.5], 5.0, engine) == pytest.approx(root, abs=1e-3)


@pytest.mark.skipif(missing() is not None, reason="no compiled library")
@pytest.mark.parametrize("nu", [0, 1])
def test_errors_and_their_equations_agree_with_finite_differences(nu):
    rng, network = np.random.default_rng(0), {"hidden": (4,), "activation": "tanh", "weight_range": 0.5, "bias": True}
    f, g = Network.random(rng, 2 + nu, 2, **network), Network.random(rng, 2 + nu, 1, **network)
    system = System.of(f, g, 0.5, None, FixedStep("rk4"))
    y = np.where(rng.random((30, 1)) < 0.2, np.nan, rng.normal(size=(30, 1)))
    samples = Samples.join([rng.normal(size=(30, nu))], [y], [rng.uniform(0.1, 1.0, 29)])
    tightness, expected = rng.normal(size=(5, 2, 2)), rng.normal(size=(5, 2))
    error = SimulationError(system, system.pack(f, g), samples)
    states = rng.normal(size=(5, 2))
    prior = Priors(expected, expected, tightness, np.zeros(5), 1.0, np.zeros((2, 2)))
    alone = [error(states[[i]], prior.rows(np.array([i])))[0] for i in range(5)]
    np.testing.assert_allclose(error(states, prior), alone, rtol=1e-12)
    K, k = error.equations(states, prior)
    slopes = [(error(states + step, prior) - error(states - step, prior)) / 2e-5 for step in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(2 * k, np.transpose(slopes), rtol=1e-6)  # central differences: rounding over the step
    assert np.linalg.eigvalsh(K - np.swapaxes(tightness, 1, 2) @ tightness).min() > 0


@pytest.mark.parametrize("engine", ["auto", "scan"])
def test_of_minima_that_are_as_low_that_near_states_seen_is_taken(engine):
    # x^3 - 3 x = -1 has three roots, of which the guess leads to the first.
    assert estimate([0.0] * 3, -1.0, engine) == pytest.approx(-1.879, abs=1e-2)
    assert estimate([-2.0, -1.8, -1.7], -1.0, engine) == pytest.approx(-1.879, abs=1e-2)
    assert estimate([1.4, 1.6, 1.7], -1.0, engine) == pytest.approx(1.532, abs=1e-2)


# Two coupled oscillators with the position of the first as output: three states that the first samples hardly show.
CHAIN = np.array([[0.0, 1, 0, 0], [-2, -0.2, 1, 0.1], [0, 0, 0, 1], [1, 0.1, -1, -0.2]])
STEP, NOISE = 0.05, 1e-3


def chain(initial: FreeState) -> StateSpace:
    f = Network(np.hstack([CHAIN, [[0.0], [0], [0], [1]]]))
    return StateSpace(f=f, g=Network(np.array([[1.0, 0, 0, 0, 0]])), initial=initial, tau=Tau(1.0))


def run_chain(x0: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nothing = FreeState.unknown(np.zeros((0, 4)))
    return run(chain(nothing), x0, u, np.full(len(u) - 1, STEP), FixedStep("rk4"), Engine())


def estimate_chain(initial: FreeState, u: np.ndarray, y: np.ndarray, engine: str = "auto") -> np.ndarray:
    steps = np.full(len(u) - 1, STEP)
    return estimate_initial_state(
        chain(initial), u, y, steps, FixedStep("rk4"), np.asarray(initial.expected), Engine(engine)
    )


def without_seen(initial: FreeState) -> FreeState:
    return dataclasses.replace(initial, seen=np.zeros_like(initial.seen))


@pytest.mark.parametrize("engine", ["auto", "scan"])
@pytest.mark.parametrize("window", [2, 10])
def test_few_samples_find_a_state_on_the_curve_of_the_training_states(window, engine):
    rng, time = np.random.default_rng(0), STEP * np.arange(4000)
    u = (np.sin(time) + np.sin(2.0 * time + 1.0))[:, None]  # with a period of 2 pi
    x, y = run_chain(np.zeros(4), u)
    x, y, u = x[2000:], y[2000:] + NOISE * rng.standard_normal((2000, 1)), u[2000:]  # settled
    initial = FreeState(x[:1], *expectation(x[:1000], NOISE), spread_out([x[:1000]]))
    errors, scale = [], x.std(axis=0)
    for start in range(1000, 1900, 90 if engine == "auto" else 450):
        here = slice(start, start + window)
        found = [estimate_chain(known, u[here], y[here], engine) for known in (initial, without_seen(initial))]
        errors.append([np.linalg.norm((state - x[start]) / scale) for state in found])
    ours, normal = np.sqrt(np.mean(np.square(errors), axis=0))
    assert ours < 0.3 * normal  # 128 states along 8 periods: off by the chords between them, some 0.05 of the deviation


def test_a_model_is_not_judged_with_the_help_of_its_own_states():
    """Two samples do not show four states. That a part of the training record begins where the model has been says
    nothing of new records: the score is that of the distribution of all states."""
    u = np.random.default_rng(0).standard_normal((600, 1)).repeat(10, axis=0)[:600]
    x, y = run_chain(np.zeros(4), u)
    initial = FreeState(x[:1], *expectation(x, NOISE), spread_out([x]))
    found, of_all, judged = (
        estimate_chain(known, u[300:302], y[300:302])
        for known in (initial, without_seen(initial), dataclasses.replace(initial, near_seen=False))
    )
    np.testing.assert_allclose(judged, of_all, rtol=1e-3, atol=1e-3)  # other starts, the same minimum
    scale = x.std(axis=0)
    assert np.linalg.norm((found - x[300]) / scale) < 0.5 * np.linalg.norm((judged - x[300]) / scale)

    model = quick_fit(wiener_record(200))
    part = wiener_record(200).part(100, 200)
    free = model.state_space.initial
    plain = dataclasses.replace(free, near_seen=False)
    as_new = dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, initial=plain))
    error = as_new.simulate(part).y[20:] - part.y[20:]
    score = validation_score(model, [part], output_weights=None)
    assert score == pytest.approx(np.sqrt(np.mean(error**2)) / model.scaling.y_std[0], rel=1e-9)


@pytest.mark.parametrize(("window", "factor"), [(5, 1.5), (100, 1.05)])
def test_of_states_of_a_normal_distribution_the_estimate_is_about_the_best_there_is(window, factor):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    states = rng.normal(size=(5000, 4)) @ root.T
    known = FreeState(states, *expectation(states, NOISE), spread_out(list(states[:, None])))
    u = rng.normal(size=(window, 1))
    forced = run_chain(np.zeros(4), u)[1]
    seen = np.hstack([run_chain(unit, 0 * u)[1] for unit in np.eye(4)])  # dy/dx0
    inverse = np.linalg.inv(seen.T @ seen + known.tightness.T @ known.tightness)
    errors = []
    for x0 in rng.normal(size=(60, 4)) @ root.T:
        y = run_chain(x0, u)[1] + NOISE * rng.standard_normal((window, 1))
        best = inverse @ (seen.T @ (y - forced)[:, 0] + known.tightness.T @ known.tightness @ known.expected)
        np.testing.assert_allclose(estimate_chain(without_seen(known), u, y), best, atol=1e-3 * np.abs(best).max())
        errors.append([np.linalg.norm(known.tightness @ (x - x0)) for x in (best, estimate_chain(known, u, y))])
    best, ours = np.sqrt(np.mean(np.square(errors), axis=0))
    assert ours < factor * best  # another distribution than the true one costs something where samples are few


def test_curves_do_not_go_on_from_record_to_record():
    records = [np.random.default_rng(i).normal(size=(n, 2)) for i, n in enumerate((300, 77, 150))]
    seen = spread_out(records)
    firsts = [np.flatnonzero((seen == record[0]).all(axis=1)) for record in records]
    assert [len(rows) for rows in firsts] == [1, 1, 1]
    ends = np.flatnonzero(~_goes_on(FreeState(np.stack([r[0] for r in records]), np.zeros(2), np.eye(2), seen)))
    np.testing.assert_array_equal(ends, [firsts[1][0] - 1, firsts[2][0] - 1, SEEN_STATES - 1])


def test_a_file_with_fewer_states_seen_is_read(thirty, tmp_path):
    initial = thirty.state_space.initial
    older = dataclasses.replace(initial, seen=initial.seen[::2])
    model = dataclasses.replace(thirty, state_space=dataclasses.replace(thirty.state_space, initial=older))
    read = tausid.load_model(model.save(tmp_path / "older.safetensors"))
    np.testing.assert_array_equal(read.state_space.initial.seen, older.seen)
    record = wiener_record(100)
    np.testing.assert_array_equal(read.simulate(record).y, model.simulate(record).y)


def test_a_model_keeps_states_of_all_of_its_training_records():
    records = [wiener_record(100), wiener_record(60, seed=1)]
    model = quick_fit(records)
    seen = np.asarray(model.state_space.initial.seen)
    along = np.concatenate(
        [model.simulate(r, x0=x0).x for r, x0 in zip(records, model.state_space.initial.x0, strict=True)]
    )
    assert seen.shape == (SEEN_STATES, 2)
    rows = np.linspace(0, 159, SEEN_STATES).round().astype(int)
    assert 100 in rows  # the first sample of the second record
    # Evenly in time, in single precision after training in double.
    np.testing.assert_allclose(seen, along[rows], atol=1e-3)


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
