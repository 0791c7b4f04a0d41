from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from tausid import ConfigError, DataError, Record, Scaling
from tausid.training.windows import Windows, WindowSource


def counting_record(samples: int, first: float, ts: float = 1.0) -> Record:
    """Outputs that say where they are from: first, first + 1, ...; inputs a hundred above."""
    y = first + np.arange(samples)
    return Record.from_arrays(y + 100.0, y, ts=ts, name=f"from {first:g}")


@eqx.filter_jit
def gather(source: WindowSource) -> tuple[Windows, jnp.ndarray]:
    """All windows, and where they start; compiled as one program, and not one per operation."""
    chosen = jnp.arange(source.count)
    return source.gather(chosen), source.starts(chosen)


IDENTITY = Scaling(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))


def test_windows_hold_consecutive_samples_of_one_record():
    records = [counting_record(10, 0.0, ts=1.0), counting_record(12, 1000.0, ts=2.0)]
    source = WindowSource.from_records(records, IDENTITY, horizon=4, n_past=3)
    assert source.count == (10 - 3 - 4 + 1) + (12 - 3 - 4 + 1)
    assert source.rows is None and source.lag is None and not source.gaps
    w, _ = gather(source)
    assert w.u.shape == (4, 10, 1)
    np.testing.assert_array_equal(np.diff(w.y[..., 0], axis=0), 1.0)
    np.testing.assert_array_equal(w.u, w.y + 100.0)
    np.testing.assert_array_equal(w.past_y[-1], w.y[0] - 1.0)
    np.testing.assert_array_equal(w.past_y[0], w.y[0] - 3.0)
    np.testing.assert_array_equal(w.record, (w.y[0, :, 0] >= 1000).astype(int))
    np.testing.assert_array_equal(w.dt, np.broadcast_to(np.where(w.record == 1, 2.0, 1.0), (3, 10)))
    assert w.measured.all()
    assert float(w.y[0, 0, 0]) == 3.0  # the first window starts right after the past samples
    assert float(w.y[-1, -1, 0]) == 1011.0  # and the last one ends with the record


def test_full_windows_cover_each_record_and_mask_what_is_beyond_a_shorter_one():
    records = [counting_record(6, 0.0), counting_record(9, 1000.0)]
    source = WindowSource.from_records(records, IDENTITY, horizon="full", n_past=0)
    assert source.count == 2
    w, _ = gather(source)
    assert source.horizon == 9
    np.testing.assert_array_equal(w.measured[:, 0, 0], np.arange(9) < 6)
    np.testing.assert_array_equal(w.u[6:, 0, 0], 105.0)  # the last input held
    assert w.measured[:, 1].all()


def test_missing_outputs_are_masked_and_interpolated_in_the_past():
    y = np.arange(12.0)
    y[5] = np.nan
    record = Record.from_arrays(np.arange(12.0), y, ts=1.0)
    source = WindowSource.from_records([record], IDENTITY, horizon=3, n_past=2)
    w, starts = gather(source)
    assert starts.tolist() == list(range(2, 10))
    assert np.isfinite(w.y).all()
    assert (~w.measured).sum() == 3  # sample 5 in the windows from 3, 4 and 5
    np.testing.assert_array_equal(w.past_y[:, 4, 0], [4.0, 4.0])  # the newest one is held: nothing comes after it
    np.testing.assert_array_equal(w.past_y[:, 5, 0], [4.0, 6.0])  # held from before the past
    longer = WindowSource.from_records([record], IDENTITY, horizon=3, n_past=4)
    np.testing.assert_allclose(gather(longer)[0].past_y[:, 3, 0], [3.0, 4.0, 5.0, 6.0])  # a straight line


