"""`read` on MATLAB, HDF5 and Parquet files and on frames: what others wrote is read back, or refused in words."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from scipy.sparse import csc_array

import tausid
from tausid import DataError
from tausid.data.readers import _isolated, read, read_channels

pytestmark = pytest.mark.usefixtures("one_reading_process")

T = np.array([0.0, 0.5, 1.5, 2.0])
U = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
Y = np.array([0.1, 0.2, 0.3, 1e-9])
STRUCT = {
    "InputData": U,
    "OutputData": Y[:, None],
    "SamplingInstants": T[:, None],
    "Ts": np.zeros((0, 0)),
    "InputName": np.array([["pump"], ["valve"]], dtype=object),
    "InputUnit": np.array([["V"], ["%"]], dtype=object),
    "OutputName": np.array([["level"]], dtype=object),
    "OutputUnit": "m",
}


def refusal(source: object, **choice: object) -> str:
    with pytest.raises(DataError) as caught:
        read(source, **choice)
    return str(caught.value)


def save_v73(path: Path, content: dict) -> Path:
    """A MATLAB file of version 7.3 as MATLAB lays it out: arrays transposed, text as numbers, cells as references."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in content.items():
            _save_v73(file, file, name, value)
    raw = bytearray(path.read_bytes())
    raw[:19] = b"MATLAB 7.3 MAT-file"
    path.write_bytes(raw)
    return path


def _save_v73(file: h5py.File, where: h5py.Group, name: str, value: object) -> None:
    if isinstance(value, dict):
        where.create_group(name).attrs["MATLAB_class"] = np.bytes_("struct")
        for key, inner in value.items():
            _save_v73(file, where[name], key, inner)
        return
    array = np.asarray(value)
    kind = "double"
    if isinstance(value, str):
        array, kind = np.array([[ord(letter)] for letter in value], dtype=np.uint16), "char"
    elif array.dtype == object:
        kind, cells = "cell", array
        array = np.empty(cells.T.shape, dtype=h5py.ref_dtype)
        for place, cell in enumerate(cells.ravel(order="F")):
            inner = f"#refs#/{name}{place}"
            _save_v73(file, file, inner, cell)
            array[np.unravel_index(place, array.shape)] = file[inner].ref
    elif array.size == 0:
        array = np.array([0, 0], dtype=np.uint64)
    else:
        array = np.atleast_2d(array).T
    made = where.create_dataset(name, data=array, dtype=array.dtype)
    made.attrs["MATLAB_class"] = np.bytes_(kind)
    if kind == "double" and np.size(value) == 0:
        made.attrs["MATLAB_empty"] = 1


def save_v5(path: Path, content: dict) -> Path:
    scipy.io.savemat(path, content)
    return path


MATLAB = pytest.mark.parametrize("save", [save_v5, save_v73], ids=["v5", "v73"])


@MATLAB
def test_variables_of_a_matlab_file_are_channels(save, tmp_path):
    path = save(tmp_path / "bench.mat", {"t": T[:, None], "vir": U[:, :1], "qm": Y[None, :], "kp": 160.2})
    record = read(path, inputs="vir", outputs="qm", time="t")
    assert (record.name, record.input_names, record.output_names) == ("bench", ("vir",), ("qm",))
    np.testing.assert_array_equal(record.t, T)
    np.testing.assert_array_equal(record.u, U[:, :1])
    np.testing.assert_array_equal(record.y[:, 0], Y)


@MATLAB
def test_a_matrix_is_one_channel_per_column_or_all_of_them_by_its_name(save, tmp_path):
    path = save(tmp_path / "bench.mat", {"u": U, "y": Y})
    np.testing.assert_array_equal(read(path, inputs="u", outputs="y", ts=0.5).u, U)
    second = read(path, inputs=["u2"], outputs="y", ts=0.5)
    assert second.input_names == ("u2",)
    np.testing.assert_array_equal(second.u, U[:, 1:])


@MATLAB
def test_a_struct_like_iddata_says_all_itself(save, tmp_path):
    record = read(save(tmp_path / "z.mat", {"z": STRUCT}))
    assert (record.input_names, record.output_names) == (("pump", "valve"), ("level",))
    assert (record.input_units, record.output_units) == (("V", "%"), ("m",))
    np.testing.assert_array_equal(record.t, T)
    np.testing.assert_array_equal(record.u, U)
    np.testing.assert_array_equal(record.y[:, 0], Y)


