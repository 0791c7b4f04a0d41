"""Where training starts: tau, and the weights from the linear approximation."""

from __future__ import annotations

import dataclasses
import inspect

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from problems import oscillator_record, small_fit, wiener_record

import tausid
from tausid import ConfigError, FixedStep, FromLinear, Random, Record, Structure, Tau, estimate_bla, recipes
from tausid.model.build import build_state_space
from tausid.training.resolve import resolve
from tausid.training.start import find_start


def start_model(records, tau="bla", settings=None, start=None, **structure) -> tausid.Model:
    """The model that training by Adam would start from."""
    start = start or FromLinear(nonlinear="random", weight_range=0.01, bias_range=0.0)
    recipe = recipes.windows(**structure).change({"start": start, "holdout": "none", "trainer.horizon": 20})
    return resolve(recipe.change(settings or {}), records, tau=tau, seed=0).problem.initial_model


def without_nonlinear_part(model: tausid.Model) -> tausid.Model:
    parts = lambda m: (m.f.weights[-1], m.g.weights[-1], m.initial.network.weights[-1])  # noqa: E731
    zeros = [np.zeros_like(w) for w in parts(model.state_space)]
    return dataclasses.replace(model, state_space=eqx.tree_at(parts, model.state_space, zeros))


@pytest.mark.parametrize("hold", ["zero", "first"])
@pytest.mark.parametrize(("nx", "tau"), [(2, "bla"), (4, 0.7), (4, "per state")])
def test_without_its_nonlinear_parts_the_model_is_the_linear_approximation(hold, nx, tau):
    record = wiener_record(300)
    seconds = [0.5 + i for i in range(nx)] if tau == "per state" else tau
    model = without_nonlinear_part(start_model(record, seconds, {"integration.hold": hold}, nx=nx))
    bla = estimate_bla(record, nx=2, hold=hold)
    x0 = np.concatenate([bla.x0[0], np.zeros(nx - 2)])
    simulation = model.simulate(record, x0=x0, integrator=FixedStep("rk4", 8, hold))
    # The issue's own bar; single precision is well below it, and eight substeps make the integration exact to 1e-7.
    np.testing.assert_allclose(simulation.y, bla.simulate(record, bla.x0[0]), atol=1e-5)


def test_the_encoder_starts_as_the_least_squares_map_to_the_linear_states():
    record = oscillator_record(300)
    model = without_nonlinear_part(start_model(record, nx=2, na=4, nb=4))
    bla = estimate_bla(record, nx=2)
    states = bla.simulate_states(record, bla.x0[0])[0]
    start = model.simulate(record)
    # Four past inputs and outputs of a noise-free system of order two determine its state, up to a constant that the
    # map does not have: the means of this record are not an equilibrium, by less than a hundredth.
    np.testing.assert_allclose(start.x[4], states[4], atol=1e-2)


def test_free_initial_states_start_at_those_of_the_linear_approximation():
    records = [wiener_record(200), wiener_record(150, seed=3)]
    recipe = recipes.default(nx=3).change({"holdout": "none"})
    model = resolve(recipe, records, tau="bla", seed=0).problem.initial_model
    bla = estimate_bla(records, nx=2)
    np.testing.assert_allclose(model.state_space.initial.x0, np.pad(bla.x0, ((0, 0), (0, 1))), rtol=1e-5)


@pytest.mark.parametrize("name", ["default", "windows"])
def test_grown_from_zero_the_model_starts_as_the_linear_approximation(name):
    record = wiener_record(300)
    recipe = recipes.NAMES[name](nx=3).change({"start": FromLinear(nonlinear="zero"), "holdout": "none"})
    model = resolve(recipe, record, tau="bla", seed=0).problem.initial_model
    bla = estimate_bla(record, nx=2)
    x0 = np.append(bla.x0[0], 0.0)
    simulated = model.simulate(record, x0=x0, integrator=FixedStep("rk4", 8, "zero"))
    # Single precision; eight substeps make the integration exact to 1e-7.
    np.testing.assert_allclose(simulated.y, bla.simulate(record, bla.x0[0]), atol=2e-5)


