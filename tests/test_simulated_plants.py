"""The simulated plants against closed forms, and the records that are made of them."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from types import SimpleNamespace

import jaxtyping
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipj

import tausid
from tausid import Dataset, datasets
from tausid.data.plants import PLANTS as KINDS
from tausid.data.plants import (
    AbstractPlant,
    BoucWen,
    DeadZoneValve,
    DelayedTank,
    Duffing,
    FlowHeater,
    Furnace,
    LinearPlant,
    MassChain,
    Neutralization,
    QuadrupleTanks,
    RectifiedMotor,
    SlidingMass,
    SolderingIron,
    TwoMassDrive,
    VanDerPol,
    WienerHammerstein,
    response,
    simulate,
)
from tausid.errors import ConfigError, DataError

PLANTS = {name: kind() for name, kind in KINDS.items()}
every_plant = pytest.mark.parametrize("name", PLANTS)
# What has closed forms below, and two test records: one with the excitation of the training record.
FIRST = ("duffing", "two_mass", "ph")
each_of_the_first = pytest.mark.parametrize("name", FIRST)


@pytest.fixture(autouse=True)
def without_type_checks(monkeypatch):
    """Plants are numbers in long loops: checking the type of each takes longer than all the rest."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@functools.cache
def fixed_record(name: str) -> Dataset:
    return simulate(name, seed=0)


def times(plant: AbstractPlant, samples: int) -> np.ndarray:
    return plant.ts * np.arange(samples)


# Duffing's oscillator


def test_without_damping_the_oscillator_swings_as_jacobis_cosine():
    # m x'' + k x + c x^3 = 0 from x = a at rest: x = a cn(w t | k^2), w^2 = (k + c a^2) / m, k^2 = c a^2 / (2 m w^2);
    # this form holds where energy is kept, and only there.
    plant, a = Duffing(damping=0.0), 3e-3
    omega = math.sqrt((plant.stiffness + plant.cubic * a**2) / plant.mass)
    modulus = plant.cubic * a**2 / (2.0 * plant.mass * omega**2)
    expected = 1e3 * a * ellipj(omega * times(plant, 300), modulus)[1]
    y = response(plant, np.zeros(300), x0=(a, 0.0))[:, 0]
    # Steps of order 4 shift the phase by (w h)^4 / 120 a radian: 3e-5 of 3 mm over 269 radians, and more for harmonics.
    np.testing.assert_allclose(y, expected, atol=5e-4)


def test_a_constant_force_moves_the_spring_to_where_it_pulls_as_hard():
    plant = Duffing()
    x = response(plant, np.full(600, 50.0))[-1, 0] / 1e3
    # 1 s is 22 time constants of the envelope: exp(-22) of 3 mm is left.
    assert plant.stiffness * x + plant.cubic * x**3 == pytest.approx(50.0, rel=1e-6)


def test_a_small_swing_decays_as_the_linear_oscillators():
    plant, a = Duffing(cubic=0.0), 1e-3
    rate = plant.damping / (2.0 * plant.mass)
    omega = math.sqrt(plant.stiffness / plant.mass - rate**2)
    t = times(plant, 200)
    expected = 1e3 * a * np.exp(-rate * t) * (np.cos(omega * t) + rate / omega * np.sin(omega * t))
    np.testing.assert_allclose(
        response(plant, np.zeros(200), x0=(a, 0.0))[:, 0], expected, atol=1e-6
    )  # order 4, as above


# The drive


def test_without_friction_torque_turns_both_masses_and_swings_them_against_each_other():
    # The centre of mass gains u t / (J1 + J2); the twist swings about u J2 / (J1 + J2) / k without damping.
    plant = TwoMassDrive(damping=0.0, motor_viscous=0.0, load_viscous=0.0, motor_coulomb=0.0, load_coulomb=0.0)
    j1, j2, torque = plant.motor_inertia, plant.load_inertia, 3.0
    omega = math.sqrt(plant.stiffness * (1 / j1 + 1 / j2))
    assert omega / (2 * math.pi) == pytest.approx(19.5, abs=0.05)  # the docstring's 19 Hz
    t = times(plant, 200)
    share = torque * j2 / (j1 + j2)
    expected = torque * t / (j1 + j2) + share / (j1 * omega) * np.sin(omega * t)
    # The phase of the 1.6 rad/s swing is off by (w h)^4 / 120 a radian: 2e-6 times 122 radians.
    np.testing.assert_allclose(response(plant, np.full(200, torque))[:, 0], expected, atol=1e-3)


