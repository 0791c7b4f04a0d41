"""What all kinds of files become before they are a record: columns by name, and what the file says about them."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import re
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tausid.errors import DataError, MissingExtraError, unknown_name
from tausid.shapes import Float

Key: TypeAlias = str | int
Keys: TypeAlias = Key | Sequence[Key]

# Messages list at most so many stretches of rows, and at most so many names.
LISTED_STRETCHES = 5
LISTED_NAMES = 40
# A name with its unit at the end, in brackets: `level (V)`, `Drehzahl [1/min]`; `u (1)` has none.
_UNIT = re.compile(r"(.*\S)\s*[\[(](?!\d+[\])])([^\[\]()]{1,12})[\])]")


@dataclass(frozen=True)
class Column:
    """One column or variable of a file; its numbers are read when they are asked for."""

    name: str  # its full name, unique in a well-made file: `bench.u`, `run1/pump`
    load: Callable[[], Float[np.ndarray, " N"]]  # gives its numbers, NaN where one is missing; DataError if it has none
    label: str = ""  # its short name, which the record's channel gets; by default the full one
    written: str = ""  # its name as the file writes it, with its unit
    unit: str = ""  # its unit, if the file says it
    show: Callable[[int], str] | None = None  # a cell as messages quote it; by default its number
    texts: Callable[[], Sequence[str]] | None = None  # gives its cells as text, where time stamps may be text

    @property
    def short(self) -> str:
        """The label, or the full name where there is none."""
        return self.label or self.name


@dataclass(frozen=True)
class Table:
    """The columns of a file or frame, and what it says itself about their roles and its clock."""

    source: str  # how messages call it: `'pump.csv'`, `the data frame`
    name: str  # what to call a record made of it
    columns: tuple[Column, ...]  # its columns
    word: str = "channel"  # what its columns are called: `column`, `channel`
    row_word: str = "sample"  # what its rows are called: `line`, `sample`
    row_numbers: Sequence[int] | None = None  # number of each row in messages; by default they count from zero
    padded: bool = False  # whether time may go on after the last sample, as columns of text files may have blank ends
    # positions of several columns that have one name together, such as those of a matrix
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[int, ...] = ()  # positions of the columns that the file itself calls inputs
    outputs: tuple[int, ...] = ()  # positions of the columns that the file itself calls outputs
    ts: float | None = None  # the sampling time that the file itself states, in seconds
    time: int | None = None  # position of the column that the file itself calls time
    # a further rule for the chosen columns, given their positions; raises DataError
    check: Callable[[Sequence[int]], None] | None = None
    close: Callable[[], None] = lambda: None  # to be called when no more columns will be read

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of the columns."""
        return tuple(column.name for column in self.columns)

    def rows(self, indices: Sequence[int] | np.ndarray) -> str:
        """Rows in words, as `line 3` or `lines 3, 7 to 9 (4 in all)`."""
        numbers = [int(i) if self.row_numbers is None else self.row_numbers[int(i)] for i in indices]
        return in_words(numbers, self.row_word)


