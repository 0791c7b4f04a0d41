"""Files as instruments write them: dates, units, remarks, encodings, blanks, numpy, Excel, bad samples."""

from __future__ import annotations

import datetime
import re
import shlex

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from commands import printed

import tausid
from tausid.data.outliers import find_marks, find_outliers
from tausid.data.readers import read_channels
from tausid.errors import DataError

STEPS = np.array([0.0, 0.25, 0.5, 0.75])
BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
ROWS = ["1.0,2.0", "1.5,2.5", "1.25,3.5", "1.0,3.0"]


def write(path, lines, encoding="utf-8"):
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return path


def stamped(path, stamps, header="t,u,y"):
    return write(path, [header, *(f"{stamp},{row}" for stamp, row in zip(stamps, ROWS, strict=True))])


def read(path, **options):
    return tausid.read(path, **{"inputs": "u", "outputs": "y", "time": "t"} | options)


def refusal(path, **options):
    with pytest.raises(DataError) as caught:
        read(path, **options)
    return str(caught.value)


def dates(form):
    return [(BEGIN + datetime.timedelta(seconds=step)).strftime(form) for step in STEPS]


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%dT%H:%M:%S.%f+02:00", "%Y%m%dT%H%M%S.%f"]
)
def test_iso_dates_are_time_stamps_and_it_is_said(form, tmp_path):
    record = read(stamped(tmp_path / "log.csv", dates(form)))
    np.testing.assert_array_equal(record.t, STEPS)
    assert "time read as dates, from 2024-05-01 12:00:00" in record.history[0]


def test_dates_of_any_order_are_read_with_their_format_and_never_guessed(tmp_path):
    path = stamped(tmp_path / "log.csv", dates("%d.%m.%Y %H:%M:%S.%f"))
    message = refusal(path)
    assert "line 2 has '01.05.2024 12:00:00.000000'" in message
    suggested = shlex.split(re.search(r"--time-format ('.*?')", message)[1])[0]
    np.testing.assert_array_equal(read(path, time_format=suggested).t, STEPS)
    assert "must hold dates written as '%d/%m/%Y'; line 2" in refusal(path, time_format="%d/%m/%Y")
    assert "--time-format" in read_channels(path).channels[0].note


def test_a_column_of_dates_with_and_without_zones_is_refused(tmp_path):
    mixed = [*dates("%Y-%m-%dT%H:%M:%S.%fZ")[:2], *dates("%Y-%m-%dT%H:%M:%S.%f")[2:]]
    assert "line 4 has '2024-05-01T12:00:00.500000'" in refusal(stamped(tmp_path / "log.csv", mixed))


@pytest.mark.parametrize(
    ("unit", "factor"), [("seconds", 1), ("milliseconds", 1000), ("microseconds", 10**6), ("nanoseconds", 10**9)]
)
def test_numbers_since_1970_are_recognized(unit, factor, tmp_path):
    stamps = [BEGIN.timestamp() * factor + step * factor for step in STEPS]
    record = read(stamped(tmp_path / "log.csv", [f"{stamp:.2f}" for stamp in stamps]))
    np.testing.assert_allclose(record.t, STEPS, atol=1e-6)  # doubles of nanoseconds since 1970 are 0.26 us apart
    assert record.history == (f"time read as {unit} since 1970, from 2024-05-01 12:00:00 UTC on",)


