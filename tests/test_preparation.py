"""Steps of preparation against closed forms: sines below and above the new Nyquist frequency, lines, known grids."""

from __future__ import annotations

import numpy as np
import pytest

import tausid
from tausid import ConfigError, DataError, Record, prepare
from tausid.data.preparation import decimate, detrend, interpolate, resample, split, trim

TS = 0.01


def sines(*freq_hz: float, samples: int = 4000, missing: slice | None = None) -> Record:
    """A record of unit sines about an offset of 5, at 100 Hz from t = 10 s on."""
    t = 10.0 + TS * np.arange(samples)
    y = 5.0 + sum(np.sin(2 * np.pi * f * t) for f in freq_hz)
    u = 2.0 * y
    if missing is not None:
        y[missing] = np.nan
    return Record.from_arrays(u, y, t=t, units={"u": "V", "y": "m"}, name="sines")


def inner(record: Record) -> slice:
    """All but the ends, which the filter reaches over."""
    return slice(20, len(record) - 20)


@pytest.mark.parametrize(
    "change", [lambda r: decimate(r, 5), lambda r: resample(r, 0.05)], ids=["decimate", "resample"]
)
def test_a_slow_sine_stays_a_fast_one_goes_and_nothing_is_delayed(change):
    made = change(sines(1.0, 15.0))  # 15 Hz would come back as 5 Hz without the filter: the new Nyquist is at 10 Hz
    expected = 5.0 + np.sin(2 * np.pi * 1.0 * made.t)
    # The low-pass ripples by 0.2 % in its pass band and stops by 70 dB at 1.5 times its edge.
    np.testing.assert_allclose(made.y[inner(made), 0], expected[inner(made)], rtol=0, atol=5e-3)
    np.testing.assert_allclose(made.u, 2.0 * made.y, rtol=1e-12)
    np.testing.assert_allclose(made.t, 10.0 + 0.05 * np.arange(800), rtol=1e-12)
    assert (made.input_units, made.output_units, made.name) == (("V",), ("m",), "sines")
    assert np.abs(sines(15.0).y[::5, 0] - 5.0).max() > 0.9  # what every fifth sample alone would show


@pytest.mark.parametrize("ts", [0.007, 0.03, 0.004])
def test_resampling_to_any_ratio_follows_the_sine(ts):
    made = resample(sines(2.0), ts)
    expected = 5.0 + np.sin(2 * np.pi * 2.0 * made.t)
    np.testing.assert_allclose(made.y[inner(made), 0], expected[inner(made)], rtol=0, atol=5e-3)
    assert made.t[0] == 10.0
    assert made.ts == pytest.approx(ts)
    assert 10.0 + 39.99 - ts < made.t[-1] <= 10.0 + 39.99 + 1e-9


def test_the_ends_do_not_ring_from_an_offset_or_a_slope():
    t = TS * np.arange(1000)
    made = decimate(Record.from_arrays(t, 100.0 + 3.0 * t, ts=TS), 10)
    # A line is within the pass band; its continuation past the ends keeps it one, to the ripple of the filter.
    np.testing.assert_allclose(made.y[:, 0], 100.0 + 3.0 * made.t, rtol=0, atol=0.05)


def test_missing_outputs_stay_missing_with_what_the_filter_took_from_them():
    made = decimate(sines(1.0, missing=slice(1000, 1011)), 5)
    # Samples 1000 to 1010 are missing: new samples 200 to 202 lie on them, 199 and 203 within one new step.
    assert np.flatnonzero(np.isnan(made.y[:, 0])).tolist() == [199, 200, 201, 202, 203]
    whole = decimate(sines(1.0), 5)
    known = ~np.isnan(made.y[:, 0])
    # Beyond that only tails of the filter saw the line that bridges the gap: it is off by 1 - cos(pi/10) at most.
    np.testing.assert_allclose(made.y[known], whole.y[known], rtol=0, atol=0.01)


def test_decimating_by_one_changes_nothing_but_the_history():
    record = sines(1.0)
    made = decimate(record, 1)
    np.testing.assert_array_equal(made.y, record.y)
    assert made.history[0].startswith("decimate 1: 4000 to 4000 samples")


def test_an_irregular_clock_is_refused_with_the_step_that_helps():
    record = Record.from_arrays(np.arange(4.0), np.arange(4.0), t=[0.0, 1.0, 2.0, 4.5])
    for step in (lambda r: decimate(r, 2), lambda r: resample(r, 2.0)):
        with pytest.raises(DataError, match=r"steps are from 1 to 2.5 s.*--prepare \"interpolate 1\""):
            step(record)
    assert interpolate(record, 1.0).is_uniform


def test_interpolation_lies_on_lines_holds_inputs_and_leaves_gaps_empty():
    t = [0.0, 1.0, 2.5, 3.0, 7.0, 8.0]
    y = [0.0, 2.0, 5.0, np.nan, 9.0, 10.0]
    record = Record.from_arrays(np.arange(6.0), y, t=t)
    made = interpolate(record, 0.5)
    np.testing.assert_allclose(made.t, 0.5 * np.arange(17), rtol=1e-15)
    # Missing: next to the missing sample at 3 s, and within the gap from 3 to 7 s.
    expected = [0, 1, 2, 3, 4, 5, *[np.nan] * 8, 9, 9.5, 10]
    np.testing.assert_allclose(made.y[:, 0], expected, rtol=1e-12)
    np.testing.assert_array_equal(made.u[:, 0], [0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5])
    lines = interpolate(record, 0.5, inputs="linear")
    np.testing.assert_allclose(lines.u[:5, 0], [0.0, 0.5, 1.0, 1 + 1 / 3, 1 + 2 / 3], rtol=1e-12)
    assert made.history[0].startswith("interpolate 0.5 hold: 6 to 17 samples")