def in_words(numbers: Sequence[int], word: str = "sample") -> str:
    """Numbers of rows in words, as `line 3` or `lines 3, 7 to 9 (4 in all)`."""
    stretches = _stretches(numbers)
    shown = [str(a) if a == b else f"{a} to {b}" for a, b in stretches[:LISTED_STRETCHES]]
    more = ", ..." if len(stretches) > LISTED_STRETCHES else ""
    if len(numbers) == 1:
        return f"{word} {shown[0]}"
    return f"{word}s {', '.join(shown)}{more} ({len(numbers)} in all)"


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers as pairs of their first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def with_units(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with the units that stand in their names: `level (V)` is called `level` and has the unit V.

    Names that would no longer differ without what is in brackets stay as they are, as `tank (left)` and
    `tank (right)`.
    """
    split = [_UNIT.fullmatch(column.name) for column in columns]
    short = [match[1] if match else column.name for match, column in zip(split, columns, strict=True)]
    return tuple(
        replace(column, name=match[1], written=column.name, unit=column.unit or match[2].strip())
        if match and short.count(match[1]) == 1
        else column
        for match, column in zip(split, columns, strict=True)
    )


def find_columns(table: Table, keys: Keys) -> list[int]:
    """Positions of the columns that names or numbers stand for."""
    wanted = [keys] if isinstance(keys, str | int) else list(keys)
    return [index for key in wanted for index in _find(table, key)]


def _find(table: Table, key: Key) -> tuple[int, ...]:
    """By full name, by the name of a matrix, by short name or as it is written, by position, in this order."""
    if isinstance(key, str):
        name = key.strip()
        named = [i for i, column in enumerate(table.columns) if column.name == name]
        if not named and name in table.groups:
            return table.groups[name]
        named = named or [i for i, column in enumerate(table.columns) if name in (column.label, column.written)]
        if len(named) > 1:
            raise _ambiguous(table, name, named)
        if named:
            return (named[0],)
        if not (name.isascii() and name.isdecimal()):
            known = {*table.names, *table.groups}
            raise DataError(f"{table.source}: {unknown_name(table.word, key, _listed(name, known))}")
    return (_check_position(table, key),)


def _listed(name: str, known: set[str]) -> list[str]:
    """Few enough names for a message, the nearest among them."""
    ordered = sorted(known)
    if len(ordered) <= LISTED_NAMES:
        return ordered
    return [*difflib.get_close_matches(name, ordered, n=3, cutoff=0.0), *ordered[:LISTED_NAMES]]


def _ambiguous(table: Table, name: str, named: Sequence[int]) -> DataError:
    full = [table.columns[i].name for i in named]
    if len(set(full)) == len(full):
        return DataError(
            f"{table.word} {name!r} of {table.source} must be one; it may be {' or '.join(full)}. Give the full name."
        )
    return DataError(
        f"{table.word} names of {table.source} must differ; {name!r} stands at positions "
        f"{' and '.join(map(str, named))}. Give the position instead of the name."
    )


def _check_position(table: Table, key: Key) -> int:
    digits = str(key).strip().lstrip("+-")
    # Longer digit strings than any table has columns: Python refuses to convert the longest ones.
    position = int(key) if len(digits) < 10 else -1
    if not 0 <= position < len(table.columns):
        names = ", ".join(table.names[:LISTED_NAMES])
        raise DataError(
            f"{table.source} must have a {table.word} at position {key}; it has {len(table.columns)}, counted "
            f"from 0: {names}. Give one of these."
        )
    return position


def as_numbers(values: Any, called: str, row: Callable[[int], str] = "sample {}".format) -> Float[np.ndarray, " N"]:
    """One-dimensional values of any kind as float64, NaN where one is missing.

    Dates become seconds since the first of them, durations seconds, and truth values 0 and 1.
    """
    array = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan) if np.ma.isMA(values) else np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{called} must be one column of numbers; got {array.ndim} dimensions. Choose another one.")
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "M":
        return _seconds_since_first(array)
    if array.dtype.kind == "m":
        return _in_seconds(array)
    if array.dtype.kind in "OUS":
        return _cells_as_numbers(array, called, row)
    raise DataError(f"{called} must hold real numbers; got {array.dtype}. Choose another one, or convert it first.")


def _seconds_since_first(stamps: np.ndarray) -> Float[np.ndarray, " N"]:
    known = stamps[~np.isnat(stamps)]
    return _in_seconds(stamps - known[0]) if len(known) else np.full(len(stamps), np.nan)


def _in_seconds(spans: np.ndarray) -> Float[np.ndarray, " N"]:
    return np.where(np.isnat(spans), np.nan, spans / np.timedelta64(1, "s"))


def _cells_as_numbers(cells: np.ndarray, called: str, row: Callable[[int], str]) -> Float[np.ndarray, " N"]:
    numbers = np.empty(len(cells))
    first: datetime.datetime | None = None
    for i, cell in enumerate(cells):
        if isinstance(cell, datetime.datetime):
            first = cell if first is None else first
        try:
            numbers[i] = _cell_as_number(cell, first)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            text = repr(cell)
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            raise DataError(
                f"{called} must hold numbers; {row(i)} has {shown}. Correct it, or leave it empty if it is a "
                "missing output."
            ) from None
    return numbers


def _cell_as_number(cell: Any, first: datetime.datetime | None) -> float:
    if cell is None or str(cell) in ("", "<NA>", "NaT"):
        return float("nan")
    if isinstance(cell, datetime.datetime) and first is not None:
        return (cell - first).total_seconds()
    if isinstance(cell, datetime.timedelta):
        return cell.total_seconds()
    if isinstance(cell, np.ndarray | complex | np.complexfloating):
        raise TypeError(cell)
    if isinstance(cell, str) and "_" in cell:  # Python would read 1_000 as a number; no instrument writes one so.
        raise ValueError(cell)
    return float(cell)


def check_file(path: str | Path) -> Path:
    """The path of a file that is there and can be read."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"'{path}' must be a file; it is a folder. Name a file in it.")
        if not stat.S_ISREG(mode):  # these may never end
            raise DataError(f"'{path}' must be a file; it is a device or a pipe. Write what it gives to a file first.")
        with path.open("rb"):
            return path
    except FileNotFoundError:
        raise DataError(f"file '{path}' must exist; there is none of that name. Check the path.") from None
    except OSError as error:
        raise DataError(f"file '{path}' must be readable; got: {error.strerror or error}. Check the path.") from None
    except DataError:
        raise
    except ValueError as error:  # such as a zero byte in it
        raise DataError(f"path {str(path)!r} must be one that the system knows; got: {error}. Check it.") from None


@contextlib.contextmanager
def as_data_error(path: Path, kind: str) -> Iterator[None]:
    """Whatever a library meets in a damaged file becomes a DataError that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of variables that are not chosen
            yield
    except (DataError, MissingExtraError):
        raise
    except Exception as error:  # noqa: BLE001 - libraries raise whatever they stumble over in damaged bytes
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise DataError(
            f"file '{path}' must be {kind}; it is damaged, cut short or of another kind ({reason}). "
            "Save it again, or export it as CSV."
        ) from None
