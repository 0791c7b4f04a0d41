"""Malformed files and arrays by the thousand: each gives a valid record or a DataError, nothing else, and soon.

The files of every kind start as good ones and are cut, overwritten and shuffled; `make test-slow` tries many more.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import h5py
import jaxtyping
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tausid
from tausid import DataError, Record
from tausid.data.inspection import look
from tausid.data.readers import _isolated, read, read_channels
from tausid.results.plots import plot_record

SEED_COLUMNS = {"t": np.arange(6.0), "u": np.array([1.0, -2.0, 3.0, 1e9, 0.0, 1.0]), "y": np.linspace(0, 1e-9, 6)}


pytestmark = pytest.mark.usefixtures("one_reading_process")


@pytest.fixture(scope="module", autouse=True)
def short_patience() -> Iterator[None]:
    """A damaged file on which HDF5 hangs costs two seconds and not a minute; wrong arrays come through, as users'."""
    patch = pytest.MonkeyPatch()
    patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    patch.setattr(_isolated, "SECONDS", 2.0)
    yield
    patch.undo()


def seed_csv() -> bytes:
    rows = "".join(f"{t!r},{u!r},{y!r}\n" for t, u, y in zip(*(v.tolist() for v in SEED_COLUMNS.values()), strict=True))
    return f"t,u,y\n{rows}".encode()


def seed_mat(**options: object) -> bytes:
    struct = {"u": SEED_COLUMNS["u"], "y": SEED_COLUMNS["y"], "Ts": 0.5, "InputName": "pump"}
    cell = np.array([SEED_COLUMNS["u"], "text"], dtype=object)
    file = io.BytesIO()
    more = {} if options.get("format") == "4" else {"s": struct, "c": cell, "note": "text"}
    scipy.io.savemat(file, {**SEED_COLUMNS, **more}, **options)
    return file.getvalue()


def seed_hdf5(*, matlab: bool = False) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=512 if matlab else 0) as file:
        for name, values in SEED_COLUMNS.items():
            file[name] = values[None] if matlab else values
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
        file["group/x"] = SEED_COLUMNS["u"]
        file["group/round"] = file["/"]  # a cycle
        file["soft"] = h5py.SoftLink("/group")
        file["nowhere"] = h5py.SoftLink("/missing")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/u")
        file["table"] = np.array([(1, 2.0)] * 4, dtype=[("a", "i4"), ("b", "f8")])
        file.create_dataset("packed", data=np.arange(6.0), chunks=(3,), compression="gzip")
        cells = file.create_dataset("cells", (1, 2), dtype=h5py.ref_dtype)
        cells[0, 0], cells[0, 1] = cells.ref, file["group"].ref  # a cell in itself
        cells.attrs["MATLAB_class"] = np.bytes_("cell")
    raw = bytearray(buffer.getvalue())
    if matlab:
        raw[: len(b"MATLAB 7.3 MAT-file")] = b"MATLAB 7.3 MAT-file"
    return bytes(raw)


def seed_parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({**SEED_COLUMNS, "note": ["a", "b", None, "d", "e", "f"]}), buffer)
    return buffer.getvalue()


SEEDS = {
    "text.csv": seed_csv(),
    "utf16.csv": seed_csv().decode().encode("utf-16"),
    "v5.mat": seed_mat(),
    "packed.mat": seed_mat(do_compression=True),
    "v4.mat": seed_mat(format="4"),
    "v73.mat": seed_hdf5(matlab=True),
    "plain.h5": seed_hdf5(),
    "plain.parquet": seed_parquet(),
}
# HDF5's library may need its two seconds; the fast test tries fewer of these.
FAST = {"v73.mat": 60, "plain.h5": 60}

byte = st.sampled_from([0, 1, 9, 10, 44, 127, 128, 255]) | st.integers(0, 255)
change = st.tuples(
    st.sampled_from(["set", "cut", "drop", "repeat", "insert"]), st.floats(0, 1), byte, st.integers(1, 64)
)


def damage(raw: bytes, changes: list[tuple[str, float, int, int]]) -> bytes:
    data = bytearray(raw)
    for how, where, value, count in changes:
        at = int(where * len(data))
        if how == "set":
            data[at : at + 1] = bytes([value])
        elif how == "cut":
            data = data[:at]
        elif how == "drop":
            del data[at : at + count]
        elif how == "repeat":
            data[at:at] = data[at : at + count]
        else:
            data[at:at] = bytes([value]) * count
    return bytes(data)


def check_file(path: Path) -> None:
    """Read it in every way: a record that keeps its rules, or an error of ours."""
    for choice in (
        {"inputs": "u", "outputs": "y", "time": "t", "fill": "hold"},
        {"inputs": 0, "outputs": 1, "ts": 1.0},
        {},
    ):
        try:
            record = read(path, **choice)
        except DataError as error:
            assert str(error)
        else:
            assert_valid(record)
    try:
        channels = read_channels(path)
    except DataError:
        return
    assert look(channels).suggestions


def assert_valid(record: Record) -> None:
    assert len(record.u) == len(record.y) == len(record.t) >= 2
    assert record.ny >= 1
    assert np.isfinite(record.u).all()
    assert not np.isinf(record.y).any()
    assert (np.diff(record.t) > 0).all()
    assert record.ts > 0
    assert isinstance(record.is_uniform, bool)


