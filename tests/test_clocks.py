from __future__ import annotations

import numpy as np
import pytest
from problems import oscillator_record

import tausid
from tausid import ConfigError, DataError, Record
from tausid.data.clocks import (
    has_one_clock,
    held_between,
    inputs_at,
    median_step,
    on_one_clock,
    spans,
    split_at_gaps,
    split_steps,
)


def at_times(t, name: str = "r") -> Record:
    t = np.asarray(t, float)
    return Record.from_arrays(np.sin(t), np.cos(t), t=t, name=name)


def test_jitter_gaps_and_other_rates_are_no_one_clock():
    regular = at_times(np.arange(10) * 0.5)
    assert has_one_clock([regular, at_times(7.0 + np.arange(4) * 0.5)])
    assert not has_one_clock([regular, at_times(np.arange(10) * 0.25)])
    assert not has_one_clock([at_times([0.0, 1.0, 2.0, 3.1])])
    assert not has_one_clock([regular], ts=0.4)


def test_the_median_step_is_that_of_all_records():
    assert median_step([at_times([0.0, 1.0, 2.0, 30.0])]) == 1.0
    assert median_step([at_times([0.0, 1.0, 2.0]), at_times(np.arange(9) * 3.0)]) == 3.0


def test_spans_are_the_shortest_and_longest_time_of_some_steps():
    assert spans([at_times([0.0, 1.0, 3.0, 7.0]), at_times([0.0, 5.0, 6.0])], 2) == (3.0, 6.0)


def test_a_record_is_split_at_its_gaps_and_short_stretches_are_left_out():
    t = np.concatenate([np.arange(20), 100 + np.arange(3), 200 + np.arange(15)])
    parts = split_at_gaps(at_times(t), least=5)
    assert [(part.name, len(part)) for part in parts] == [("r[0:20]", 20), ("r[23:38]", 15)]
    assert parts[1].t[0] == 200.0
    assert len(split_at_gaps(at_times(t), least=5, max_gap=90.0)) == 2
    whole = at_times(t)
    assert split_at_gaps(whole, max_gap=1000.0) == (whole,)
    with pytest.raises(
        DataError, match=r"must have a stretch of 30 samples without a gap; its 3 stretches are shorter"
    ):
        split_at_gaps(at_times(t), least=30)


def test_a_stretch_without_any_measured_output_is_left_out():
    t = np.concatenate([np.arange(5), 100 + np.arange(5)])
    y = np.where(t < 50, t, np.nan)
    assert [p.name for p in split_at_gaps(Record.from_arrays(t, y, t=t))] == ["record[0:5]"]


def test_long_steps_are_split_into_equal_parts_and_short_ones_kept():
    t = np.array([0.0, 1.0, 4.0, 5.2])
    fine, places = split_steps(t, 1.5)
    np.testing.assert_allclose(fine, [0.0, 1.0, 2.5, 4.0, 5.2])
    np.testing.assert_array_equal(fine[places], t)
    same, own = split_steps(t, 3.0)
    assert same is t
    np.testing.assert_array_equal(own, np.arange(4))


def test_inputs_between_samples_are_held_or_interpolated():
    u = np.array([[0.0, 0.0], [3.0, 3.0], [9.0, 9.0]])
    places = split_steps(np.array([0.0, 1.0, 4.0]), 1.0)[1]
    np.testing.assert_allclose(held_between(u, places, (0.0, 1.0)).T, [[0, 3, 3, 3, 9], [0, 3, 5, 7, 9]])
    record = Record.from_arrays(u, np.arange(3.0), t=[0.0, 1.0, 4.0])
    np.testing.assert_allclose(inputs_at(record, np.array([0.5, 2.5]), (0.0, 1.0), 1e-9), [[0.0, 1.5], [3.0, 6.0]])


