from __future__ import annotations

import numpy as np
import pytest

from tausid import DataError, Record, Scaling


def test_normalized_data_have_zero_mean_and_unit_deviation_over_all_records():
    rng = np.random.default_rng(0)
    records = [Record.from_arrays(rng.normal(3e6, 2e6, (n, 2)), rng.normal(-1e-9, 4e-9, n), ts=1.0) for n in (50, 70)]
    scaling = Scaling.from_records(records)
    u = np.concatenate([scaling.normalize_u(r.u) for r in records])
    y = np.concatenate([scaling.normalize_y(r.y) for r in records])
    # Rounding of double precision only.
    np.testing.assert_allclose(np.concatenate([u.mean(0), y.mean(0)]), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([u.std(0), y.std(0)]), 1.0, rtol=1e-12)


def test_physical_units_come_back():
    record = Record.from_arrays([0.0, 1.0, 5.0], [2.0, 4.0, 9.0], ts=1.0)
    scaling = Scaling.from_records(record)
    np.testing.assert_allclose(scaling.physical_y(scaling.normalize_y(record.y)), record.y, rtol=1e-14)


def test_missing_outputs_are_left_out():
    record = Record.from_arrays([0.0, 1.0, 5.0], [2.0, np.nan, 4.0], ts=1.0)
    assert Scaling.from_records(record).y_mean[0] == 3.0


@pytest.mark.parametrize(
    ("u", "y", "message"),
    [
        ([1.0, 1.0], [0.0, 1.0], "input 'u' must vary over the training data; it is constant at 1"),
        ([0.0, 1.0], [7.5, 7.5], "output 'y' must vary over the training data; it is constant at 7.5"),
        ([0.0, 0.0], [0.0, 1.0], "input 'u' must vary"),
    ],
)
def test_a_constant_channel_is_named(u, y, message):
    with pytest.raises(DataError, match=message):
        Scaling.from_records(Record.from_arrays(u, y, ts=1.0))