def test_a_steady_speed_needs_as_much_torque_as_both_frictions():
    plant, speed = TwoMassDrive(), 6.0
    friction = (plant.motor_viscous + plant.load_viscous) * speed
    friction += (plant.motor_coulomb + plant.load_coulomb) * math.tanh(speed / plant.creep)
    y = response(plant, np.full(2000, friction))
    assert y[-1, 0] == pytest.approx(speed, rel=1e-6)  # 10 s are 23 time constants of viscous friction


def test_constant_friction_alone_stops_the_drive_as_its_closed_form_says():
    # Frictions in the ratio of the inertias do not twist the shaft; then J dw/dt = -c tanh(w / v) on each side, and
    # sinh(w / v) falls as exp(-c t / (J v)).
    inertia, coulomb, start = 0.03, 0.6, 8.0
    plant = TwoMassDrive(
        motor_inertia=inertia / 3,
        load_inertia=2 * inertia / 3,
        motor_viscous=0.0,
        load_viscous=0.0,
        motor_coulomb=coulomb / 3,
        load_coulomb=2 * coulomb / 3,
        creep=0.5,
    )
    t = times(plant, 120)
    expected = 0.5 * np.arcsinh(math.sinh(start / 0.5) * np.exp(-coulomb * t / (inertia * 0.5)))
    y = response(plant, np.zeros(120), x0=(start, start, 0.0))[:, 0]
    assert expected[-1] < 0.01  # it has come to rest
    np.testing.assert_allclose(y, expected, atol=1e-7)  # order 4: steps of 0.04 of the fastest time constant


# The neutralization


def test_the_balance_of_charges_holds_at_every_sample_of_a_step_response():
    # Two lags in series: w = w_end (1 - (T2 exp(-t / T2) - T1 exp(-t / T1)) / (T2 - T1)).
    plant, dose = Neutralization(), 0.45
    t1, t2, t = plant.mixer_seconds, plant.tank_seconds, times(plant, 120)
    end = plant.base * dose / plant.flow - plant.acid
    w = end * (1.0 - (t2 * np.exp(-t / t2) - t1 * np.exp(-t / t1)) / (t2 - t1))
    found = [plant.excess_of_base(ph) for ph in response(plant, np.full(120, dose))[:, 0]]
    np.testing.assert_allclose(found, w, atol=1e-6 * end)  # order 4 with steps of a tenth of the mixer's 10 s


def test_without_a_buffer_the_curve_is_that_of_a_strong_acid_and_a_strong_base():
    # [OH-] - [H+] = w with [OH-][H+] = 1e-14 gives pH = 7 + asinh(w / 2e-7) / ln 10.
    plant = Neutralization(carbonate=0.0)
    for w in (-1e-3, -1e-6, 0.0, 1e-8, 1e-3):
        assert plant.output((0.0, w))[0] == pytest.approx(7.0 + math.asinh(w / 2e-7) / math.log(10.0), abs=1e-9)


def test_half_of_the_buffer_is_neutralized_at_its_first_constant():
    # At pH = pK1 half of the carbonic acid is bicarbonate; 1e-6 are the hydrogen ions and the second constant.
    assert Neutralization().excess_of_base(6.35) == pytest.approx(2.5e-4, abs=1e-6)


def test_the_curve_is_ten_times_as_steep_in_the_middle():
    plant = Neutralization()
    slope = [plant.excess_of_base(ph + 0.01) - plant.excess_of_base(ph - 0.01) for ph in (6.4, 8.3)]
    assert slope[0] / slope[1] == pytest.approx(10.0, rel=0.1)


# Plants with one nonlinear part


