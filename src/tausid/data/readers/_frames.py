"""Data frames and Parquet files -> a table. No frame library is imported: a frame is known by what it can do."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tausid.data.readers._tables import Column, Table, as_data_error, as_numbers
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
    return Table(source, "dataframe", tuple(columns), word="column", row_word="row")


def _frame_column(frame: Any, position: int, name: str, source: str) -> Column:
    return Column(name, functools.partial(_frame_numbers, frame, position, f"column {name!r} of {source}"))


def _frame_numbers(frame: Any, position: int, called: str) -> Float[np.ndarray, " N"]:
    if hasattr(frame, "iloc"):
        return _pandas_numbers(frame.iloc[:, position], called)
    if hasattr(frame, "to_series"):
        return as_numbers(frame.to_series(position).to_numpy(), called, "row {}".format)
    return arrow_numbers(frame.column(position), called)


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
    columns = tuple(Column(name, functools.partial(_parquet_numbers, path, name)) for name in names)
    return Table(f"'{path}'", path.stem, columns, word="column", row_word="row")


def _parquet_numbers(path: Path, name: str) -> Float[np.ndarray, " N"]:
    with as_data_error(path, "a whole Parquet file"), _import_parquet().ParquetFile(path) as file:
        column = file.read(columns=[name], use_threads=False).column(name)
        return arrow_numbers(column, f"column {name!r} of '{path}'")