def test_a_time_columns_unit_counts(tmp_path):
    record = read(stamped(tmp_path / "log.csv", 1000 * STEPS, header="t [ms],u,y"))
    np.testing.assert_array_equal(record.t, STEPS)
    assert record.history == ("time read in ms",)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_dates_as_text_in_frames(make):
    frame = make({"t": dates("%Y-%m-%d %H:%M:%S.%f"), "u": [1.0, 2.0, 1.0, 2.0], "y": [0.0, 1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(read(frame).t, STEPS)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_headers_in_any_common_encoding(encoding, tmp_path):
    path = write(tmp_path / "log.csv", ["Füllstand,Öffnung", *ROWS], encoding)
    record = tausid.read(path, inputs="Öffnung", outputs="Füllstand", ts=1.0)
    np.testing.assert_array_equal(record.y[:, 0], [1.0, 1.5, 1.25, 1.0])


def test_columns_between_blanks_as_daisy_has_them(tmp_path):
    values = np.random.default_rng(0).normal(size=(30, 3))
    lines = ["".join(f"{v:16.7e}" for v in row) + " " for row in values]
    record = tausid.read(write(tmp_path / "ballbeam.dat", lines), inputs=[0, 1], outputs=2, ts=0.1)
    np.testing.assert_allclose(np.hstack([record.u, record.y]), values, rtol=1e-7)
    headed = tausid.read(
        write(tmp_path / "log.txt", ["t [s]  u   y (V)", "0 1,5 2", "1 2,5  3"]), outputs="y", time="t"
    )
    assert (headed.y[:, 0].tolist(), headed.output_units) == ([2.0, 3.0], ("V",))


@pytest.mark.parametrize("mark", ["#", "%"])
def test_remarks_before_the_table_and_a_header_among_them(mark, tmp_path):
    path = write(tmp_path / "log.csv", [f"{mark} bench 3, Tuesday", f"{mark}", "u,y", *ROWS[:3], "off,1"])
    assert "line 7 has 'off'" in refusal(path, time=None, ts=1.0)
    np.savetxt(tmp_path / "saved.txt", np.eye(3), header="u y z", comments=f"{mark} ")
    assert [channel.name for channel in read_channels(tmp_path / "saved.txt").channels] == ["u", "y", "z"]


def test_units_in_the_header_and_in_a_row_under_it(tmp_path):
    path = write(
        tmp_path / "a.csv", ["Drehzahl [1/min],level (V),tank (left),tank (right),u (1)", "1,2,3,4,5", "2,3,4,5,6"]
    )
    record = tausid.read(path, inputs=["Drehzahl", "tank (left)", "u (1)"], outputs="level (V)", ts=1.0)
    assert (record.input_names, record.input_units) == (("Drehzahl", "tank (left)", "u (1)"), ("1/min", "", ""))
    assert (record.output_names, record.output_units) == (("level",), ("V",))
    below = tausid.read(
        write(tmp_path / "b.csv", ["t;u;y", "s;[V];m", "0,0;1,5;2", "0,5;1;3"]), inputs="u", outputs="y", time="t"
    )
    assert (below.input_units, below.output_units, below.ts) == (("V",), ("m",), 0.5)


def test_numpy_files(tmp_path):
    np.savez(tmp_path / "a.npz", u=STEPS, y=2 * STEPS, t=STEPS)
    np.testing.assert_array_equal(read(tmp_path / "a.npz").y[:, 0], 2 * STEPS)
    np.save(tmp_path / "b.npy", np.column_stack([STEPS, 3 * STEPS]))
    np.testing.assert_array_equal(tausid.read(tmp_path / "b.npy", outputs="column2", ts=1.0).y[:, 0], 3 * STEPS)
    np.save(tmp_path / "c.npy", np.rec.fromarrays([STEPS, STEPS, STEPS**2], names="t,u,y"))
    np.testing.assert_array_equal(read(tmp_path / "c.npy").y[:, 0], STEPS**2)
    np.save(tmp_path / "d.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "must be a numpy file" in refusal(tmp_path / "d.npy")


def test_excel_workbooks(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (
        ["t", "u (V)", "y"],
        ["", "", "m"],
        *([BEGIN.replace(tzinfo=None) + datetime.timedelta(seconds=s), 1.5, 2 * s] for s in STEPS),
    ):
        sheet.append(row)
    book.save(tmp_path / "log.xlsx")
    record = read(tmp_path / "log.xlsx")
    np.testing.assert_array_equal([record.t, record.y[:, 0]], [STEPS, 2 * STEPS])
    assert (record.input_units, record.output_units) == (("V",), ("m",))


def test_repeated_times_are_dropped_where_that_is_asked_for(tmp_path):
    path = stamped(tmp_path / "log.csv", [0.0, 0.5, 0.5, 1.0])
    assert "--prepare drop-repeated-times" in refusal(path)
    record = read(path, prepare=["drop-repeated-times", "trim 0 2 samples"])
    np.testing.assert_array_equal(record.y[:, 0], [2.0, 2.5])
    assert record.history[0] == "drop-repeated-times: 1 of 4 samples"
    assert '--prepare "drop-repeated-times"' in tausid.look(path, outputs="y", time="t").suggestions[0]


# Samples that are no measurements


def smooth(samples=2000):
    return np.sin(0.01 * np.arange(samples)) + 0.02 * np.random.default_rng(0).normal(size=samples)


@pytest.mark.parametrize("mark", [-999.0, 9999.0, 1e30, -77.7])
def test_marks_are_found_wherever_they_stand_and_only_they(mark):
    values = smooth()
    assert find_marks(values) == []
    values[[3, 900, 901, 902, 1999]] = mark
    assert find_marks(values) == [mark]


@pytest.mark.parametrize("seed", range(5))
def test_outliers_are_found_and_only_they(seed):
    values, rng = smooth(), np.random.default_rng(seed)
    where = np.sort(rng.choice(2000, 6, replace=False))
    assert len(find_outliers(values)) == 0
    values[where] += rng.choice([-1, 1], 6) * rng.uniform(4, 50, 6)
    assert find_outliers(values).tolist() == where.tolist()


def test_steps_pulses_and_switches_are_no_outliers():
    steps = np.repeat(np.random.default_rng(0).normal(size=100), 20)
    assert len(find_outliers(steps)) == 0
    switch = np.zeros(1000)
    switch[[10, 500]] = 1.0
    assert len(find_outliers(switch)) == 0
    assert find_marks(switch) == []


def test_preparation_takes_out_marks_and_outliers_and_clips():
    u, y = smooth(), smooth()
    u[7], y[[9, 10]], y[1000] = -999.0, -999.0, 30.0
    record = tausid.Record.from_arrays(u, y, ts=0.1)
    done = tausid.prepare(record, "blank -999", "drop-outliers", "clip -1 1 y")
    assert done.u[7, 0] == u[6]
    assert np.flatnonzero(np.isnan(done.y[:, 0])).tolist() == [9, 10, 1000]
    assert np.nanmax(np.abs(done.y)) == 1.0
    assert done.history[:2] == ("blank -999: u 1, y 2 samples", "drop-outliers: y 1 samples")
    assert "outliers" not in " ".join(tausid.look(done).suggestions)


def test_look_names_their_lines_and_what_it_suggests_can_be_pasted(tmp_path):
    u, y = smooth(), smooth()
    y[[4, 800]], u[[100, 300]] = -999.0, (40.0, 50.0)
    rows = [f"{0.1 * i:.1f},{a},{b}" for i, (a, b) in enumerate(zip(u, y, strict=True))]
    path = write(tmp_path / "my log.csv", ["t,pump 1 (V),level", *rows])
    data = [path, "--input", "pump 1", "--output", "level", "--time", "t"]
    said = printed("look", *data)
    assert "level is -999 at lines 6, 802 (2 in all)" in said
    assert "pump 1 has 2 outliers, far from neighbours and range, at lines 102, 302 (2 in all)" in said
    steps = [word for found in re.findall(r"--prepare .*(?=\.\n)", said) for word in shlex.split(found)]
    assert steps == ["--prepare", "drop-outliers 'pump 1'", "--prepare", "blank -999"]
    again = printed("look", *data, *steps)
    assert "drop-outliers: pump 1 2 samples" in again
    assert "far from" not in again
    assert "--time t" in printed("look", path)


def test_tau_says_what_is_wrong_with_the_data(tmp_path, capfd):
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=400), np.zeros(400)
    for k in range(399):
        y[k + 1] = 0.9 * y[k] + 0.1 * u[k]
    y[50] = 1e30
    path = write(tmp_path / "log.csv", ["ms,u,y", *(f"{1714564800000 + 100 * k},{u[k]},{y[k]}" for k in range(400))])
    printed("tau", path, "--input", "u", "--output", "y", "--time", "ms", "--prepare", "blank 1e30")
    said = capfd.readouterr().err
    assert "note: log: time read as milliseconds since 1970" in said
    assert "note: log: blank 1e+30: y 1 samples" in said
