from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from problems import OSCILLATOR_A, OSCILLATOR_B, oscillator_record, wiener_record
from scipy.linalg import expm

import tausid
from tausid import ConfigError, DataError, DivergenceError, FixedStep, Record, Scaling, StorageError, Tau
from tausid.models import build_state_space
from tausid.simulation import Model

TAU = 3.0


def make_model(record: Record, **settings) -> Model:
    config = tausid.recipe_config(**{"nx": 2, "hidden": (8,), "weight_range": 0.3, **settings})
    space = build_state_space(
        config, Tau(TAU), nu=record.nu, ny=record.ny, n_records=1, rng=np.random.default_rng(config.seed)
    )
    return Model(
        state_space=space,
        scaling=Scaling.from_records(record),
        integrator=FixedStep(config.stepper, config.substeps, config.hold),
        ts=record.ts,
        config=config,
        input_names=record.input_names,
        output_names=record.output_names,
        input_units=record.input_units,
        output_units=record.output_units,
    )


def true_oscillator(record: Record, **settings) -> Model:
    """A model whose weights are the oscillator itself: in physical units up to the scaling of u and y."""
    model = make_model(record, network="polynomial", degree=1, **settings)
    s = model.scaling
    # dx/dt = A x + B (u_mean + u_std v), y = x1: the polynomial has no constant, so the record must have none.
    offset_free = dataclasses.replace(s, u_mean=np.zeros(1), y_mean=np.zeros(1))
    f = TAU * np.hstack([OSCILLATOR_A, OSCILLATOR_B * s.u_std])
    g = np.array([[1.0 / s.y_std[0], 0.0, 0.0]])
    space = eqx.tree_at(lambda m: (m.f.linear, m.g.linear), model.state_space, (jnp.asarray(f), jnp.asarray(g)))
    return dataclasses.replace(model, state_space=space, scaling=offset_free)


@pytest.mark.scan
def test_the_true_weights_simulate_the_true_response():
    record = oscillator_record()
    simulation = true_oscillator(record).simulate(record, x0=np.zeros(2), integrator=FixedStep("rk4", 4))
    assert simulation.n_skipped == 0
    # Single precision over 300 steps; the response has unit size.
    np.testing.assert_allclose(simulation.y, record.y, atol=2e-5)


@pytest.mark.parametrize("dt", [0.5, 0.25, 0.1, 0.3, 1.7])
def test_another_step_size_gives_the_same_trajectory_between_the_samples(dt):
    record = oscillator_record(samples=40)
    simulation = true_oscillator(record).simulate(record, x0=np.zeros(2), dt=dt, integrator=FixedStep("rk4", 8))
    np.testing.assert_allclose(np.diff(simulation.t), dt, rtol=1e-9)
    assert record.t[-1] - simulation.t[-1] < dt
    # The exact response to the zero-order-held input at these times, by the matrix exponential.
    augmented = np.zeros((3, 3))
    augmented[:2, :2], augmented[:2, 2:] = OSCILLATOR_A, OSCILLATOR_B
    expected, x, now = [], np.zeros(2), 0.0
    grid = np.union1d(simulation.t, record.t)
    for t in grid:
        held = record.u[np.searchsorted(record.t, now + 1e-9, side="right") - 1, 0]
        x = (expm(augmented * (t - now)) @ np.append(x, held))[:2]
        now = t
        if np.min(np.abs(simulation.t - t)) < 1e-9:
            expected.append(x[0])
    np.testing.assert_allclose(simulation.y[:, 0], expected, atol=2e-5)  # single precision


@pytest.mark.parametrize("dt", [5e-5, 1e-4])
def test_a_step_far_below_the_training_clock_is_not_shifted(dt):
    record = oscillator_record(samples=40).part(0, 3)
    model = true_oscillator(record)
    simulation = model.simulate(record, x0=np.array([1.0, 0.0]), dt=dt)
    assert len(simulation.t) == round(1.0 / dt) + 1
    assert simulation.x[0, 0] == 1.0
    fine = Record.from_arrays(np.repeat(record.u, 100, axis=0), np.ones(300), ts=dt)
    again = model.simulate(fine, x0=np.array([1.0, 0.0]))
    # Free decay of the oscillator's velocity from rest: -0.25 per second squared, plus 0.25 u.
    expected = dt * np.arange(4) * (-0.25 + 0.25 * record.u[0, 0])
    np.testing.assert_allclose(again.x[:4, 1], expected, rtol=1e-3, atol=1e-9)


def test_another_integrator_keeps_the_models_hold():
    record = wiener_record(80)
    model = make_model(record, hold="first")
    own = model.simulate(record).y
    np.testing.assert_array_equal(model.simulate(record, integrator=FixedStep("rk4", 1)).y, own)
    other = model.simulate(record, integrator=FixedStep("rk4", 1, "zero")).y
    assert np.nanmax(np.abs(other - own)) > 1e-3


def test_channels_in_another_order_are_refused():
    rng = np.random.default_rng(0)
    record = Record.from_arrays(rng.normal(size=(60, 2)), rng.normal(size=60), ts=0.5, input_names=["a", "b"])
    swapped = Record.from_arrays(record.u, record.y, ts=0.5, input_names=["b", "a"])
    renamed = Record.from_arrays(record.u, record.y, ts=0.5, input_names=["c", "d"])
    model = make_model(record)
    with pytest.raises(DataError, match="must be in the model's order, a, b; got b, a"):
        model.simulate(swapped)
    np.testing.assert_array_equal(model.simulate(renamed).y, model.simulate(record).y)


