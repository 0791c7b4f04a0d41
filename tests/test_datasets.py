"""Benchmark records by name, where they come from, and the simulator of the tanks."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from tausid import datasets
from tausid.data.plants import TankParameters, simulate_tanks, tanks_response
from tausid.data.records import Record
from tausid.errors import ConfigError, DataError

DATA = os.environ.get("TAUSID_DATA")
with_data = pytest.mark.skipif(not DATA, reason="TAUSID_DATA does not name a folder with the benchmark records")


def describe(record: Record) -> tuple:
    channels = record.input_names + record.output_names + record.input_units + record.output_units
    return record.name, len(record), *channels


# The real records


@with_data
def test_cascaded_tanks_is_split_as_published():
    data = datasets.load("cascaded_tanks")
    assert (data.name, data.score_skip) == ("cascaded_tanks", 50)
    assert describe(data.train) == ("train", 1024, "u", "y", "V", "V")
    assert describe(data.test) == ("test", 1024, "u", "y", "V", "V")
    assert data.train.ts == data.test.ts == 4.0
    # First and last line of the published file.
    assert [data.train.u[0, 0], data.test.u[0, 0], data.train.y[0, 0], data.test.y[0, 0]] == [
        3.2567,
        0.97619,
        5.205,
        4.9728,
    ]
    assert [data.train.u[-1, 0], data.test.u[-1, 0], data.train.y[-1, 0], data.test.y[-1, 0]] == [
        3.2615,
        0.94805,
        3.6831,
        3.7179,
    ]


@with_data
def test_emps_is_split_as_published():
    data = datasets.load("emps", folder=DATA)
    assert (data.name, data.score_skip) == ("emps", 20)
    assert describe(data.train) == ("train", 24841, "vir", "qm", "N", "m")
    assert describe(data.test) == ("test", 24841, "vir", "qm", "N", "m")
    assert data.train.u[0, 0] == pytest.approx(2.53862809, abs=1e-8)  # as printed with eight decimals
    assert data.test.u[0, 0] == pytest.approx(2.55322418, abs=1e-8)


@with_data
def test_the_clock_of_emps_is_the_files_own_to_a_tenth_of_a_microsecond():
    from scipy.io import loadmat

    for path, record in zip(
        datasets.fetch("emps"), (datasets.load("emps").train, datasets.load("emps").test), strict=True
    ):
        assert np.max(np.abs(loadmat(path)["t"][:, 0] - record.t)) < 1e-7


@with_data
def test_silverbox_is_split_as_published():
    data = datasets.load("silverbox")
    whole = np.loadtxt(datasets.fetch("silverbox")[0], delimiter=",", skiprows=1, usecols=(0, 1))
    assert (data.name, data.score_skip, data.train.input_units) == ("silverbox", 50, ("V",))
    assert [record.name for record in data.tests] == ["multisine", "arrow_full", "arrow_no_extrapolation"]
    multisine, arrow = whole[40650:127400], whole[100:40575]
    expected = [multisine[:65062], multisine[65062:], arrow, arrow[:32000]]
    for record, part in zip((data.train, *data.tests), expected, strict=True):
        np.testing.assert_array_equal(np.hstack([record.u, record.y]), part)
        # The stamps count from the start of the whole record, about 200 s: eps * 200 / ts is below 1e-10.
        assert record.ts == pytest.approx(1 / 610.35, rel=1e-10)


@with_data
def test_the_folder_argument_goes_before_the_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("TAUSID_DATA", str(tmp_path))
    assert datasets.fetch("silverbox", folder=DATA) == (Path(DATA) / "silverbox" / "SNLS80mV.csv",)


# Names


def test_every_name_has_a_description():
    assert datasets.names()[:4] == ("cascaded_tanks", "emps", "silverbox", "daisy_heating")
    assert datasets.names()[9:11] == ("simulated_tanks", "duffing")  # the simulated ones follow
    assert {name.partition("_")[2] for name in datasets.names()[3:9]} == set(DAISY)
    assert all(len(datasets.describe(name)) > 20 for name in datasets.names())


@pytest.mark.parametrize("call", [datasets.load, datasets.fetch, datasets.describe])
def test_an_unknown_name_is_answered_with_the_nearest(call):
    with pytest.raises(ConfigError, match=r"unknown dataset 'silver_box'.*Did you mean 'silverbox'\?"):
        call("silver_box")


# DaISy: sampling time, inputs, outputs, samples of both halves, the first output of the test record

DAISY = {
    "heating": (2.0, ("voltage",), ("temp",), (400, 401), 86.132),
    "exchanger": (1.0, ("flow",), ("temp",), (2000, 2000), 99.3394),
    "hairdryer": (0.08, ("u",), ("y",), (500, 500), 5.4864889),
    "dryer2": (10.0, ("fuel", "fan", "raw"), ("drybulb", "wetbulb", "moisture"), (433, 434), 1.1237507),
    "robotarm": (1.0, ("u",), ("y",), (512, 512), 0.18370169),
    "ballbeam": (0.1, ("u",), ("y",), (500, 500), -0.02125061),
}


@with_data
@pytest.mark.parametrize("plant", DAISY)
def test_records_of_daisy_are_found_with_their_clocks(plant):
    data = datasets.load(f"daisy_{plant}")
    ts, inputs, outputs, lengths, first = DAISY[plant]
    for record, length in zip((data.train, data.test), lengths, strict=True):
        assert (record.ts, record.input_names, record.output_names) == (pytest.approx(ts), inputs, outputs)
        assert len(record) == length
        assert all(str(count) in datasets.describe(data.name) for count in set(lengths))
    assert data.test.y[0, 0] == first
    assert (data.score_skip, data.noise) == (0, ())


def test_a_record_of_daisy_that_is_not_there_says_where_to_get_it(tmp_path):
    message = refusal("daisy_dryer2", folder=tmp_path)
    assert f"`folder` names a folder without the file '{tmp_path / 'daisy' / 'dryer2_train.csv'}'" in message
    assert "Get the record from https://homes.esat.kuleuven.be/~smc/daisy/" in message
    assert "with the columns fuel,fan,raw,drybulb,wetbulb,moisture" in message


# Local folders; tests/test_downloads.py has the other places


def refusal(name: str = "cascaded_tanks", **places) -> str:
    with pytest.raises(DataError) as caught:
        datasets.fetch(name, **places)
    return str(caught.value)


def test_a_changed_file_is_refused_with_both_sums(tmp_path):
    path = tmp_path / "cascaded_tanks" / "dataBenchmark.csv"
    path.parent.mkdir()
    path.write_bytes(b"changed")
    message = refusal(folder=tmp_path)
    assert f"'{path}' must be the published record" in message
    assert "ef2388ed822f3aef4aa80d6b0f2b466dd80b361786b3eafc7a2957c31ea323a7" in message
    assert hashlib.sha256(b"changed").hexdigest() in message
    assert "delete it and get it again" in message


def test_nothing_works_says_what_was_tried_and_what_to_do(offline):
    reasons, remedy = refusal("emps").splitlines()
    assert reasons == "dataset 'emps' is not available: TAUSID_DATA is not set; 127.0.0.1 could not be reached."
    assert "Set TAUSID_DATA to a folder that holds emps/DATA_EMPS.mat and emps/DATA_EMPS_PULSES.mat" in remedy
    assert "connect to the internet and try again" in remedy
    assert "simulate_tanks" in remedy


def test_a_folder_without_the_file_is_named(offline, monkeypatch, tmp_path):
    monkeypatch.setenv("TAUSID_DATA", str(tmp_path))
    wanted = tmp_path / "cascaded_tanks" / "dataBenchmark.csv"
    assert f"TAUSID_DATA names a folder without the file '{wanted}'; 127.0.0.1 could not" in refusal()
    assert f"`folder` names a folder without the file '{wanted}'" in refusal(folder=tmp_path)


def test_a_folder_that_the_system_refuses_gives_its_reason(offline):
    assert "cannot be read: File name too long" in refusal(folder="x" * 5000)


# The tanks


def test_the_upper_tank_empties_as_torricelli_says():
    # With k5 = 0, no pump and a lower tank without outflow, x2 = x2(0) + x1(0) - x1 and
    # x1 = (sqrt(x1(0)) - k1 t / 2)^2 until it is empty.
    k1, x0, ts = 0.05, (8.0, 1.0), 3.0
    closed = TankParameters(k1=k1, k2=0.0, k5=0.0, k6=0.0)
    t = np.arange(60) * ts
    upper = np.maximum(math.sqrt(x0[0]) - k1 * t / 2, 0.0) ** 2
    assert upper[-1] == 0.0
    y = tanks_response(np.zeros(60), ts=ts, x0=x0, parameters=closed)
    # The last step before the tank is empty meets the root's infinite slope: it is off by (k1 MAX_STEP)^2.
    np.testing.assert_allclose(y, x0[1] + x0[0] - upper, atol=(k1 * 0.5) ** 2)
    before = upper > 0.5
    np.testing.assert_allclose(y[before], (x0[1] + x0[0] - upper)[before], atol=1e-7)  # order 4 elsewhere


def test_the_overflow_is_shared_as_the_balance_says():
    # Upper tank full, outflow zero: it stays full and spills k3 u, of which the lower one gets its share.
    parameters = TankParameters(k1=0.0, k2=0.0, k3=0.04, spill=0.5, k5=0.0, k6=0.0)
    y = tanks_response(np.full(20, 5.0), ts=10.0, x0=(10.0, 1.0), parameters=parameters)
    np.testing.assert_allclose(y, np.minimum(1.0 + 0.5 * 0.04 * 5.0 * 10.0 * np.arange(20), 10.0), rtol=1e-12)


def test_the_onset_of_the_overflow_within_a_step_is_exact_in_the_balance():
    # The upper tank fills at 0.3 V/s from 9 V and runs over after 10 / 3 s, in the middle of a step.
    parameters = TankParameters(k1=0.0, k2=0.0, k3=0.1, spill=1.0, k5=0.0, k6=0.0)
    y = tanks_response(np.full(5, 3.0), ts=1.3, x0=(9.0, 2.0), parameters=parameters)
    np.testing.assert_allclose(y, 2.0 + np.maximum(0.3 * 1.3 * np.arange(5) - 1.0, 0.0), rtol=1e-12)


def tanks_by_scipy(u: np.ndarray, ts: float, x0: tuple[float, float]) -> np.ndarray:
    """The equations of the docstring, written again, with an adaptive solver of order 8."""
    p = TankParameters()

    def derivative(_, x, pump):
        x1, x2 = np.clip(x, 0.0, 10.0)
        q = p.k1 * np.sqrt(x1) + p.k5 * x1
        s = max(p.k3 * pump - q, 0.0) if x[0] >= 10.0 else 0.0
        rate = q + p.spill * s - p.k2 * np.sqrt(x2) - p.k6 * x2
        return [p.k3 * pump - q - s, min(rate, 0.0) if x[1] >= 10.0 else rate]

    levels = [np.array(x0)]
    for pump in u[:-1]:
        run = solve_ivp(
            derivative,
            (0.0, ts),
            np.clip(levels[-1], 0.0, 10.0),
            "DOP853",
            args=(pump,),
            max_step=0.5,
            rtol=1e-8,
        )
        levels.append(run.y[:, -1])
    return np.clip(np.array(levels)[:, 1], 0.0, 10.0)


@pytest.mark.parametrize("ts", [0.3, 4.0, 25.0])
def test_the_response_agrees_with_scipys_solver_through_overflow_and_rail(ts):
    random = np.random.default_rng(1)
    # Long enough to fill, spill and rail: 400 s, the first half with a strong pump.
    samples = int(400 / ts)
    u = np.concatenate([random.uniform(3.0, 7.0, samples // 2), random.uniform(0.0, 2.0, samples - samples // 2)])
    y = tanks_response(u, ts=ts)
    assert y.max() == 10.0
    # Both solvers step over the corners of the right-hand side; each corner costs some 0.1 mV.
    np.testing.assert_allclose(y, tanks_by_scipy(u, ts, (6.795, 5.188)), atol=5e-4)


@with_data
def test_the_benchmarks_parameters_give_its_records():
    data = datasets.load("cascaded_tanks")
    rmse = [np.sqrt(np.mean((tanks_response(r.u, ts=4.0) - r.y[:, 0]) ** 2)) for r in (data.train, data.test)]
    # Measured. The parameters were fitted in forward Euler steps of 4 s; the exact solution is a bit worse.
    assert rmse == pytest.approx([0.2314, 0.3030], abs=5e-4)


@with_data
def test_in_the_steps_that_they_were_fitted_with_the_parameters_give_the_fitted_error():
    p, errors = TankParameters(), []
    data = datasets.load("cascaded_tanks")
    for record in (data.train, data.test):
        x, y = np.array([6.795, 5.188]), []
        for u in record.u[:, 0]:
            x1, x2 = inside = np.clip(x, 0.0, 10.0)
            y.append(x2)
            q = p.k1 * np.sqrt(x1) + p.k5 * x1
            over = p.spill / 4.0 * max(x[0] - 10.0, 0.0)
            x = inside + 4.0 * np.array([p.k3 * u - q, q - p.k2 * np.sqrt(x2) - p.k6 * x2 + over])
        errors.append(np.sqrt(np.mean((np.array(y) - record.y[:, 0]) ** 2)))
    assert errors == pytest.approx([0.218, 0.289], abs=5e-4)  # published with three decimals


# The simulator


def test_the_same_seed_gives_the_same_records_and_another_one_others():
    first, again, other = (simulate_tanks(seed=seed, samples=200) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.train.y, again.train.y)
    np.testing.assert_array_equal(first.test.u, again.test.u)
    assert np.abs(first.train.u - other.train.u).max() > 0.1
    assert np.abs(first.train.u - first.test.u).max() > 0.1


@pytest.mark.parametrize("excitation", ["multisine", "random_steps"])
def test_records_look_like_the_benchmarks(excitation):
    data = simulate_tanks(seed=0, excitation=excitation)
    assert describe(data.train) == ("train", 1024, "u", "y", "V", "V")
    assert describe(data.test) == ("test", 1024, "u", "y", "V", "V")
    for record in (data.train, data.test):
        # 1024 samples hold some 40 independent ones: mean and deviation scatter by a sixth of the latter.
        assert record.u.mean() == pytest.approx(2.8, abs=0.35)
        assert record.u.std() == pytest.approx(1.0, abs=0.35)
        assert record.u.min() >= 0.0
        assert record.u.max() <= 7.0
        # The level moves over most of its range and touches the rail; the benchmark's does 4 % of the time.
        assert record.y.min() < 3.0
        assert 0.0 < np.mean(record.y == 10.0) < 0.15


def test_the_multisine_has_the_benchmarks_spectrum():
    u = simulate_tanks(seed=0).train.u[:, 0]
    amplitude = np.abs(np.fft.rfft(u)) / 512
    strong, weak = math.sqrt(2.0 / (19 + 40 * 0.01)), 0.1 * math.sqrt(2.0 / (19 + 40 * 0.01))
    assert u.min() > 0.0  # nothing was cut to the pump's range
    assert amplitude[0] / 2 == pytest.approx(2.8)
    np.testing.assert_allclose(amplitude[1:20], strong)
    np.testing.assert_allclose(amplitude[20:60], weak)
    np.testing.assert_allclose(amplitude[60:], 0.0, atol=1e-12)  # rounding of the transform


@with_data
def test_the_benchmark_has_that_spectrum():
    u = datasets.load("cascaded_tanks").train.u[:, 0]
    ours = simulate_tanks(seed=0).train.u[:, 0]
    # The file has five digits.
    np.testing.assert_allclose(np.abs(np.fft.rfft(u)), np.abs(np.fft.rfft(ours)), atol=2e-3 * 512)


def test_the_noise_has_its_deviation_and_no_noise_gives_the_response():
    quiet, noisy = (simulate_tanks(seed=0, samples=4000, noise=noise).train for noise in (0.0, 0.2))
    np.testing.assert_array_equal(quiet.y[:, 0], tanks_response(quiet.u, ts=4.0))
    np.testing.assert_array_equal(quiet.u, noisy.u)
    inside = (noisy.y < 9.0) & (quiet.y < 8.5)
    # The deviation of 4000 samples scatters by 0.2 / sqrt(8000) = 0.0022; four times that.
    assert np.std((noisy.y - quiet.y)[inside]) == pytest.approx(0.2, abs=0.009)
    assert noisy.y.max() <= 10.0


@pytest.mark.parametrize("excitation", ["multisine", "random_steps"])
@pytest.mark.parametrize(("samples", "ts"), [(3, 4.0), (4, 0.01), (57, 300.0), (2000, 0.5)])
def test_any_length_and_sampling_time(excitation, samples, ts):
    data = simulate_tanks(seed=0, samples=samples, test_samples=5, ts=ts, excitation=excitation)
    assert (len(data.train), len(data.test)) == (samples, 5)
    assert data.train.ts == pytest.approx(ts)


def test_random_steps_hold_for_20_to_200_seconds():
    u = simulate_tanks(seed=0, samples=5000, ts=1.0, excitation="random_steps").train.u[:, 0]
    holds = np.diff(np.flatnonzero(np.diff(u)))
    # Sampling rounds both ends of a hold to whole seconds.
    assert 19 <= holds.min() < 40
    assert 180 < holds.max() <= 201


def test_level_and_spread_of_the_pump_are_free():
    u = simulate_tanks(seed=0, u_mean=1.5, u_std=0.25).train.u
    assert (u.mean(), u.std()) == (pytest.approx(1.5), pytest.approx(0.25))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": -1}, "`seed` must be a whole number of at least 0; got -1"),
        ({"seed": 0.5}, "`seed` must be a whole number of at least 0; got 0.5"),
        ({"samples": 2}, "`samples of the train record` must be a whole number of at least 3; got 2"),
        ({"test_samples": 1.5}, "`samples of the test record` must be a whole number of at least 3; got 1.5"),
        ({"ts": 0.0}, "`ts` must be a positive number; got 0.0"),
        ({"ts": "4"}, "`ts` must be a positive number; got '4'"),
        ({"noise": -0.1}, "`noise` must be a zero or positive number; got -0.1"),
        ({"u_std": float("nan")}, "`u_std` must be a zero or positive number; got nan"),
        ({"excitation": "multisin"}, "unknown excitation 'multisin'.*Did you mean 'multisine'"),
        ({"x0": (11.0, 5.0)}, "`x0` must be two levels from 0 to 10 V; got .11.0, 5.0."),
        ({"x0": (5.0,)}, "`x0` must be two levels from 0 to 10 V; got .5.0,."),
    ],
)
def test_settings_that_break_a_rule(changes, words):
    with pytest.raises(ConfigError, match=words):
        simulate_tanks(**({"seed": 0} | changes))


@pytest.mark.parametrize("u", [[[1.0, 2.0]], [1.0, float("nan")], []])
def test_a_pump_signal_that_breaks_a_rule(u):
    with pytest.raises(DataError, match=r"`u` must be a finite signal of one channel; got shape"):
        tanks_response(u, ts=4.0)