def test_the_rectified_motor_comes_to_the_same_speed_both_ways():
    plant = RectifiedMotor()
    ahead, back = (response(plant, np.full(200, voltage))[-1, 0] for voltage in (6.0, -6.0))
    assert ahead == pytest.approx(back, rel=1e-12)
    current = (6.0 - plant.constant * ahead) / plant.resistance  # at rest of the winding
    friction = plant.viscous * ahead + plant.coulomb * math.tanh(ahead / plant.creep)
    assert plant.constant * current == pytest.approx(friction, rel=1e-6)  # 8 s are 40 time constants


@pytest.mark.parametrize(("voltage", "position"), [(1.4, 0.0), (-1.4, 0.0), (3.5, 2.0), (-3.5, -2.0), (9.0, 4.0)])
def test_the_valve_has_its_dead_zone_and_its_stop(voltage, position):
    y = response(DeadZoneValve(), np.full(400, voltage))  # 20 s: exp(-32) of the start is left
    assert y[-1, 0] == pytest.approx(position, abs=1e-9)


def test_the_diode_between_the_filters_takes_nine_tenths_above_its_limit():
    plant = WienerHammerstein()
    low, high, higher = (response(plant, np.full(600, u))[-1, 0] for u in (-2.0, 2.0, 3.0))
    assert low == pytest.approx(-2.0, abs=1e-6)
    assert high == pytest.approx(0.3 + 0.1 * 1.7, abs=1e-6)
    assert higher - high == pytest.approx(0.1, abs=1e-6)


def test_the_heater_is_as_hot_as_its_balance_says_at_each_flow():
    plant = FlowHeater()
    for flow in (0.1, 0.3):
        rest = plant.inflow + plant.heating * plant.to_wall * plant.volume / (plant.to_water * flow)
        assert response(plant, np.full(1000, flow), x0=(50.0, 70.0))[-1, 0] == pytest.approx(rest, rel=1e-6)


def test_the_free_oscillator_of_van_der_pol_has_its_limit_cycle():
    # Amplitude 2.0086 and period 6.6633 at mu = 1: tabulated, for instance by Andersen and Geer (1982).
    y = response(VanDerPol(), np.zeros(1000), x0=(0.1, 0.0))[500:, 0]
    assert y.max() == pytest.approx(2.0086, abs=5e-3)  # between samples the peak is flat
    ups = [i + y[i] / (y[i] - y[i + 1]) for i in range(len(y) - 1) if y[i] < 0 <= y[i + 1]]
    assert np.mean(np.diff(ups)) * 0.1 == pytest.approx(6.6633, abs=1e-3)


def test_a_slow_hysteresis_loop_dissipates_and_its_force_has_a_ceiling():
    # Far into one direction alpha = beta (gamma + delta) z does not end for gamma + delta < 0, but for gamma - delta:
    # what turns back is pulled to alpha / (beta (gamma - delta)) at most in its old direction.
    plant = BoucWen()
    slow = 100.0 * np.sin(2.0 * np.pi * np.arange(3000) / 1500)
    y = response(plant, slow)[1500:, 0]
    area = np.trapezoid(slow[1500:], y)
    assert abs(area) > 0.05 * 100.0 * np.ptp(y)
    elastic = response(BoucWen(beta=0.0), slow)[1500:, 0]
    assert abs(np.trapezoid(slow[1500:], elastic)) < 0.05 * abs(area)


def test_the_belt_delays_by_its_dead_time_and_nothing_else():
    plant, u = DelayedTank(), np.r_[np.full(20, 1.0), np.full(80, 2.0)]
    rest = (1.0, 1.0)
    now = response(replace(plant, dead_time=0.0), u, x0=rest)
    np.testing.assert_allclose(response(plant, u, x0=rest)[8:], now[:-8], rtol=1e-12)
    assert response(plant, np.full(600, 2.0))[-1, 0] == pytest.approx(4.0, rel=1e-6)  # (feed u / outflow)^2