def test_a_new_clock_keeps_the_area_of_held_inputs_and_the_line_of_outputs():
    t = np.array([0.0, 1.0, 1.8, 3.1, 4.0, 5.0, 6.0])
    u = np.array([1.0, 5.0, 2.0, 7.0, 0.0, 3.0, 4.0])
    record = on_one_clock([Record.from_arrays(u, 2.0 * t, t=t)], hold="zero")[0]
    np.testing.assert_allclose(record.t, np.arange(7.0))
    np.testing.assert_allclose(record.y[:, 0], 2.0 * np.arange(7.0))
    np.testing.assert_allclose(np.sum(record.u[:-1]), np.sum(u[:-1] * np.diff(t)))
    np.testing.assert_allclose(record.u[1, 0], 0.8 * 5.0 + 0.2 * 2.0)
    np.testing.assert_allclose(on_one_clock([record], hold="first")[0].u, record.u)


def test_outputs_on_a_new_clock_are_missing_where_none_was_measured_near():
    t = np.array([0.0, 1.0, 2.0, 3.0, 9.0, 10.0, 11.0, 12.0, 13.0])
    record = on_one_clock([at_times(t)], hold="zero")[0]
    np.testing.assert_array_equal(np.isnan(record.y[:, 0]), (record.t > 3) & (record.t < 9))


def test_what_cannot_be_resampled_is_refused():
    long, short = at_times(np.arange(30) * 2.0), at_times([0.0, 0.5, 1.0], name="short")
    with pytest.raises(DataError, match="record 'short' must last two steps of 2 s; it lasts 1 s"):
        on_one_clock([long, short], hold="zero")
    with pytest.raises(ConfigError, match="`hold` must be 'zero' or 'first' here; got 'second'"):
        on_one_clock([long], hold="second")


def jittered(record: Record, *, jitter: float, seed: int) -> Record:
    """The response of the same system at other times, by a fine interpolation of a record that is sampled finely."""
    steps = 1.0 + jitter * np.random.default_rng(seed).uniform(-1.0, 1.0, len(record) // 10)
    t = np.cumsum(10 * record.ts * steps)
    t = t[t < record.t[-1]]
    y = np.interp(t, record.t, record.y[:, 0])
    return Record.from_arrays(np.interp(t, record.t, record.u[:, 0]), y, t=t)


@pytest.mark.parametrize("method", ["bla", "spectrum"])
def test_tau_of_a_jittered_record_is_that_of_a_regular_one(method):
    t = np.arange(0.0, 300.0, 0.05)
    record = Record.from_arrays(np.sin(t) + np.sin(0.5 * t), np.sin(t - 0.5) + 0.5 * np.sin(0.5 * t), ts=0.05)
    regular = jittered(record, jitter=0.0, seed=0)
    irregular = jittered(record, jitter=0.3, seed=0)
    expected = tausid.estimate_tau(regular, method=method, nx=2, hold="first")
    found = tausid.estimate_tau(irregular, method=method, nx=2, hold="first")
    # The interpolation error of half-second steps of these sines is (0.5^2 / 8) of them, three percent.
    assert found.tau == pytest.approx(expected.tau, rel=0.03)
    assert "resampled onto their median step" in found.description
    assert "resampled" not in expected.description


def test_tau_of_a_system_without_an_input_comes_from_its_outputs():
    t = np.arange(0.0, 200.0, 0.1)
    y = np.sin(0.7 * t) + 0.02 * np.random.default_rng(0).standard_normal(len(t))
    found = tausid.estimate_tau(Record.from_arrays(np.zeros((len(t), 0)), y, ts=0.1))
    # A sine has 1 / omega; differences over two steps of 0.1 s are off by a thousandth, the noise by a few percent.
    assert found.tau == pytest.approx(1.0 / 0.7, rel=0.05)
    assert found.method == "outputs" and found.bla is None


def test_a_picture_of_tau_shows_the_linear_model_of_a_jittered_record():
    record = oscillator_record(300)
    t = record.t + 0.1 * np.random.default_rng(0).random(300)
    irregular = Record.from_arrays(record.u, record.y, t=t)
    figure = tausid.plots.plot_tau(tausid.estimate_tau(irregular, nx=2), irregular)
    assert len(figure.axes) == 3