def test_a_straight_line_is_taken_out_of_what_was_measured():
    t = np.arange(50.0)
    y = 3.0 - 0.5 * t
    y[[4, 30]] = np.nan
    record = Record.from_arrays(np.sin(t), y, ts=1.0)
    made = detrend(record, "linear", channels=["y"])
    # Exact up to rounding of numbers of size 25.
    np.testing.assert_allclose(made.y[~np.isnan(y)], 0.0, atol=1e-13)
    assert np.isnan(made.y[[4, 30]]).all()
    np.testing.assert_array_equal(made.u, record.u)
    assert made.history == ("detrend linear: took out y 3 -0.5 t",)
    constant = detrend(record)
    assert np.nanmean(constant.y) == pytest.approx(0.0, abs=1e-13)
    assert constant.u.mean() == pytest.approx(0.0, abs=1e-15)


def test_trimming_by_time_and_by_samples():
    record = sines(1.0, samples=400)
    by_time = trim(record, 11.0, 12.0)
    assert (len(by_time), by_time.name) == (100, "sines[100:200]")
    np.testing.assert_array_equal(by_time.t, trim(record, 100, 200, unit="samples").t)
    assert len(trim(record, stop=11.0)) == 100
    assert trim(record).name == "sines"


def test_a_split_has_every_sample_once():
    record = sines(1.0, samples=10)
    first, last = split(record, 0.75)
    assert (len(first), len(last)) == (7, 3)
    np.testing.assert_array_equal(np.concatenate([first.t, last.t]), record.t)
    assert last.history == ("split 0.75 last: samples 7 to 10",)


def test_steps_as_text_are_the_functions_and_the_record_remembers_them():
    record = sines(1.0)
    made = prepare(record, "trim 10 40 s", "detrend linear", "decimate 5", "split 0.5 first")
    by_hand = split(decimate(detrend(trim(record, 10, 40), "linear"), 5), 0.5)[0]
    np.testing.assert_array_equal(made.y, by_hand.y)
    np.testing.assert_array_equal(made.t, by_hand.t)
    assert [step.split()[0] for step in made.history] == ["trim", "detrend", "decimate", "split"]
    assert "Ts 0.01 to 0.05 s, low-pass at 10 Hz" in made.history[2]
    assert record.history == ()
    np.testing.assert_array_equal(prepare(record, "interpolate 0.02 linear").t, interpolate(record, 0.02).t)
    np.testing.assert_array_equal(prepare(record, "resample 0.02").y, resample(record, 0.02).y)
    assert prepare(record).history == ()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("decimat 10", "unknown step of preparation 'decimat'.*Did you mean 'decimate'"),
        ("", "unknown step of preparation ''"),
        ("decimate", "`decimate` must be written as 'decimate FACTOR'; got 'decimate'"),
        ("decimate 2.5", "`decimate` must be written as"),
        ("decimate 0", "`factor` must be a whole number of at least 1; got 0"),
        ("resample fast", "`resample` must be written as 'resample TS'"),
        ("resample -1", "`ts` must be a positive number; got -1.0"),
        ("resample 1e-7", "`ts` must be a ratio of whole numbers up to 20000 of the old sampling time, 0.01 s"),
        ("interpolate 0", "`ts` must be a positive number"),
        ("interpolate 1e-12", "`ts` must give at most 1e9 samples"),
        ("interpolate 0.1 cubic", "unknown interpolation 'cubic'"),
        ("trim 1 2 3 4", r"`trim` must be written as 'trim START STOP \[s|samples\]'"),
        ("trim 1 2 h", "unknown unit 'h'"),
        ("trim nan 2", "`trim` must have numbers as limits"),
        ("detrend cubic", "unknown trend 'cubic'"),
        ("detrend linear z", "unknown channel 'z'; known: u, y"),
        ("split 0.5", "`split` must be written as 'split SHARE first|last'"),
        ("split 0.5 middle", "`split` must be written as"),
        ("split 1.5 first", "`share` must be between 0 and 1"),
    ],
)
def test_a_wrong_step_says_how_it_is_written(step, message):
    with pytest.raises(ConfigError, match=message):
        prepare(sines(1.0, samples=100), step)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("trim 50 60", "of 'sines', from 10 to 10.99 s, 0 lie from 50 to 60"),
        ("decimate 100", "`decimate 100` must leave at least two samples; 100 of 'sines' become 1"),
        ("resample 1", "`resample 1` must leave at least two samples"),
        ("interpolate 5", "`interpolate 5` must leave at least two samples"),
        ("split 0.01 first", "`split` must leave at least two samples in each part"),
    ],
)
def test_a_step_that_leaves_nothing_is_refused(step, message):
    with pytest.raises(DataError, match=message):
        prepare(sines(1.0, samples=100), step)


def test_the_model_remembers_what_was_done_to_its_data(tmp_path):
    data = tausid.datasets.simulate_tanks(samples=400, seed=0)
    train = prepare(data.train, "decimate 2")
    result = tausid.fit(
        train,
        tau=74.0,
        seed=0,
        recipe="windows",
        nx=2,
        progress=None,
        settings={"structure.hidden": (4,), "trainer.horizon": 16, "trainer.steps": 2},
    )
    (steps,) = result.model.provenance["preparation"].values()
    assert steps == list(train.history)
    loaded = tausid.load_model(result.model.save(tmp_path / "model.safetensors"))
    assert loaded.provenance["preparation"] == result.model.provenance["preparation"]