def test_the_four_tanks_rest_where_johansson_found_them():
    y = response(QuadrupleTanks(), np.full((2000, 2), 3.0), x0=(10.0, 10.0, 1.0, 1.0))[-1]
    np.testing.assert_allclose(y, (12.4, 12.7), atol=0.4)  # with the tables' rounded parameters
    # The balance: what leaves the lower tanks is what the pumps give.
    p = QuadrupleTanks()
    out = np.array([p.left_hole, p.right_hole]) * np.sqrt(2.0 * 981.0 * y)
    assert out.sum() == pytest.approx(3.0 * (p.left_pump + p.right_pump), rel=1e-6)


def test_the_chain_has_the_frequencies_and_the_damping_that_it_says():
    plant = MassChain(cubic=0.0)
    a = np.array([plant.derivative(tuple(row), (0.0,)) for row in np.eye(6)]).T
    poles = np.linalg.eigvals(a)
    modes = sorted(poles[poles.imag > 0], key=abs)
    np.testing.assert_allclose(np.abs(modes) / (2 * np.pi), (1.42, 3.97, 5.74), atol=0.01)
    np.testing.assert_allclose([-m.real / abs(m) for m in modes], (0.01, 0.028, 0.041), atol=1e-3)


def test_the_mass_slides_on_without_force_until_friction_has_stopped_it():
    plant = SlidingMass(coulomb=0.0)
    y = response(plant, np.zeros(1500), x0=(1.0, 3.0))
    assert y[-1, 0] == pytest.approx(1.0 + 3.0 * plant.mass / plant.viscous, rel=1e-6)


def test_the_mass_has_the_same_equations_as_the_grey_box():
    import jax.numpy as jnp

    known = tausid.physics.MassWithFriction()
    values = {**vars(SlidingMass()), "mass": 2.0, "offset": 0.3}
    slopes = known.derivative((jnp.asarray(0.4), jnp.asarray(-0.7)), (jnp.asarray(1.5),), SimpleNamespace(**values))
    np.testing.assert_allclose(slopes, SlidingMass(**values).derivative((0.4, -0.7), (1.5,)), rtol=1e-6)  # float32
    assert known.mass.unit == "kg"


def test_the_furnace_rests_where_it_radiates_what_it_gets():
    plant = Furnace()
    hot = response(plant, np.full(3000, 0.5), x0=(400.0, 400.0))[-1, 0]
    radiated = plant.radiation * ((hot + 273.15) ** 4 - 293.15**4)
    assert plant.loss * (hot - 20.0) + radiated == pytest.approx(500.0, rel=1e-6)


def test_the_soldering_iron_has_two_time_constants_far_apart():
    """Of its linearization at 140 degrees: tip_capacity / exchange, and the body's over its losses, nearly."""
    plant = SolderingIron(radiation=0.0)
    rates = -np.linalg.eigvals(
        [
            [-plant.exchange / plant.tip_capacity, plant.exchange / plant.tip_capacity],
            [plant.exchange / plant.body_capacity, -(plant.exchange + plant.loss) / plant.body_capacity],
        ]
    )
    slow = 20.0 + (response(plant, np.zeros(2001), x0=(100.0, 100.0))[:, 0] - 20.0)
    assert max(rates) / min(rates) > 100
    # Without power the tip cools with the body.
    assert np.log((slow[1000] - 20.0) / (slow[2000] - 20.0)) / 1000.0 == pytest.approx(min(rates), rel=1e-4)


def test_the_drift_is_slow_and_has_its_size():
    noisy, quiet = fixed_record("drifting_sensor"), simulate("drifting_sensor", seed=0, noise=0.0)
    error = (noisy.test.y - quiet.test.y)[:, 0]
    assert noisy.noise == (math.hypot(0.5, 3.0),)
    assert np.std(error) == pytest.approx(noisy.noise[0], rel=0.03)
    assert np.std(np.diff(error)) == pytest.approx(0.5 * math.sqrt(2.0), rel=0.1)


def test_the_linear_plant_is_linear():
    plant, rng = LinearPlant(), np.random.default_rng(0)
    a, b = rng.standard_normal((2, 200))
    np.testing.assert_allclose(
        response(plant, 2.0 * a - b), 2.0 * response(plant, a) - response(plant, b), rtol=0, atol=1e-10
    )


