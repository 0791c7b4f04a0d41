"""Time stamps -> seconds: numbers, numbers since 1970, numbers in other units, and dates as text."""

from __future__ import annotations

import datetime
import re
import shlex

import numpy as np

from tausid.data.readers._tables import Table
from tausid.errors import DataError
from tausid.shapes import Float

# Seconds in the units that time columns have.
UNITS = {
    **dict.fromkeys(("s", "sec", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "μs", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minutes"), 60.0),
    **dict.fromkeys(("h", "hours"), 3600.0),
}
# Seconds since 1970 that stamps may be: from 2001 to 2099. A clock that starts at zero never gets there.
EPOCH = (1e9, 4.1e9)
EPOCH_UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")
# Dates with day, month and year, or month, day and year: which one, only a person knows.
_AMBIGUOUS = re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d\d)([ T]+\d{1,2}:\d\d(:\d\d([.,]\d+)?)?)?")


def read_stamps(table: Table, index: int, time_format: str | None = None) -> tuple[Float[np.ndarray, " N"], str]:
    """Time stamps in seconds, and in words how they were read; no words where they are seconds as they stand.

    Dates and numbers since 1970 become seconds since the first of them.
    """
    column = table.columns[index]
    if time_format is not None:
        return _read_dates(table, index, time_format)
    try:
        values = column.load()
    except DataError:
        if column.texts is None:
            raise
        return _read_dates(table, index, None)
    return _in_seconds(values, column.unit)


def _in_seconds(values: np.ndarray, unit: str) -> tuple[Float[np.ndarray, " N"], str]:
    known = values[np.isfinite(values)]
    for name in EPOCH_UNITS if len(known) else ():
        seconds = values * UNITS[name]
        if EPOCH[0] <= known.min() * UNITS[name] and known.max() * UNITS[name] < EPOCH[1]:
            first = datetime.datetime.fromtimestamp(float(known[0] * UNITS[name]), datetime.UTC)
            return seconds - known[0] * UNITS[name], f"time read as {name} since 1970, from {_show(first)} on"
    factor = UNITS.get(unit, 1.0)
    return (values, "") if factor == 1.0 else (values * factor, f"time read in {unit}")


def _read_dates(table: Table, index: int, time_format: str | None) -> tuple[Float[np.ndarray, " N"], str]:
    column = table.columns[index]
    called = f"time {table.word} {column.name!r} of {table.source}"
    if column.texts is None:
        raise DataError(f"{called} must be text for a `time_format`; it is not. Leave the format out.")
    seconds: list[float] = []
    first: datetime.datetime | None = None
    for row, cell in enumerate(column.texts()):
        try:
            date = _parse(cell.strip(), time_format)
            first = date if first is None else first
            seconds.append((date - first).total_seconds() if date is not None and first is not None else float("nan"))
        except (TypeError, ValueError, OverflowError):  # a zone in some cells only is a TypeError
            raise _no_date(called, table.rows([row]), cell.strip(), time_format) from None
    if first is None:
        raise DataError(f"{called} must hold time stamps; it is empty. Choose another one.")
    return np.array(seconds), f"time read as dates, from {_show(first)} on"


def _parse(cell: str, time_format: str | None) -> datetime.datetime | None:
    if not cell:
        return None
    if time_format is None:
        return datetime.datetime.fromisoformat(cell)
    return datetime.datetime.strptime(cell, time_format)


def _no_date(called: str, row: str, cell: str, time_format: str | None) -> DataError:
    if time_format is not None:
        return DataError(f"{called} must hold dates written as {time_format!r}; {row} has {cell[:40]!r}. Correct one.")
    match = _AMBIGUOUS.fullmatch(cell)
    guess = "'%d.%m.%Y %H:%M:%S'" if match is None else shlex.quote(_guess_format(match))
    return DataError(
        f"{called} must hold seconds, or dates such as 2024-05-01 12:00:00.25 with or without a zone; {row} has "
        f"{cell[:40]!r}. Correct it, or say how dates are written: --time-format {guess} if the day comes first."
    )


def _guess_format(match: re.Match[str]) -> str:
    """How a date is written, if its day comes first."""
    mark, year, clock, seconds, fraction = match.groups()
    date = f"%d{mark}%m{mark}{'%Y' if len(year) == 4 else '%y'}"
    if clock is None:
        return date
    joint = clock[: len(clock) - len(clock.lstrip(" T"))]
    return f"{date}{joint}%H:%M" + (":%S" if seconds else "") + (f"{fraction[0]}%f" if fraction else "")


def is_date(cell: str) -> bool:
    """Whether a cell holds a date, in whatever order."""
    try:
        datetime.datetime.fromisoformat(cell.strip())
    except ValueError:
        return _AMBIGUOUS.fullmatch(cell.strip()) is not None
    return True


def _show(date: datetime.datetime) -> str:
    return date.isoformat(" ", "auto").replace("+00:00", " UTC")
