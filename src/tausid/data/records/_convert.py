"""From what is given to the parts of a record: columns of numbers, a clock, names and units."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tausid.errors import DataError
from tausid.shapes import ArrayLike, Float


def as_columns(array: ArrayLike, name: str) -> Float[np.ndarray, "N n"]:
    """A numeric array as (N, n); one dimension is one channel."""
    values = as_floats(array, name)
    if values.ndim == 1:
        return values[:, None]
    if values.ndim != 2:
        raise DataError(
            f"`{name}` must have shape (samples,) or (samples, channels); got {values.shape}. "
            "Split a batch of experiments into several records."
        )
    return values


def as_floats(array: ArrayLike, name: str) -> Float[np.ndarray, "..."]:
    """An array of real numbers as float64."""
    try:
        given = np.asarray(array)
        if given.dtype.kind in "cmM":
            raise TypeError(f"values of type {given.dtype}")
        return given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"`{name}` must be an array of numbers; got {error}. Convert it first.") from None


def as_private(array: ArrayLike) -> Float[np.ndarray, "..."]:
    """A read-only float64 array that no one else can write to: the same one where that holds already."""
    if isinstance(array, np.ndarray) and array.dtype == np.float64 and array.flags.c_contiguous:
        owner = array if array.base is None else array.base
        if isinstance(owner, np.ndarray) and owner.base is None and not owner.flags.writeable:
            return array
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def make_clock(samples: int, *, ts: float | None, t: ArrayLike | None) -> Float[np.ndarray, "N"]:
    """Time stamps from a sampling time, or as given."""
    if (ts is None) == (t is None):
        given = "neither" if ts is None else "both"
        raise DataError(
            f"a record needs either the sampling time `ts` or time stamps; got {given}. "
            "Give ts=... in seconds, or the time column."
        )
    if t is not None:
        stamps = as_columns(t, "t")
        if stamps.shape[1] != 1:
            raise DataError(f"`t` must be one column of time stamps; got {stamps.shape[1]}. Choose one.")
        return stamps[:, 0]
    if not (isinstance(ts, int | float | np.number) and np.isfinite(ts) and ts > 0):
        raise DataError(f"`ts` must be a positive number of seconds; got {ts!r}. Give the sampling time.")
    with np.errstate(over="ignore"):  # a clock that leaves the numbers is refused with its sample
        return np.arange(samples) * float(ts)


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Default channel names: the letter alone for one channel, numbered from one for several."""
    return (letter,) if count == 1 else tuple(f"{letter}{i + 1}" for i in range(count))


def unnamed(nu: int, ny: int) -> tuple[str, ...]:
    """The names of all channels where none are given."""
    return (*numbered("u", nu), *numbered("y", ny))


def units_of(
    names_u: tuple[str, ...], names_y: tuple[str, ...], units: Mapping[str, str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Units of the inputs and of the outputs, empty where none are given."""
    if units is None:
        return ("",) * len(names_u), ("",) * len(names_y)
    known = (*names_u, *names_y)
    for name in units:
        if name not in known:
            raise DataError(
                f"`units` must name channels of the record; got {name!r}, channels are {', '.join(known)}. "
                "Correct the name."
            )
    for name in known:
        if name not in units:
            raise DataError(
                f"`units` must give a unit for every channel; {name!r} has none. Add it, or leave `units` out."
            )
    return tuple(units[n] for n in names_u), tuple(units[n] for n in names_y)
