from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from problems import OSCILLATOR_A, OSCILLATOR_B, OSCILLATOR_C, multisine, oscillator_record, wiener_record
from scipy import signal
from scipy.linalg import expm

import tausid
from tausid import (
    ConfigError,
    DataError,
    DivergenceError,
    FixedStep,
    Integration,
    Record,
    Scaling,
    StorageError,
    Structure,
    Tau,
)
from tausid.model.build import Weights, build_state_space
from tausid.model.course import longest_step, make_integrator
from tausid.model.model import Model
from tausid.storage import write_arrays

TAU = 3.0


def make_model(
    record: Record, *, integration: Integration | None = None, weights: Weights | None = None, **structure
) -> Model:
    structure = Structure(**{"nx": 2, "hidden": (8,), "initial_state": "encoder", **structure})
    rng, weights = np.random.default_rng(0), weights or Weights(0.3)
    space = build_state_space(structure, Tau(TAU), weights, nu=record.nu, ny=record.ny, n_records=1, rng=rng)
    return Model(
        state_space=space,
        scaling=Scaling.from_records(record),
        structure=structure,
        integration=integration or Integration(),
        ts=record.ts,
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
    model = make_model(record, integration=Integration(hold="first"))
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
    for other, names in ((swapped, "b, a, y"), (renamed, "c, d, y")):
        with pytest.raises(DataError, match=f"must be the model's, a, b, y; got {names}.*say so: record.renamed"):
            model.simulate(other)
    mapped = renamed.renamed(inputs=["a", "b"])
    np.testing.assert_array_equal(model.simulate(mapped).y, model.simulate(record).y)
    unnamed = Record.from_arrays(record.u, record.y, ts=0.5)
    np.testing.assert_array_equal(model.simulate(unnamed).y, model.simulate(record).y)


def test_channels_in_another_unit_are_refused():
    record = wiener_record(60)
    volts, millivolts = (dataclasses.replace(record, output_units=(unit,)) for unit in ("V", "mV"))
    with pytest.raises(DataError, match="channel 'y' of 'wiener' must be in V, as in training; it is in mV"):
        make_model(volts).simulate(millivolts)
    np.testing.assert_array_equal(make_model(volts).simulate(record).y, make_model(volts).simulate(volts).y)


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
    model = true_oscillator(record, initial_state="free", integration=Integration(substeps=4))
    simulation = model.simulate(later)
    assert simulation.n_skipped == 20
    np.testing.assert_allclose(simulation.y, later.y, atol=1e-4)  # least squares in single precision


@pytest.mark.scan
def test_saving_and_loading_gives_the_same_simulation_bit_for_bit(tmp_path):
    record = wiener_record(80)
    for settings in (
        {},
        {"initial_state": "free"},
        {"network": "polynomial", "weights": Weights(0.01)},
        {"integration": Integration(hold=("first",)), "dae": True},
    ):
        model = make_model(record, **settings)
        loaded = tausid.load_model(model.save(tmp_path / "m.safetensors"))
        np.testing.assert_array_equal(loaded.simulate(record).y, model.simulate(record).y)
        assert (loaded.structure, loaded.integration) == (model.structure, model.integration)
        assert loaded.integrator == model.integrator
        assert (loaded.tau, loaded.ts, loaded.input_names) == (model.tau, model.ts, model.input_names)


def test_a_model_file_that_describes_no_model_is_refused(tmp_path):
    path = write_arrays(tmp_path / "x", {}, kind="model", content={"structure": {}})
    with pytest.raises(StorageError, match="must be as tausid writes it"):
        tausid.load_model(path)


def test_a_free_initial_state_survives_a_simulation_that_is_not_finite():
    record = wiener_record(80)
    model = make_model(record, initial_state="free")
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
        ({"x0": [np.nan, 0.0]}, ConfigError, r"`x0` must have finite numbers in single precision; got \[nan, 0.0\]"),
        ({"x0": [1e300, 0.0]}, ConfigError, "`x0` must have finite numbers in single precision"),
        ({"record": Record.from_arrays(np.arange(20.0), np.arange(20.0), ts=0.1)}, DataError, "it lasts 1.9 s"),
    ],
)
def test_what_cannot_be_simulated_is_refused(arguments, error, message):
    record = wiener_record(80)
    with pytest.raises(error, match=message):
        make_model(record).simulate(arguments.pop("record", record), **arguments)


