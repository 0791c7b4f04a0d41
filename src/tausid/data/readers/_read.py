"""The readers that users call, and how the kind of a file is told."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.readers._assemble import choose, record_from_table
from tausid.data.readers._csv import table_from_excel, table_from_text
from tausid.data.readers._frames import is_frame, table_from_frame, table_from_parquet
from tausid.data.readers._isolated import open_isolated
from tausid.data.readers._tables import Key, Keys, Table, as_data_error, check_file
from tausid.data.readers._trees import Leaf, table_from_tree
from tausid.data.readers._unpacked import check_unpacked
from tausid.data.records import Record
from tausid.data.steps import REPEATED
from tausid.data.steps import prepare as apply_steps
from tausid.errors import DataError

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# MATLAB writes a header of its own in front of HDF5's.
MATLAB_HEADER = 512
# The endings of data files: what a folder is searched for, and what a file is where its first bytes do not say it.
ENDINGS = {
    **dict.fromkeys((".csv", ".txt", ".tsv", ".dat"), "text"),
    **dict.fromkeys((".npz", ".npy"), "numpy"),
    ".xlsx": "excel",
    ".mat": "mat5",
    **dict.fromkeys((".h5", ".hdf5", ".hdf"), "hdf5"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}


def read(
    source: str | os.PathLike[str] | Any,
    *,
    inputs: Keys | None = None,
    outputs: Keys | None = None,
    ts: float | None = None,
    time: Key | None = None,
    time_format: str | None = None,
    units: Mapping[str, str] | None = None,
    fill: str | None = None,
    prepare: Sequence[str] = (),
    name: str | None = None,
) -> Record:
    """Read measured inputs and outputs from a file of any known kind, or from a data frame.

    Text files (CSV), Excel and numpy files, MATLAB files of all versions, Parquet and HDF5 files are told apart by
    what is in them. A
    struct with the fields of MATLAB's `iddata` (`u`, `y`, `Ts`, or `InputData`, `OutputData`, `SamplingInstants`,
    with names and units) says itself what its inputs, outputs and clock are.

    Args:
        source: path of a file, a pandas or polars data frame, an arrow table, or a mapping from names to arrays.
        inputs: names of the input channels, or one name; a number counts channels from zero, and the name of a matrix
            stands for all its columns. By default those that the file itself calls inputs, else none.
        outputs: names of the output channels, likewise; may be left out only where the file itself names them.
        ts: sampling time in seconds; the record then starts at t = 0.
        time: the channel of time stamps, instead of `ts`: seconds; seconds, milli-, micro- or nanoseconds since 1970;
            dates, or ISO 8601 text. The last two become seconds since the first.
        time_format: how dates are written that are no ISO 8601, as for `datetime.strptime`: `%d.%m.%Y %H:%M:%S`.
        units: unit of each channel by its name, all channels or none; by default what the file says.
        fill: what to do about missing inputs: `hold` (the last known value), `linear` (between the known ones), both
            with the nearest known value at the ends; None refuses them.
        prepare: steps as for `tausid.prepare`, and `drop-repeated-times`, which is done first: of samples with one and
            the same time stamp only the first is kept.
        name: what to call the record; by default the file's name without its ending.

    Raises:
        ConfigError: an unknown way to fill.
        DataError: the file, a channel, a sample or the clock breaks a rule; the message names it.
        MissingExtraError: the library for this kind of file is not installed.

    Example:
        >>> record = read({"pump": [1.0, 2.0, 2.0], "level": [0.0, 0.1, 0.3]}, inputs="pump", outputs="level", ts=4.0)
        >>> record.y[:, 0]
        array([0. , 0.1, 0.3])
    """
    with closing(open_table(source)) as table:
        choice = choose(table, inputs, outputs, ts=ts, time=time)
        drop = REPEATED in prepare
        record = record_from_table(
            table, choice, units=units, fill=fill, name=name, time_format=time_format, drop_repeated=drop
        )
    return apply_steps(record, *(step for step in prepare if step != REPEATED))


def read_csv(
    path: str | os.PathLike[str],
    *,
    inputs: Keys,
    outputs: Keys,
    ts: float | None = None,
    time: Key | None = None,
    time_format: str | None = None,
    units: Mapping[str, str] | None = None,
    fill: str | None = None,
    name: str | None = None,
) -> Record:
    """Read measured inputs and outputs from a text file with one sample per line.

    Commas, semicolons, tabs or blanks separate the cells, and a decimal comma is understood where commas do not
    separate. Lines that begin with # or % before the table are remarks; units may stand in the header, `level (V)`, or
    in a row of their own under it. Without a header the columns are called `column1`, `column2`, ... Blank cells at
    the end of a column are no samples; a blank cell before that is a missing sample in an output, an error in an input.

    Args:
        path: the file; in UTF-8, UTF-16 or Latin-1.
        inputs: names of the input columns, or one name; a number counts columns from zero.
        outputs: names of the output columns, likewise.
        ts: sampling time in seconds; the record then starts at t = 0.
        time: the time column, instead of `ts`, as for `read`; it may go on after the last sample.
        time_format: how dates are written that are no ISO 8601, as for `datetime.strptime`.
        units: unit of each channel by its column's name; either all channels or none.
        fill: `hold` or `linear` for missing inputs, as for `read`; None refuses them.
        name: what to call the record; by default the file's name without its ending.

    Returns:
        The record, its channels named as the columns.

    Raises:
        ConfigError: an unknown way to fill.
        DataError: the file, a column, a cell or the clock breaks a rule; the message names the line.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pump.csv"
        >>> _ = path.write_text("t;u;y\\n0,0;1;0,5\\n0,1;1;0,7\\n")
        >>> read_csv(path, inputs="u", outputs="y", time="t").y[:, 0]
        array([0.5, 0.7])
    """
    table = table_from_text(Path(path))
    choice = choose(table, inputs, outputs, ts=ts, time=time)
    return record_from_table(table, choice, units=units, fill=fill, name=name, time_format=time_format)


def open_table(source: Any) -> Table:
    """The columns of a file, a frame or a mapping."""
    if isinstance(source, str | os.PathLike):
        return _open_file(check_file(Path(source)))
    if is_frame(source):
        return table_from_frame(source)
    if isinstance(source, Mapping):
        tree = {str(key): _leaf(value) for key, value in source.items()}
        return table_from_tree(tree, source="the mapping", name="arrays", joint=".")
    raise DataError(
        f"`source` must be the path of a file, a data frame or a mapping from names to arrays; got "
        f"{type(source).__name__}. Use Record.from_arrays for arrays."
    )


def _open_file(path: Path) -> Table:
    kind = _kind_of_file(path)
    here: dict[str, Callable[[Path], Table]] = {
        "text": table_from_text,
        "excel": table_from_excel,
        "numpy": _table_from_numpy,
        "parquet": table_from_parquet,
    }
    return here[kind](path) if kind in here else open_isolated(path, kind)


def _table_from_numpy(path: Path) -> Table:
    """The arrays of an `.npz` file by name; that of an `.npy` file, or the fields of a structured one."""
    with as_data_error(path, "a numpy file"):
        # Objects are refused. An array that claims more than its file holds is so before memory is asked for.
        loaded = np.load(path, mmap_mode=None if zipfile.is_zipfile(path) else "r")
        if isinstance(loaded, np.ndarray):
            arrays = {name: loaded[name] for name in loaded.dtype.names} if loaded.dtype.names else {"column": loaded}
        else:
            with loaded:
                arrays = dict(loaded)
    tree = {str(name): _leaf(array) for name, array in arrays.items()}
    return table_from_tree(tree, source=f"'{path}'", name=path.stem, joint=".")


def _kind_of_file(path: Path) -> str:
    """What a file is, by its first bytes; by its ending where these say nothing."""
    with path.open("rb") as file:
        top = file.read(MATLAB_HEADER + len(HDF5_SIGNATURE))
    if top.startswith(b"PAR1"):
        return "parquet"
    if top.startswith(HDF5_SIGNATURE):
        return "hdf5"
    if top[MATLAB_HEADER:] == HDF5_SIGNATURE:
        return "mat73" if top.startswith(b"MATLAB") else "hdf5"
    if top.startswith(b"\x93NUMPY"):
        return "numpy"
    if top.startswith(b"PK\x03\x04"):
        return _kind_of_archive(path)
    return "mat5" if top.startswith(b"MATLAB 5") else ENDINGS.get(path.suffix.lower(), "text")


def _kind_of_archive(path: Path) -> str:
    with as_data_error(path, "a whole archive"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        check_unpacked(path, sum(member.file_size for member in archive.infolist()))
    if "xl/workbook.xml" in names:
        return "excel"
    if names and all(name.endswith(".npy") for name in names):
        return "numpy"
    raise DataError(f"file '{path}' must be of a known kind; it is an archive. Unpack it first, or export it as CSV.")


def _leaf(value: Any) -> Any:
    """A value of a mapping as part of a tree."""
    if isinstance(value, Mapping):
        return {str(key): _leaf(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        refused = f"be an array of numbers; got: {error}. Convert it first."
        return Leaf((1,), list, refused=refused)
    if array.dtype.kind == "U":
        return [str(item) for item in array.ravel()]
    return Leaf(array.shape, lambda: array)