def test_the_past_is_interpolated_over_true_time():
    t = np.array([0.0, 1.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    y = 10.0 * t
    y[1] = np.nan
    record = Record.from_arrays(t, y, t=t)
    source = WindowSource.from_records([record], IDENTITY, horizon=2, n_past=3, ts=1.0)
    # At 5 s the encoder sees 2, 3 and 4 s, on the line from 0 to 40: the missing output is not half the way.
    np.testing.assert_allclose(gather(source)[0].past_y[:, 0, 0], [20.0, 30.0, 40.0], rtol=1e-6)


def test_a_window_neither_starts_in_a_long_hole_of_the_outputs_nor_lies_in_it():
    y = np.arange(60.0)
    y[20:40] = np.nan
    record = Record.from_arrays(np.arange(60.0), y, ts=1.0)
    source = WindowSource.from_records([record], IDENTITY, horizon=5, n_past=3)
    w, starts = gather(source)
    # From 20 on nothing is measured before 40; from 41 on the past has one measured sample again.
    assert starts.tolist() == [*range(3, 20), *range(41, 56)]
    assert w.measured.any(axis=0).all()


def test_an_output_that_is_measured_rarely_is_held():
    y = np.stack([np.arange(60.0), np.where(np.arange(60) % 10 == 0, np.arange(60.0), np.nan)], axis=1)
    record = Record.from_arrays(np.arange(60.0), y, ts=1.0)
    scaling = Scaling(np.zeros(1), np.ones(1), np.zeros(2), np.ones(2))
    source = WindowSource.from_records([record], scaling, horizon=5, n_past=3)
    assert source.count == 60 - 3 - 5 + 1
    assert gather(source)[0].past_y[:, 14, 1].tolist() == [10.0, 10.0, 10.0]  # samples 14, 15, 16


@pytest.mark.parametrize(("hold", "between"), [("zero", 30.0), ("first", 45.0)])
def test_long_steps_are_split_inside_windows(hold, between):
    t = np.array([0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0])
    record = Record.from_arrays(10.0 * t, t, t=t)
    source = WindowSource.from_records([record], IDENTITY, horizon=5, n_past=2, longest=1.5, hold=hold)
    w, starts = gather(source)
    assert starts.tolist() == [2, 3]  # at samples, with five of the nine rows ahead
    np.testing.assert_allclose(w.dt[:, 0], [1.0, 1.5, 1.5, 1.0])
    np.testing.assert_array_equal(w.measured[:, 0, 0], [True, True, False, True, True])
    np.testing.assert_array_equal(w.u[:, 0, 0], [20.0, 30.0, between, 60.0, 70.0])


def test_the_encoder_sees_how_long_ago_its_samples_were():
    t = np.array([0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0])
    record = Record.from_arrays(t, t, t=t)
    source = WindowSource.from_records([record], IDENTITY, horizon=2, n_past=2, longest=1.5, ts=1.0)
    w, starts = gather(source)
    starts = np.asarray(starts)
    ago = np.stack([t[starts] - t[starts - 2], t[starts] - t[starts - 1]])
    np.testing.assert_allclose(w.lag, ago - np.array([[2.0], [1.0]]), atol=1e-6)
    # It sees its samples where they would have been on a regular clock, one and two steps ago; none newer than it has.
    expected = [np.interp(t[k] - np.array([2.0, 1.0]), t[k - 2 : k], t[k - 2 : k]) for k in starts]
    np.testing.assert_allclose(w.past_y[..., 0].T, expected, atol=1e-5)
    assert w.past_y[-1, 2, 0] == 3.0  # at 6 s, whose sample before was at 3 s


def test_a_record_that_is_too_short_is_named():
    with pytest.raises(ConfigError, match=r"record 'from 0' must have at least 12 samples \(4 .* 8 .*\); got 10"):
        WindowSource.from_records([counting_record(10, 0.0)], IDENTITY, horizon=8, n_past=4)


def test_outputs_that_are_never_measured_where_a_window_needs_them_are_refused():
    y = np.full(12, np.nan)
    y[0] = 1.0
    record = Record.from_arrays(np.arange(12.0), y, ts=1.0)
    with pytest.raises(DataError, match="every output measured shortly before them, and an output in them; no place"):
        WindowSource.from_records([record], IDENTITY, horizon=3, n_past=2)
