from __future__ import annotations

import numpy as np
import pytest

from tausid import DataError, Dataset, Record
from tausid.data.records import as_records


def record(**changes) -> Record:
    values = {"u": np.arange(5.0), "y": np.arange(5.0) ** 2, "ts": 2.0, **changes}
    return Record.from_arrays(values.pop("u"), values.pop("y"), **values)


def test_a_record_keeps_its_own_read_only_copy():
    u = np.arange(5.0)
    made = record(u=u)
    u[0] = 99.0
    assert made.u[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        made.u[0, 0] = 1.0


def test_the_clock_comes_from_the_sampling_time_or_from_stamps():
    assert record().t.tolist() == [0, 2, 4, 6, 8]
    stamped = record(ts=None, t=[0.0, 1.0, 3.0, 4.0, 5.0])
    assert stamped.ts == 1.0
    assert not stamped.is_uniform
    assert record().is_uniform


def test_a_part_keeps_its_time_stamps_and_names():
    part = record(units={"u": "V", "y": "m"}).part(1, 4)
    assert part.t.tolist() == [2, 4, 6]
    assert part.y[:, 0].tolist() == [1, 4, 9]
    assert part.output_units == ("m",)


def test_missing_outputs_are_allowed():
    assert np.isnan(record(y=[0.0, np.nan, 1.0, 2.0, 3.0]).y[1, 0])


def test_a_record_without_inputs_is_possible():
    assert record(u=np.zeros((5, 0)), input_names=()).nu == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"u": np.arange(4.0)}, "must have the same number of samples; got 4, 5 and 5. Trim"),
        ({"u": [0.0], "y": [0.0]}, "at least two samples; got 1"),
        ({"ts": 0.0}, "`ts` must be a positive number of seconds; got 0.0"),
        ({"ts": -1.0}, "`ts` must be a positive number of seconds; got -1.0"),
        ({"ts": float("nan")}, "`ts` must be a positive number of seconds; got nan"),
        ({"ts": None}, "either the sampling time `ts` or time stamps; got neither"),
        ({"t": np.arange(5.0)}, "either the sampling time `ts` or time stamps; got both"),
        ({"ts": None, "t": [0.0, 1.0, 1.0, 2.0, 3.0]}, "sample 1 is at 1 s and sample 2 at 1 s"),
        ({"ts": None, "t": [0.0, 1.0, np.nan, 2.0, 3.0]}, "time of 'record' must be finite and below.*; sample 2"),
        (
            {"u": [0.0, 1.0, np.nan, 2.0, 3.0]},
            "input 'u' of 'record' must be known at every sample; 1 values",
        ),
        ({"y": [0.0, 1.0, np.inf, 2.0, 3.0]}, "sample 2 is infinite. Replace it by NaN"),
        ({"y": [np.nan] * 5}, "output 'y' of 'record' must have measured samples; all are NaN"),
        ({"u": ["a", "b", "c", "d", "e"]}, "`u` must be an array of numbers"),
        ({"u": np.zeros((5, 1, 1))}, r"`u` must have shape \(samples,\) or \(samples, channels\)"),
        ({"ts": None, "t": np.zeros((5, 2))}, "`t` must be one column of time stamps; got 2"),
        ({"u": np.zeros((5, 0)), "y": np.zeros((5, 0))}, "at least one channel"),
        ({"u": np.arange(5) * 1j}, "`u` must be an array of numbers; got values of type complex128"),
        (
            {"y": [0.0, 1.0, 1e300, 2.0, 3.0]},
            r"channel 'y' of 'record' must be below 1e\+100 in size; sample 2 is 1e\+300",
        ),
        ({"ts": 1e300}, r"time of 'record' must be finite and below 1e\+100 s in size; sample 1 is 1e\+300"),
        ({"input_names": [7]}, r"`input_names` must be text; got \(7,\). Write them in quotes"),
        ({"input_names": ["a", "b"]}, "`input_names` must have one entry per input channel; got 2 for 1"),
        ({"input_names": ["y"]}, "channel names must differ; got 'y' twice"),
        ({"units": {"u": "V"}}, "`units` must give a unit for every channel; 'y' has none"),
        ({"units": {"u": "V", "y": "V", "z": "V"}}, "must name channels of the record; got 'z'"),
    ],
)
def test_bad_records_are_refused_with_the_rule_and_the_remedy(changes, message):
    with pytest.raises(DataError, match=message):
        record(**changes)


def test_the_constructor_wants_two_dimensions():
    with pytest.raises(DataError, match=r"`u` of 'record' must have 2 dimension\(s\), time first; got 1"):
        Record(np.zeros(5), np.zeros((5, 1)), np.arange(5.0), ("u",), ("y",), ("",), ("",))


def test_datasets_need_the_same_channels_in_all_records():
    two_inputs = record(u=np.zeros((5, 2)))
    with pytest.raises(DataError, match="all records must have the same channels"):
        Dataset(record(), two_inputs)


def test_one_record_or_several_become_a_tuple():
    one = record()
    assert as_records(one) == (one,)
    assert as_records([one, one]) == (one, one)
    with pytest.raises(DataError, match="at least one Record; got none"):
        as_records([])
    with pytest.raises(DataError, match="only Record objects; got int"):
        as_records([one, 3])