def fuzz_files(name: str, folder: Path, examples: int) -> None:
    path = folder / name

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.lists(change, min_size=1, max_size=6))
    def run(changes: list[tuple[str, float, int, int]]) -> None:
        path.write_bytes(damage(SEEDS[name], changes))
        check_file(path)

    run()


@pytest.mark.parametrize("name", SEEDS)
def test_the_files_that_are_damaged_were_good(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(SEEDS[name])
    record = read(path, inputs="u", outputs="y", time="t")
    np.testing.assert_array_equal(record.u[:, 0], SEED_COLUMNS["u"])
    np.testing.assert_array_equal(record.y[:, 0], SEED_COLUMNS["y"])


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_give_a_record_or_a_data_error(name, tmp_path):
    fuzz_files(name, tmp_path, FAST.get(name, 150))


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
def test_many_damaged_files_give_a_record_or_a_data_error(name, tmp_path):
    fuzz_files(name, tmp_path, 3000)


CELLS = ["", " ", "0", "-1.5", "1,5", "1e308", "1e999", "-inf", "nan", "NA", "0x1F", "\u0661", "1_0", '"', "\r", "\x00"]
cell = (
    st.sampled_from([*CELLS, "12 V", "²", "1e-320", "\ufeff", "é", "a" * 200])
    | st.floats().map(repr)
    | st.text(max_size=5)
)
text_file = st.builds(
    lambda rows, separator, end, encoding: end.join(separator.join(row) for row in rows).encode(encoding, "replace"),
    st.lists(st.lists(cell, max_size=5), max_size=8),
    st.sampled_from([",", ";", "\t", ", ", "|"]),
    st.sampled_from(["\n", "\r\n", "\r", "\x85", "\n\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1", "utf-32"]),
)


@settings(max_examples=300, deadline=None, database=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(text_file)
def test_any_text_file_gives_a_record_or_a_data_error(tmp_path, raw):
    path = tmp_path / "data.csv"
    path.write_bytes(raw)
    check_file(path)


mat_array = hnp.arrays(
    st.sampled_from(["f8", "f4", "i2", "u1", "c16", "U3"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)
mat_value = mat_array | st.text(max_size=5) | st.floats() | st.booleans()
VARIABLES = st.sampled_from(["u", "y", "t", "Ts", "z"])
FIELDS = st.sampled_from(["u", "y", "Ts", "InputName", "SamplingInstants", "x"])
mat_struct = st.recursive(
    mat_value,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, database=None, derandomize=True,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(st.dictionaries(VARIABLES, mat_struct, max_size=4))
def test_any_content_of_a_matlab_file_gives_a_record_or_a_data_error(tmp_path, content):
    path = tmp_path / "data.mat"
    scipy.io.savemat(path, content)
    check_file(path)


@settings(max_examples=100, deadline=None, database=None, derandomize=True,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(
    st.dictionaries(
        st.sampled_from(["u", "y", "t", "Ts", "z"]),
        mat_struct | st.lists(st.none() | st.floats() | st.text()),
        max_size=4,
    )
)
def test_any_mapping_gives_a_record_or_a_data_error(content):
    for choice in ({"inputs": "u", "outputs": "y", "time": "t"}, {"inputs": [], "outputs": "y", "ts": 1.0}, {}):
        try:
            assert_valid(read(content, **choice))
        except DataError:
            continue


numbers = st.floats() | st.sampled_from([0.0, 1e308, -1e308, 5e-324, 1e100, np.nan, np.inf])
any_array = hnp.arrays(st.sampled_from(["f8", "f4", "i8", "u1", "?", "c8", "U2", "M8[s]"]),
                       hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))  # fmt: skip


@settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    u=any_array | st.lists(numbers, max_size=5),
    y=any_array | st.lists(numbers, max_size=5),
    t=st.none() | st.lists(numbers, max_size=5),
    ts=st.none() | numbers,
    names=st.none() | st.lists(st.text(max_size=2), max_size=3),
)
def test_any_arrays_give_a_record_or_a_data_error(u, y, t, ts, names):
    try:
        record = Record.from_arrays(u, y, ts=ts, t=t, input_names=names)
    except DataError as error:
        assert str(error)
    else:
        assert_valid(record)
        assert look(record).clock.ts == record.ts


@settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(max_size=4) | st.integers() | st.floats(), max_size=3), any_array, any_array, any_array)
def test_any_constructor_arguments_give_a_record_or_a_data_error(names, u, y, t):
    try:
        assert_valid(Record(u, y, t, tuple(names), ("y",), ("",) * len(names), ("",)))
    except DataError:
        return


STEPS = ["trim", "detrend", "decimate", "resample", "interpolate", "split", "x", ""]
ARGUMENTS = ["0", "1", "2", "-1", "0.5", "nan", "inf", "1e-300", "linear", "first", "samples", "u", "1e308"]


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=2), st.lists(st.sampled_from(ARGUMENTS), max_size=3))
def test_any_preparation_gives_a_record_or_an_error_of_ours(names, arguments):
    y = np.sin(np.arange(40.0))
    y[7] = np.nan
    record = Record.from_arrays(np.cos(np.arange(40.0)), y, ts=0.5)
    try:
        prepared = tausid.prepare(record, *(" ".join([name, *arguments]) for name in names))
    except (DataError, tausid.ConfigError):
        return
    assert_valid(prepared)
    assert len(prepared.history) == len(names)
    plot_record(prepared)