@MATLAB
def test_u_y_and_ts_are_enough_and_options_go_first(save, tmp_path):
    path = save(tmp_path / "z.mat", {"data": {"u": U, "y": Y, "Ts": 0.25}})
    record = read(path)
    assert (record.ts, record.input_names, record.output_names) == (0.25, ("u1", "u2"), ("y",))
    assert read(path, inputs="u2", ts=2.0).ts == 2.0
    assert read(path, inputs=[], outputs="data.y", ts=2.0).nu == 0


@MATLAB
def test_two_structs_need_to_be_told_apart(save, tmp_path):
    one = {"u": U[:, 0], "y": Y, "Ts": 0.25}
    path = save(tmp_path / "z.mat", {"est": one, "val": one | {"y": 2 * Y}})
    message = refusal(path)
    assert "must have an output; none was named" in message
    assert all(name in message for name in ("est.u", "est.y", "est.Ts", "val.y"))
    assert "channel 'y'" in (message := refusal(path, inputs="est.u", outputs="y", ts=1.0))
    assert "it may be est.y or val.y. Give the full name" in message
    np.testing.assert_array_equal(read(path, inputs="val.u", outputs="val.y", ts=1.0).y[:, 0], 2 * Y)
    both = read(path, inputs="val.u", outputs=["est.y", "val.y"], ts=1.0)
    assert both.output_names == ("est.y", "val.y")


@MATLAB
def test_an_unknown_channel_names_the_nearest(save, tmp_path):
    message = refusal(save(tmp_path / "bench.mat", {"vir": Y, "qm": Y}), inputs="virr", outputs="qm", ts=1.0)
    assert "bench.mat': unknown channel 'virr'; known: qm, vir. Did you mean 'vir'?" in message


@MATLAB
def test_a_matrix_with_time_along_its_rows_is_not_turned_silently(save, tmp_path):
    message = refusal(save(tmp_path / "bench.mat", {"u": U.T, "y": Y}), inputs="u", outputs="y", ts=1.0)
    assert "channel 'u' of" in message
    assert "must have one sample per row; got 2 rows and 4 columns. Transpose it" in message


@MATLAB
def test_channels_of_different_length_are_refused_and_time_is_no_exception(save, tmp_path):
    path = save(tmp_path / "bench.mat", {"u": U[:3, 0], "y": Y, "t": np.arange(5.0)})
    assert "must have the same number of samples; got 3 and 4" in refusal(path, inputs="u", outputs="y", ts=1.0)
    assert "must have the same number of samples; got 4 and 5" in refusal(path, inputs=[], outputs="y", time="t")


@MATLAB
def test_a_missing_input_names_its_samples_and_the_way_out(save, tmp_path):
    holes = np.array([np.nan, 1.0, np.nan, np.nan])
    path = save(tmp_path / "bench.mat", {"u": holes, "y": Y, "t": T})
    message = refusal(path, inputs="u", outputs="y", time="t")
    assert "input channel 'u' of" in message
    assert "sample 0 has nan, the first of samples 0, 2 to 3 (3 in all)" in message
    assert "`fill`: hold or linear" in message


def test_text_complex_and_sparse_variables_are_no_channels(tmp_path):
    content = {
        "note": "pump 3",
        "z": Y * 1j,
        "s": csc_array(U),
        "y": Y,
        "cube": np.zeros((2, 2, 2)),
        "none": np.zeros((0, 1)),
    }
    path = save_v5(tmp_path / "bench.mat", content)
    assert "unknown channel 'note'" in refusal(path, inputs="note", outputs="y", ts=1.0)
    for name, message in {
        "z": "must hold real numbers in full; got ndarray of complex128",
        "s": "must hold real numbers in full; got csc",
        "cube": "must be a vector or a matrix; got shape (2, 2, 2)",
        "none": "must hold samples; it is empty",
    }.items():
        assert message in refusal(path, inputs=name, outputs="y", ts=1.0)


def test_an_object_of_a_matlab_class_comes_with_the_command_that_saves_its_parts(tmp_path):
    path = save_v73(tmp_path / "z.mat", {"y": Y})
    with h5py.File(path, "a") as file:
        file.create_dataset("z", data=np.array([1, 2], dtype=np.uint32)).attrs["MATLAB_object_decode"] = 3
    assert "s = struct('u', z.u, 'y', z.y, 'Ts', z.Ts)" in refusal(path, inputs="z", outputs="y", ts=1.0)