def test_the_encoder_starts_the_simulation_after_the_samples_it_sees():
    record = wiener_record(50)
    model = make_model(record, na=3, nb=2)
    simulation = model.simulate(record)
    assert simulation.n_skipped == 3
    assert np.isnan(simulation.y[:3]).all()
    assert np.isfinite(simulation.y[3:]).all()
    assert simulation.y.shape == record.y.shape
    # Measured outputs after the start must not matter.
    spoiled = Record.from_arrays(record.u, np.where(np.arange(50)[:, None] < 3, record.y, 99.0), ts=record.ts)
    np.testing.assert_array_equal(model.simulate(spoiled).y[3:], simulation.y[3:])


def test_a_record_on_another_clock_gives_the_encoder_the_samples_it_was_trained_with():
    coarse = oscillator_record(samples=60, ts=0.5)
    fine_u = np.repeat(coarse.u, 5, axis=0)[: 59 * 5 + 1]
    fine_y = np.interp(np.arange(len(fine_u)) * 0.1, coarse.t, coarse.y[:, 0])
    fine = Record.from_arrays(fine_u, fine_y, ts=0.1)
    model = make_model(coarse, na=4, nb=4)
    a = model.simulate(coarse, integrator=FixedStep("rk4", 5))
    b = model.simulate(fine)
    assert b.n_skipped == 4 * 5
    np.testing.assert_allclose(b.y[::5][4:], a.y[4:], atol=2e-5)  # single precision


def test_a_free_initial_state_is_found_from_the_first_samples():
    record = oscillator_record(samples=200)
    later = record.part(60, 200)  # not at rest
    model = true_oscillator(record, initial_state="free", horizon="full", substeps=4)
    simulation = model.simulate(later)
    assert simulation.n_skipped == 50
    np.testing.assert_allclose(simulation.y, later.y, atol=1e-4)  # least squares in single precision


@pytest.mark.scan
def test_saving_and_loading_gives_the_same_simulation_bit_for_bit(tmp_path):
    record = wiener_record(80)
    for settings in (
        {},
        {"initial_state": "free", "horizon": "full"},
        {"network": "polynomial", "weight_range": 0.01},
        {"hold": ("first",), "dae_weight": 1.0},
    ):
        model = make_model(record, **settings)
        loaded = tausid.load_model(model.save(tmp_path / "m.safetensors"))
        np.testing.assert_array_equal(loaded.simulate(record).y, model.simulate(record).y)
        assert loaded.config == model.config
        assert loaded.integrator == model.integrator
        assert (loaded.tau, loaded.ts, loaded.input_names) == (model.tau, model.ts, model.input_names)


def test_a_model_file_that_describes_no_model_is_refused(tmp_path):
    from tausid.storage import write_arrays

    path = write_arrays(tmp_path / "x", {}, kind="model", content={"config": {}})
    with pytest.raises(StorageError, match="must describe a tausid model"):
        tausid.load_model(path)


def test_a_free_initial_state_survives_a_simulation_that_is_not_finite():
    record = wiener_record(80)
    model = make_model(record, initial_state="free", horizon="full")
    broken = eqx.tree_at(lambda m: m.f.linear, model.state_space, jnp.full((2, 3), jnp.nan))
    simulation = dataclasses.replace(model, state_space=broken).simulate(record, throw=False)
    assert simulation.status == "diverged"


def diverging(record: Record) -> Model:
    model = make_model(record)
    return dataclasses.replace(
        model, state_space=eqx.tree_at(lambda m: m.f.linear, model.state_space, 1e3 * jnp.ones((2, 3)))
    )


def test_a_simulation_that_diverges_says_when_and_what_to_do():
    record = wiener_record(80)
    with pytest.raises(
        DivergenceError, match=r"must stay finite; it does not from t = [\d.]+ s on. Check .* larger tau"
    ):
        diverging(record).simulate(record)
    assert diverging(record).simulate(record, throw=False).status == "diverged"
    assert tausid.evaluate(diverging(record), record).rmse["y"] == np.inf


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"record": Record.from_arrays(np.zeros((9, 2)), np.arange(9.0), ts=0.5)}, DataError, "the model's 1 inputs"),
        ({"record": wiener_record(400).part(0, 4)}, DataError, "at least 6 samples for the initial state; got 4"),
        ({"dt": np.inf}, ConfigError, "`dt` must be a positive number of seconds; got inf"),
        ({"dt": 0.0}, ConfigError, "`dt` must be a positive number of seconds; got 0.0"),
        ({"x0": [0.0]}, ConfigError, r"`x0` must have one value per state, shape \(2,\); got \(1,\)"),
        ({"record": Record.from_arrays(np.arange(20.0), np.arange(20.0), ts=0.1)}, DataError, "it lasts 1.9 s"),
    ],
)
def test_what_cannot_be_simulated_is_refused(arguments, error, message):
    record = wiener_record(80)
    with pytest.raises(error, match=message):
        make_model(record).simulate(arguments.pop("record", record), **arguments)


def test_missing_outputs_at_the_start_are_refused():
    record = wiener_record(80)
    y = record.y.copy()
    y[2] = np.nan
    with pytest.raises(DataError, match="first 5 outputs measured"):
        make_model(record).simulate(Record.from_arrays(record.u, y, ts=record.ts))