def test_missing_outputs_at_the_start_are_filled_for_the_encoder():
    record = wiener_record(80)
    y = record.y.copy()
    y[2] = np.nan
    filled = y.copy()
    filled[2] = (y[1] + y[3]) / 2
    model = make_model(record)
    holes, whole = (model.simulate(Record.from_arrays(record.u, a, ts=record.ts)) for a in (y, filled))
    assert holes.n_skipped == 5
    np.testing.assert_allclose(holes.y, whole.y, atol=1e-6)  # single precision


def test_a_simulation_begins_where_all_outputs_have_been_measured():
    record = wiener_record(80)
    y = record.y.copy()
    y[:20] = np.nan
    simulation = make_model(record).simulate(Record.from_arrays(record.u, y, ts=record.ts))
    assert simulation.n_skipped == 21
    assert np.isfinite(simulation.y[21:]).all()
    y[:79] = np.nan
    with pytest.raises(DataError, match="must have every output measured within 5 samples before some sample"):
        make_model(record).simulate(Record.from_arrays(record.u, y, ts=record.ts, name="late"))


# Other clocks


@pytest.mark.scan
def test_a_long_step_is_integrated_in_parts():
    record = oscillator_record(samples=121)
    model = true_oscillator(record)
    kept = np.flatnonzero((np.arange(121) % 40 < 2) | (np.arange(121) == 120))  # steps of 0.5 s and of 19.5 s
    u = np.repeat(record.u[kept], np.diff(kept, append=122), axis=0)[:121]
    whole = Record.from_arrays(u, record.y, ts=record.ts)
    sparse = Record.from_arrays(record.u[kept], record.y[kept], t=record.t[kept])
    expected = model.simulate(whole, x0=np.zeros(2)).y[kept]
    found = model.simulate(sparse, x0=np.zeros(2)).y
    # Both take steps of at most 0.75 s of a system whose fastest time is 2 s: rk4 errs by about 1e-4.
    np.testing.assert_allclose(found, expected, atol=5e-4)
    finer = dataclasses.replace(model, integration=Integration(max_dt=0.05))
    assert finer.longest_step == pytest.approx(0.5)


def test_max_dt_bounds_every_integration_step():
    for settings in ({"max_dt": 0.3}, {"max_dt": 5.0, "substeps": 2}, {}):
        integration, ts = Integration(**settings), 1.0
        step = longest_step(integration, ts) / make_integrator(integration, ts).substeps
        assert step <= settings.get("max_dt", 1.5) * (1 + 1e-9)
        assert longest_step(integration, ts) >= ts * (1 - 1e-3)  # a median step is not split


@pytest.mark.parametrize("hold", ["zero", "first"])
def test_a_model_trained_at_four_seconds_simulates_at_one(hold):
    """The oscillator in slow motion: the exact answer at one second is known."""
    slow = Record.from_arrays(*_slow_oscillator(300, 4.0, hold, seed=0), ts=4.0)
    start = tausid.FromLinear(nonlinear="random", weight_range=0.01, bias_range=0.0)
    recipe = tausid.recipes.windows(nx=2, hidden=(4,)).change(
        {"start": start, "trainer.horizon": 40, "trainer.batch": 16, "trainer.steps": 100,
         "integration.hold": hold, "integration.substeps": 2}
    )  # fmt: skip
    result = tausid.fit(slow, seed=0, recipe=recipe, progress=None)
    fast = Record.from_arrays(*_slow_oscillator(1200, 1.0, hold, seed=5), ts=1.0)
    same = Record.from_arrays(*_slow_oscillator(300, 4.0, hold, seed=6), ts=4.0)
    score = tausid.evaluate(result.model, fast)
    assert score.n_skipped == 20  # five steps of four seconds
    # Linear and free of noise, and started from the linear approximation: what is left is what training disturbs, and
    # the inputs between four-second samples that the encoder does not see.
    assert score.nrmse["y"] < 0.02
    # From the best initial state the model is as exact at one second as at four.
    at_one, at_four = (tausid.evaluate(result.model, record, x0="refine").nrmse["y"] for record in (fast, same))
    assert at_one < 1.5 * at_four < 0.003