def test_datasets_groups_tables_and_units_of_an_hdf5_file(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["run1/pump"] = U[:, 0].astype(np.float32)
        file["run1/pump"].attrs["units"] = "V"
        file["run1/level"] = Y
        file["run1/level"].attrs["unit"] = np.bytes_("m")
        file["table"] = np.array(list(zip(T, Y, strict=True)), dtype=[("t", "f8"), ("y", "f8")])
        file["many"] = U
        file["text"] = "abc"
    record = read(path, inputs="run1/pump", outputs="level", time="table/t")
    assert (record.input_names, record.input_units, record.output_units) == (("pump",), ("V",), ("m",))
    np.testing.assert_array_equal(record.u[:, 0], U[:, 0])
    np.testing.assert_array_equal(record.t, T)
    np.testing.assert_array_equal(read(path, inputs="many", outputs="table/y", ts=1.0).u, U)
    assert "channel 'text' of" in refusal(path, inputs="text", outputs="level", ts=1.0)


def test_links_in_circles_to_nowhere_and_to_other_files_are_left_out(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["y"] = Y
        file["inner/back"] = file["/"]
        file["inner/nowhere"] = h5py.SoftLink("/missing")
        file["inner/outside"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/y")
    assert [channel.name for channel in read_channels(path).channels] == ["y"]


def test_a_dataset_that_claims_more_than_its_file_can_hold_is_refused_before_it_fills_the_memory(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["y"] = Y
        file.create_dataset("u", shape=(10**13,), chunks=(1000,), dtype="f8")
    assert "claims shape (10000000000000,), which the file cannot hold" in refusal(
        path, inputs="u", outputs="y", ts=1.0
    )


def test_a_crash_or_a_hang_of_the_library_is_an_error_about_the_file(tmp_path, monkeypatch, one_reading_process):
    monkeypatch.setattr(_isolated, "Worker", one_reading_process)  # a process for each file, as users have it
    path = save_v5(tmp_path / "bench.mat", {"u": Y, "y": Y})
    monkeypatch.setattr(_isolated, "SECONDS", 0.0)
    monkeypatch.setattr(_isolated, "SECONDS_PER_MEGABYTE", 0.0)
    assert "it is damaged: reading it takes too long" in refusal(path, inputs="u", outputs="y", ts=1.0)
    monkeypatch.setattr(_isolated, "SECONDS", 60.0)
    path.write_bytes(path.read_bytes()[:-8])
    assert "must be a MATLAB file; it is damaged, cut short" in refusal(path, inputs="u", outputs="y", ts=1.0)
    for python in ("/bin/false", str(tmp_path / "nothing")):
        monkeypatch.setattr(sys, "executable", python)
        assert f"{python!r} did not start" in refusal(path, inputs="u", outputs="y", ts=1.0)


def test_a_file_that_kills_the_process_that_reads_it_leaves_the_next_one_unharmed(tmp_path):
    path = save_v5(tmp_path / "bench.mat", {"u": Y, "y": Y})
    worker = _isolated.Worker()
    worker.ask(path, {})
    worker.process.kill()
    with pytest.raises(DataError, match="it is damaged: its library crashed on it"):
        worker.ask(path, {"open": str(path), "kind": "mat5"})
    assert len(worker.ask(path, {"open": str(path), "kind": "mat5"})[0]["columns"]) == 2
    worker.close()


def test_the_process_finds_what_this_one_finds(tmp_path):
    """A path that was changed after the start, as in a notebook."""
    source = str(Path(tausid.__file__).parent.parent)
    save_v5(tmp_path / "bench.mat", {"u": Y, "y": Y})
    read_it = f"print(tausid.read({str(tmp_path / 'bench.mat')!r}, inputs='u', outputs='y', ts=1.0))"
    code = f"import sys; sys.path.insert(0, {source!r}); import tausid; {read_it}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "4 samples" in done.stdout, done.stderr


def test_a_parquet_file_with_dates_nulls_and_text(tmp_path):
    stamps = [datetime.datetime(2024, 5, 1) + datetime.timedelta(seconds=s) for s in T]
    table = pa.table({"when": stamps, "u": [1, 2, 3, 4], "y": [0.5, None, 0.25, 1.0], "on": [True, False, True, True],
                      "note": ["a", None, "b", "c"]})  # fmt: skip
    path = tmp_path / "log.parquet"
    pq.write_table(table, path)
    record = read(path, inputs=["u", "on"], outputs="y", time="when")
    np.testing.assert_array_equal(record.t, T)
    np.testing.assert_array_equal(record.u[:, 1], [1, 0, 1, 1])
    np.testing.assert_array_equal(record.y[:, 0], [0.5, np.nan, 0.25, 1.0])
    message = refusal(path, inputs="note", outputs="y", ts=1.0)
    assert "column 'note' of" in message
    assert "must hold numbers; row 0 has 'a'" in message


def frames() -> dict[str, object]:
    columns = {"time": T, "u": U[:, 0], "y": Y}
    return {"pandas": pd.DataFrame(columns), "polars": pl.DataFrame(columns), "arrow": pa.table(columns)}


@pytest.mark.parametrize("kind", frames())
def test_a_frame_gives_the_record_of_its_columns(kind):
    record = read(frames()[kind], inputs=["u"], outputs=["y"], time="time", units={"u": "V", "y": "m"}, name="run")
    np.testing.assert_array_equal(record.t, T)
    np.testing.assert_array_equal(record.u, U[:, :1])
    np.testing.assert_array_equal(record.y[:, 0], Y)
    assert (record.name, record.output_units) == ("run", ("m",))
    with pytest.raises(DataError, match=r"unknown column 'tim'.*Did you mean 'time'"):
        read(frames()[kind], inputs=["u"], outputs=["y"], time="tim")


def test_pandas_dates_with_a_time_zone_missing_whole_numbers_and_a_named_index():
    when = pd.Timestamp("2024-05-01", tz="Europe/Berlin") + pd.to_timedelta(T, unit="s")
    frame = pd.DataFrame({"y": pd.array([1, None, 3, 4], dtype="Int64"), "u": Y}, index=pd.Index(when, name="when"))
    record = read(frame, inputs="u", outputs="y", time="when")
    np.testing.assert_array_equal(record.t, T)
    np.testing.assert_array_equal(record.y[:, 0], [1.0, np.nan, 3.0, 4.0])


def test_polars_dates_and_durations():
    stamps = [datetime.datetime(2024, 5, 1) + datetime.timedelta(seconds=s) for s in T]
    frame = pl.DataFrame({"when": stamps, "since": [datetime.timedelta(seconds=s) for s in T], "y": Y})
    for name in ("when", "since"):
        np.testing.assert_array_equal(read(frame, outputs="y", time=name).t, T)


def test_two_columns_of_one_name_go_by_position():
    frame = pd.DataFrame(np.column_stack([U, Y]), columns=["x", "x", "y"])
    assert "stands at positions 0 and 1. Give the position" in refusal(frame, inputs="x", outputs="y", ts=1.0)
    np.testing.assert_array_equal(read(frame, inputs=1, outputs="y", ts=1.0).u[:, 0], U[:, 1])


def test_what_is_no_file_and_no_frame_is_refused(tmp_path):
    assert "must be the path of a file, a data frame or a mapping" in refusal(3, outputs="y", ts=1.0)
    assert "must exist" in refusal(tmp_path / "nothing.mat", outputs="y")
    assert "it is a folder" in refusal(tmp_path, outputs="y")
    assert "must be one that the system knows" in refusal("a\0b.mat", outputs="y")
    os.mkfifo(tmp_path / "pipe.mat")
    assert "it is a device or a pipe" in refusal(tmp_path / "pipe.mat", outputs="y")
    (tmp_path / "book.xlsx").write_bytes(b"PK\x03\x04rest")
    assert "must be a whole archive; it is damaged" in refusal(tmp_path / "book.xlsx", outputs="y")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("data.csv", "u,y\n1,2\n")
    assert "it is an archive. Unpack it first" in refusal(tmp_path / "data.zip", outputs="y")


@pytest.mark.parametrize(
    ("name", "kind"), [("x.mat", "a MATLAB file"), ("x.h5", "an HDF5 file"), ("x.parquet", "a Parquet file")]
)
def test_a_file_that_is_not_what_its_ending_says(name, kind, tmp_path):
    (tmp_path / name).write_text("u,y\n1,2\n3,4\n")
    message = refusal(tmp_path / name, inputs="u", outputs="y", ts=1.0)
    assert f"must be {kind}; it is damaged, cut short or of another kind" in message


def test_what_a_file_is_decides_and_not_its_ending(tmp_path):
    path = save_v5(tmp_path / "bench.mat", {"u": Y, "y": Y}).rename(tmp_path / "bench.csv")
    np.testing.assert_array_equal(read(path, inputs="u", outputs="y", ts=1.0).y[:, 0], Y)


@pytest.mark.parametrize(("library", "name"), [("h5py", "x.h5"), ("pyarrow", "x.parquet")])
def test_a_missing_library_names_the_extra(library, name, tmp_path):
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    (tmp_path / f"{library}.py").write_text("raise ImportError('not installed')")
    path = os.pathsep.join([str(tmp_path), str(Path(tausid.__file__).parent.parent)])
    call = f"tausid.read({str(tmp_path / name)!r}, outputs='y')"
    code = f"import tausid\ntry: {call}\nexcept tausid.errors.MissingExtraError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert 'pip install "tausid[files]"' in done.stdout, done.stderr


# Missing inputs


@pytest.mark.parametrize(
    ("fill", "expected"), [("hold", [1.0, 1.0, 1.0, 4.0, 4.0]), ("linear", [1.0, 1.0, 3.25, 4.0, 4.0])]
)
def test_missing_inputs_are_filled_only_when_asked(fill, expected):
    columns = {"t": [0.0, 1.0, 4.0, 5.0, 6.0], "u": [np.nan, 1.0, np.nan, 4.0, np.nan], "y": np.arange(5.0)}
    record = read(columns, inputs="u", outputs="y", time="t", fill=fill)
    # Linear in time, not in samples: from 1 at 1 s to 4 at 5 s.
    np.testing.assert_allclose(record.u[:, 0], expected, rtol=1e-15)
    assert record.history == (f"fill {fill}: input 'u' at samples 0, 2, 4 (3 in all)",)


def test_filling_neither_hides_infinity_nor_an_empty_input_nor_touches_outputs():
    y = [0.0, np.nan, 2.0]
    assert "input channel 'u'" in refusal(
        {"u": [1.0, np.inf, 2.0], "y": y}, inputs="u", outputs="y", ts=1.0, fill="hold"
    )
    assert "input channel 'u'" in refusal({"u": [np.nan] * 3, "y": y}, inputs="u", outputs="y", ts=1.0, fill="hold")
    record = read({"u": [1.0, 2.0, 3.0], "y": y}, inputs="u", outputs="y", ts=1.0, fill="linear")
    np.testing.assert_array_equal(record.y[:, 0], y)
    assert record.history == ()
    with pytest.raises(tausid.ConfigError, match="unknown fill 'cubic'; known: hold, linear"):
        read({"u": [1.0, 2.0], "y": [1.0, 2.0]}, inputs="u", outputs="y", ts=1.0, fill="cubic")


def test_missing_inputs_of_a_text_file_are_named_by_their_lines(tmp_path):
    (tmp_path / "log.csv").write_text("u,y\n1,2\n,3\n,4\n5,6\n,7\n8,9\n")
    message = refusal(tmp_path / "log.csv", inputs="u", outputs="y", ts=1.0)
    assert "line 3 has a blank cell, the first of lines 3 to 4, 6 (3 in all)" in message
    record = tausid.read_csv(tmp_path / "log.csv", inputs="u", outputs="y", ts=1.0, fill="hold")
    np.testing.assert_array_equal(record.u[:, 0], [1, 1, 1, 5, 5, 8])


# Real files


def test_the_original_emps_files_give_the_records_of_the_dataset(benchmark_folder):
    data = tausid.datasets.load("emps")
    for record, name in ((data.train, "DATA_EMPS.mat"), (data.test, "DATA_EMPS_PULSES.mat")):
        own = read(benchmark_folder / "emps" / name, inputs="vir", outputs="qm", time="t")
        np.testing.assert_array_equal(own.u, record.u)
        np.testing.assert_array_equal(own.y, record.y)
        # The file's own stamps lie within 0.1 us of the 1 kHz clock of the dataset.
        np.testing.assert_allclose(own.t, record.t, rtol=0, atol=1e-7)
        assert own.is_uniform


def test_the_original_silverbox_file_gives_the_records_of_the_dataset(benchmark_folder):
    data = tausid.datasets.load("silverbox")
    own = read(benchmark_folder / "silverbox" / "SNLS80mV.csv", inputs="V1", outputs="V2", ts=1 / 610.35)
    steps = {
        "train": ("trim 40650 127400 samples", "split 0.75 first"),
        "multisine": ("trim 40650 127400 samples", "split 0.75 last"),
        "arrow_full": ("trim 100 40575 samples",),
    }
    records = {record.name: record for record in (data.train, *data.tests)}
    for name, todo in steps.items():
        part = tausid.prepare(own, *todo)
        np.testing.assert_array_equal(part.u, records[name].u)
        np.testing.assert_array_equal(part.y, records[name].y)
        np.testing.assert_array_equal(part.t, records[name].t)