# Integration


@every_plant
def test_the_response_agrees_with_scipys_solver(name):
    plant = PLANTS[name]
    u = simulate(plant, seed=1, samples=60, noise=0.0).train.u
    late = round(plant.dead_time / plant.ts)
    # An empty tank has an infinite slope in its outflow.
    start = (1.0 if "tank" in name or name == "transport_delay" else 0.0,) * len(plant.states)
    states = [np.array(start)]
    for k in range(len(u) - 1):
        held = tuple(u[max(k - late, 0)])
        run = solve_ivp(
            lambda _, x, now: plant.derivative(tuple(x), now),
            (0.0, plant.ts),
            states[-1],
            "DOP853",
            args=(held,),
            rtol=1e-10,
            atol=1e-14,
        )
        states.append(run.y[:, -1])
    expected = [plant.output(tuple(x)) for x in states]
    # What the steps get wrong is a small part of what the sensor adds.
    np.testing.assert_allclose(response(plant, u, x0=start), expected, atol=2e-3 * min(plant.noise))


# Records


@every_plant
def test_a_name_loads_one_fixed_record(name, monkeypatch):
    monkeypatch.delenv("TAUSID_DATA", raising=False)  # no files are looked for
    data, again = datasets.load(name), fixed_record(name)
    assert (data.name, data.train.name, data.test.name) == (name, "train", "test")
    np.testing.assert_array_equal(data.train.y, again.train.y)
    np.testing.assert_array_equal(data.test.u, again.test.u)
    plant = PLANTS[name]
    assert len(data.train) == len(data.test) == plant.samples
    assert f"{plant.samples} samples each" in datasets.describe(name)
    assert datasets.fetch(name) == ()
    assert tuple(zip(data.train.input_names, data.train.input_units, strict=True)) == plant.inputs
    assert tuple(zip(data.test.output_names, data.test.output_units, strict=True)) == plant.outputs


def test_simulated_tanks_have_a_name():
    data = datasets.load("simulated_tanks")
    np.testing.assert_array_equal(data.test.y, datasets.simulate_tanks(seed=0).test.y)
    assert datasets.fetch("simulated_tanks") == ()


@pytest.mark.parametrize("name", [name for name in PLANTS if not PLANTS[name].drift])
def test_noise_has_its_size_and_its_own_seed(name):
    noisy, quiet, other = fixed_record(name), simulate(name, seed=0, noise=0.0), simulate(name, seed=4)
    assert (noisy.noise, quiet.noise) == (PLANTS[name].noise, (0.0,) * noisy.train.ny)
    for with_noise, without in zip((noisy.train, *noisy.tests), (quiet.train, *quiet.tests), strict=True):
        np.testing.assert_array_equal(with_noise.u, without.u)
        # The deviation of 800 samples scatters by 2.5 %; four times that.
        np.testing.assert_allclose(np.std(with_noise.y - without.y, axis=0), noisy.noise, rtol=0.1)
    assert np.abs(noisy.train.u - noisy.test.u).max() > noisy.train.u.std()
    assert np.abs(noisy.train.u - other.train.u).max() > noisy.train.u.std()


@each_of_the_first
def test_a_record_begins_in_a_state_of_its_own(name):
    data = simulate(name, seed=0, samples=500, noise=0.0)
    train, test = data.train.y[:, 0], data.test.y[:, 0]
    at_rest = response(name, [0.0])[0, 0]
    spread = np.std(train)
    assert abs(train[0] - test[0]) > 0.1 * spread
    assert abs(train[0] - at_rest) > 0.1 * spread


@each_of_the_first
def test_a_record_is_one_period_of_the_plants_answer(name):
    # The excitation is periodic and the plant forgets: two periods on, the answer is the same.
    record = simulate(name, seed=2, samples=1000, noise=0.0).train
    y = response(name, np.tile(record.u[:, 0], 3))[2000:, 0]
    # `settle` is five to nine time constants: up to exp(-5) of the start is left.
    assert np.std(y - record.y[:, 0]) < 2e-3 * np.std(y)


