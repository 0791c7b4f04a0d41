from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tausid import ConfigError, DataError, Record, Scaling
from tausid.windows import WindowSource


def counting_record(samples: int, first: float, ts: float = 1.0) -> Record:
    """Outputs that say where they are from: first, first + 1, ...; inputs a hundred above."""
    y = first + np.arange(samples)
    return Record.from_arrays(y + 100.0, y, ts=ts, name=f"from {first:g}")


IDENTITY = Scaling(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))


def test_windows_hold_consecutive_samples_of_one_record():
    records = [counting_record(10, 0.0, ts=1.0), counting_record(12, 1000.0, ts=2.0)]
    source = WindowSource.from_records(records, IDENTITY, horizon=4, n_past=3)
    assert len(source.starts) == (10 - 3 - 4 + 1) + (12 - 3 - 4 + 1)
    w = source.gather(jnp.arange(len(source.starts)))
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
    w = source.gather(jnp.arange(2))
    assert source.horizon == 9
    np.testing.assert_array_equal(w.measured[:, 0, 0], np.arange(9) < 6)
    np.testing.assert_array_equal(w.u[6:, 0, 0], 105.0)  # the last input held
    assert w.measured[:, 1].all()


def test_missing_outputs_are_masked_and_kept_out_of_the_past():
    y = np.arange(12.0)
    y[5] = np.nan
    record = Record.from_arrays(np.arange(12.0), y, ts=1.0)
    source = WindowSource.from_records([record], IDENTITY, horizon=3, n_past=2)
    assert set(source.starts.tolist()) == {2, 3, 4, 5, 8, 9}  # 6 and 7 would have sample 5 in their past
    w = source.gather(jnp.arange(len(source.starts)))
    assert np.isfinite(w.y).all()
    assert (~w.measured).sum() == 3  # sample 5 in the windows from 3, 4 and 5


def test_a_record_that_is_too_short_is_named():
    with pytest.raises(ConfigError, match=r"record 'from 0' must have at least 12 samples \(4 .* 8 .*\); got 10"):
        WindowSource.from_records([counting_record(10, 0.0)], IDENTITY, horizon=8, n_past=4)


def test_a_record_with_gaps_everywhere_is_refused():
    y = np.arange(12.0)
    y[::2] = np.nan
    record = Record.from_arrays(np.arange(12.0), y, ts=1.0)
    with pytest.raises(DataError, match="windows must have 2 measured outputs before them"):
        WindowSource.from_records([record], IDENTITY, horizon=3, n_past=2)
