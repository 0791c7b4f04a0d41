"""Data frames and Parquet files -> a table. No frame library is imported: a frame is known by what it can do."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tausid.data.readers._tables import Column, Table, as_data_error, as_numbers, with_units
from tausid.data.readers._unpacked import check_unpacked
from tausid.errors import DataError, MissingExtraError
from tausid.shapes import Float


def is_frame(thing: object) -> bool:
    """Whether something is a pandas or polars data frame, or an arrow table."""
    return hasattr(thing, "columns") and any(hasattr(thing, name) for name in ("iloc", "to_series", "column_names"))


def table_from_frame(frame: Any) -> Table:
    """The columns of a pandas or polars data frame or of an arrow table; a named index of pandas' is one of them."""
    source = "the data frame"
    names = frame.column_names if hasattr(frame, "column_names") else frame.columns
    columns = [_frame_column(frame, i, str(name), source) for i, name in enumerate(names)]
    index = getattr(frame, "index", None)
    if index is not None and isinstance(getattr(index, "name", None), str):
        columns.append(Column(index.name, functools.partial(_index_numbers, index, source)))
    return Table(source, "dataframe", with_units(columns), word="column", row_word="row")


def _frame_column(frame: Any, position: int, name: str, source: str) -> Column:
    series = functools.partial(_series, frame, position)
    called = f"column {name!r} of {source}"
    return Column(name, lambda: _frame_numbers(series(), called), texts=lambda: _texts(series()))


def _series(frame: Any, position: int) -> Any:
    if hasattr(frame, "iloc"):
        return frame.iloc[:, position]
    return frame.to_series(position) if hasattr(frame, "to_series") else frame.column(position)


def _frame_numbers(series: Any, called: str) -> Float[np.ndarray, " N"]:
    if hasattr(series, "iloc"):
        return _pandas_numbers(series, called)
    if hasattr(series, "combine_chunks"):  # arrow's
        return arrow_numbers(series, called)
    return as_numbers(series.to_numpy(), called, "row {}".format)


def _texts(series: Any) -> list[str]:
    """The cells of a column of text, blank where one is missing."""
    cells = series.to_pylist() if hasattr(series, "to_pylist") else series.to_list()
    return [cell if isinstance(cell, str) else "" for cell in cells]


def _pandas_numbers(series: Any, called: str) -> Float[np.ndarray, " N"]:
    if getattr(series.dtype, "kind", "") == "M":  # with or without a time zone
        return as_numbers(series.to_numpy(dtype="datetime64[ns]"), called)
    return as_numbers(series.to_numpy(), called, "row {}".format)


def _index_numbers(index: Any, source: str) -> Float[np.ndarray, " N"]:
    return _pandas_numbers(index.to_series(), f"column {index.name!r} of {source}")


def arrow_numbers(column: Any, called: str) -> Float[np.ndarray, " N"]:
    """A column of an arrow table as numbers, NaN where one is null."""
    try:
        values = column.to_numpy()
    except (TypeError, ValueError, NotImplementedError) as error:
        raise DataError(f"{called} must hold numbers; got {column.type} ({error}). Choose another one.") from None
    return as_numbers(values, called, "row {}".format)


def _import_parquet() -> ModuleType:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(
            'Parquet files need pyarrow, which is not installed. Install it with pip install "tausid[files]".'
        ) from None
    return pyarrow.parquet


def table_from_parquet(path: Path) -> Table:
    """The columns of a Parquet file."""
    parquet = _import_parquet()
    with as_data_error(path, "a Parquet file"), parquet.ParquetFile(path) as file:
        names = [str(name) for name in file.schema_arrow.names]
        groups = [file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)]
        check_unpacked(path, max(sum(groups), 8 * file.metadata.num_rows))
    columns = [
        Column(
            name,
            functools.partial(_parquet_numbers, path, name),
            texts=functools.partial(_parquet_texts, path, name),
        )
        for name in names
    ]
    return Table(f"'{path}'", path.stem, with_units(columns), word="column", row_word="row")


def _parquet_numbers(path: Path, name: str) -> Float[np.ndarray, " N"]:
    return arrow_numbers(_parquet_column(path, name), f"column {name!r} of '{path}'")


def _parquet_texts(path: Path, name: str) -> list[str]:
    return _texts(_parquet_column(path, name))


def _parquet_column(path: Path, name: str) -> Any:
    with as_data_error(path, "a whole Parquet file"), _import_parquet().ParquetFile(path) as file:
        return file.read(columns=[name], use_threads=False).column(name)