@pytest.mark.parametrize("network", ["mlp", "polynomial", "both"])
def test_nonlinear_parts_that_start_at_zero_grow(network):
    structure = Structure(nx=3, hidden=(5,), network=network)
    weights = Random(nonlinear="zero").weights
    model = build_state_space(structure, Tau(2.0), weights, nu=1, ny=1, n_records=1, rng=np.random.default_rng(0))
    z = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)))
    np.testing.assert_allclose(model.f(z), z @ model.f.linear.T, atol=1e-6)
    settings = {"structure.network": network, "start.nonlinear": "zero"}
    trained = small_fit(settings=settings).last_model.state_space
    z = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))
    assert np.abs(np.asarray(trained.f(z) - z @ trained.f.linear.T)).max() > 1e-4


def test_tau_comes_from_the_training_part_by_default():
    record = wiener_record(300)
    recipe = recipes.windows(nx=2).change({"trainer.horizon": 20})
    default = inspect.signature(tausid.fit).parameters["tau"].default
    model = resolve(recipe, record, tau=default, seed=0).problem.initial_model
    estimate = tausid.estimate_tau(record.part(0, 240))
    assert model.tau == pytest.approx(estimate.tau, rel=1e-12)
    assert model.state_space.tau.source == "bla"


def test_an_estimate_can_be_given_as_tau():
    record = wiener_record(300)
    estimate = tausid.estimate_tau(record, method="spectrum")
    assert start_model(record, estimate).tau == estimate.tau


def test_the_order_of_the_approximation_is_at_most_that_of_the_model():
    record = wiener_record(300)
    model = start_model(record, nx=1)
    assert model.state_space.nx == 1
    assert estimate_bla(record, nx="auto").order > 1


def test_a_trained_tau_starts_at_ten_sampling_times():
    tau = find_start("trained", [wiener_record(50)], recipes.windows()).tau
    assert tau.trainable
    assert float(tau.seconds) == pytest.approx(5.0)


def test_a_trained_tau_may_have_one_value_per_state():
    tau = find_start("trained-per-state", [wiener_record(50)], recipes.windows(nx=3)).tau
    np.testing.assert_allclose(tau.start, [5.0, 5.0, 5.0])
    assert tau.trainable


def test_a_trained_tau_can_start_from_the_linear_approximation():
    record = wiener_record(300)
    tau = find_start("bla-trained", [record], recipes.windows()).tau
    assert tau.trainable
    assert tau.now == pytest.approx(find_start("bla", [record], recipes.windows()).tau.now, rel=1e-12)


def test_a_given_tau_is_left_alone():
    tau = Tau(3.0, trainable=True)
    assert find_start(tau, [wiener_record(50)], recipes.windows()).tau is tau


def test_an_unknown_name_for_tau_is_refused():
    with pytest.raises(
        ConfigError,
        match="unknown tau 'blah'; known: bla, bla-trained, spectrum, trained, trained-per-state. Did you mean 'bla'",
    ):
        find_start("blah", [wiener_record(50)], recipes.windows())


def test_training_from_the_linear_start_begins_near_the_linear_error():
    record = wiener_record(400)
    settings = {"trainer.steps": 20, "trainer.horizon": 40}
    random = small_fit(record, settings, tau="bla")
    linear = small_fit(record, settings, tau="bla", start=FromLinear(nonlinear="random", weight_range=0.01))
    assert linear.history[0].loss < 0.3 * random.history[0].loss


def test_a_jittered_record_gives_the_tau_of_its_resampled_one():
    record = wiener_record(100)
    jittered = Record.from_arrays(record.u, record.y, t=record.t + 0.1 * np.random.default_rng(0).random(100))
    tau = find_start("bla", [jittered], recipes.windows()).tau
    assert tau.now == pytest.approx(tausid.estimate_tau(jittered, nx="auto").tau, rel=1e-12)


def test_a_record_that_the_approximation_cannot_use_says_so():
    with pytest.raises(
        tausid.DataError, match=r"records must be long enough.*Or give tau in seconds, or tau='trained'"
    ):
        find_start("bla", [wiener_record(100).part(0, 4)], recipes.windows())