def _slow_oscillator(samples: int, ts: float, hold: str, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and exact outputs of the oscillator with time in units of eight seconds, for inputs that are held."""
    u = multisine(samples, lines=round(samples * ts / 100), seed=seed)
    matrices = (OSCILLATOR_A / 8, OSCILLATOR_B / 8, OSCILLATOR_C, np.zeros((1, 1)))
    discrete = signal.cont2discrete(matrices, ts, method={"zero": "zoh", "first": "foh"}[hold])
    return u, signal.dlsim(discrete, u[:, None])[1]


def test_an_encoder_on_one_clock_sees_a_jittered_record_resampled():
    record = oscillator_record(samples=60)
    model = make_model(record, na=4, nb=4)
    t = record.t.copy()
    t[2] += 0.2  # one of the encoder's samples comes late
    late = Record.from_arrays(record.u, np.interp(t, record.t, record.y[:, 0]), t=t)
    # Interpolated at the nominal times, the encoder sees nearly what it would have seen.
    expected, found = model.simulate(record).x[4], model.simulate(late).x[4]
    naive = model.simulate(Record.from_arrays(late.u, late.y, ts=0.5)).x[4]
    assert np.abs(found - expected).max() < 0.7 * np.abs(naive - expected).max()


# Initial states


def test_a_refined_initial_state_is_the_linear_least_squares_solution():
    record = oscillator_record(samples=200, noise=0.05)
    model = true_oscillator(record, integration=Integration(substeps=4), na=3, nb=3)
    simulation = model.simulate(record, x0="refine")
    assert (simulation.n_skipped, simulation.initial_state) == (3 + 20, "refine")
    # The response is linear in the state at sample 3: fitted to samples 3 to 22 by ordinary least squares.
    step = expm(OSCILLATOR_A * record.ts)
    forced = model.simulate(record.part(3, 200), x0=np.zeros(2)).y[:20, 0]
    columns = np.stack([(np.linalg.matrix_power(step, k) @ np.eye(2))[0] for k in range(20)])
    expected = np.linalg.lstsq(columns, record.y[3:23, 0] - forced, rcond=None)[0]
    np.testing.assert_allclose(simulation.x[3], expected, atol=2e-4)  # least squares in single precision


def test_a_refined_initial_state_simulates_better_than_a_bad_encoder():
    record = oscillator_record(samples=300)
    later = record.part(60, 300)
    model = true_oscillator(record, integration=Integration(substeps=4))  # its encoder has random weights
    encoded, refined = (tausid.evaluate(model, later, x0=way, skip=25) for way in ("encoder", "refine"))
    assert refined.rmse["y"] < 1e-3 < 0.1 * encoded.rmse["y"]
    assert (refined.n_initial, refined.n_skipped, refined.initial_state) == (25, 25, "refine")
    assert (encoded.n_initial, encoded.n_skipped, encoded.initial_state) == (5, 25, "encoder")
    assert refined.as_dict()["initial_state"] == "refine"


def test_without_any_past_the_initial_state_is_free():
    record = oscillator_record(samples=200)
    later = record.part(60, 200)
    model = true_oscillator(record, integration=Integration(substeps=4), na=0, nb=0)
    simulation = model.simulate(later, x0="refine")
    assert simulation.n_skipped == 20
    np.testing.assert_allclose(simulation.y, later.y, atol=2e-4)  # from the first sample on
    assert model.simulate(later).n_skipped == 0


def test_a_given_state_and_the_default_say_what_they_are():
    record = wiener_record(80)
    model = make_model(record)
    assert model.simulate(record, x0=np.zeros(2)).initial_state == "given"
    np.testing.assert_array_equal(model.simulate(record, x0="encoder").y, model.simulate(record).y)
    free = make_model(record, initial_state="free")
    assert free.simulate(record).initial_state == "free"
    # From where an estimate ended another one goes on by less than its tolerance.
    np.testing.assert_allclose(free.simulate(record, x0="refine").y, free.simulate(record).y, atol=1e-6)
    with pytest.raises(ConfigError, match="`x0` 'encoder' must have a model with an encoder"):
        free.simulate(record, x0="encoder")
    with pytest.raises(ConfigError, match="unknown x0 'refined'; known: encoder, refine, rest. Did you mean 'refine'"):
        model.simulate(record, x0="refined")
    with pytest.raises(DataError, match="at least 26 samples for the initial state; got 25"):
        model.check(record.part(0, 25), x0="refine")


# Feedthrough


def test_without_feedthrough_the_output_does_not_see_the_input(tmp_path):
    record = wiener_record(80)
    model = make_model(record, feedthrough=False)
    assert model.state_space.g.linear.shape == (1, 2)
    spoiled = np.concatenate([record.u[:-1], [[99.0]]])
    again = model.simulate(Record.from_arrays(spoiled, record.y, ts=record.ts))
    np.testing.assert_array_equal(again.y, model.simulate(record).y)  # a zero-order hold: the last input moves no state
    assert make_model(record).simulate(Record.from_arrays(spoiled, record.y, ts=record.ts)).y[-1] != again.y[-1]
    loaded = tausid.load_model(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(loaded.simulate(record).y, model.simulate(record).y)