@each_of_the_first
def test_the_excitation_has_its_bands_and_its_spread(name):
    plant = PLANTS[name]
    u = fixed_record(name).train.u[:, 0]
    assert u.min() >= plant.u_range[0] and u.max() <= plant.u_range[1]
    assert (u.mean(), u.std()) == (pytest.approx(plant.train.mean, abs=1e-9), pytest.approx(plant.train.std))
    freq, lines = np.fft.rfftfreq(len(u), plant.ts), np.abs(np.fft.rfft(u - u.mean()))
    # A line that lies on the edge of its band may fall on either side: rounding.
    lowest, highest = plant.train.bands[0][0], plant.train.bands[-1][0]
    first = lines[1 : np.searchsorted(freq, 0.999 * lowest)]
    np.testing.assert_allclose(first, first[0], rtol=1e-9)
    np.testing.assert_allclose(lines[freq > 1.001 * highest], 0.0, atol=1e-9 * first[0])


@pytest.mark.parametrize(("name", "share"), [("duffing", (0.3, 0.5)), ("two_mass", (0.15, 0.5)), ("ph", (0.2, 0.5))])
def test_no_linear_model_explains_the_records(name, share):
    # The best constant-coefficient fit of the output from 60 past inputs, as a share of the output's deviation:
    # far more than the noise, far less than everything.
    record = fixed_record(name).train
    u, y = record.u[:, 0] - record.u.mean(), record.y[60:, 0] - record.y.mean()
    past = np.stack([u[60 - lag : len(u) - lag] for lag in range(1, 61)], axis=1)
    missed = np.std(y - past @ np.linalg.lstsq(past, y, rcond=None)[0])
    assert share[0] < missed / np.std(y) < share[1]
    assert missed > 5.0 * PLANTS[name].noise[0]


@every_plant
def test_a_test_record_of_another_excitation_stays_within_what_was_trained(name):
    data = fixed_record(name)
    train, test = data.train, data.tests[-1]
    assert data.tests[-1].name == ("steps" if name in FIRST else "test")
    assert type(PLANTS[name].tests[-1]) is not type(PLANTS[name].train)
    outside = (test.y < train.y.min(axis=0)) | (test.y > train.y.max(axis=0))
    assert outside.mean() < 0.03  # a model may be judged by it
    assert np.all(test.y.std(axis=0) > 0.15 * train.y.std(axis=0))


def test_parameters_make_another_plant():
    soft = simulate(replace(Duffing(), cubic=0.0), seed=0, samples=100, noise=0.0).train.y
    assert np.abs(soft - simulate("duffing", seed=0, samples=100, noise=0.0).train.y).max() > 0.1


# What is refused


@pytest.mark.parametrize(
    ("plant", "changes", "words"),
    [
        ("dufing", {}, "unknown plant 'dufing'.*Did you mean 'duffing'"),
        ("duffing", {"seed": -1}, "`seed` must be a whole number of at least 0; got -1"),
        ("duffing", {"samples": 2}, "`samples of the train record` must be a whole number of at least 3; got 2"),
        ("duffing", {"test_samples": 0}, "`samples of the test record` must be a whole number of at least 3; got 0"),
        ("duffing", {"noise": -1.0}, "`noise` must be a zero or positive number; got -1.0"),
        ("two_mass", {"noise": math.nan}, "`noise` must be a zero or positive number; got nan"),
    ],
)
def test_settings_that_break_a_rule(plant, changes, words):
    with pytest.raises(ConfigError, match=words):
        simulate(plant, **({"seed": 0} | changes))


@pytest.mark.parametrize("x0", [(0.0,), (0.0, math.inf)])
def test_an_initial_state_that_does_not_fit(x0):
    words = r"`x0` must be one finite number for each of: position \(m\), velocity \(m/s\); got \(0.0,"
    with pytest.raises(ConfigError, match=words):
        response("duffing", [0.0, 0.0], x0=x0)


def test_an_input_that_breaks_a_rule():
    with pytest.raises(DataError, match=r"`u` must be a finite signal of one channel.*Give the torque at each sample"):
        response("two_mass", [1.0, math.nan])
