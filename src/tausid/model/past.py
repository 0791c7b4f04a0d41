"""The samples before a simulation, for its initial state: missing ones, and those off the clock."""

from __future__ import annotations

import numpy as np

from tausid.shapes import Bool, Float


def fill_between(
    t: Float[np.ndarray, "n"], y: Float[np.ndarray, "n ny"], measured: Bool[np.ndarray, "n ny"]
) -> Float[np.ndarray, "n ny"]:
    """Outputs with missing ones between two measured ones interpolated over time; others stay as they are."""
    filled = y.copy()
    for channel, known in zip(filled.T, measured.T, strict=True):
        places = np.flatnonzero(known)
        if len(places):
            inside = slice(places[0], places[-1] + 1)
            channel[inside] = np.interp(t[inside], t[known], channel[known])
    return filled


def at_nominal_times(values: Float[np.ndarray, "n k"], ago: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n k"]:
    """Samples from so many median steps ago, interpolated at n, n - 1, ..., 1 of them; the outermost ones beyond."""
    nominal = -np.arange(len(ago), 0.0, -1.0)
    columns = [np.interp(nominal, -ago, column) for column in values.T]
    return np.stack(columns, axis=1) if columns else values


def hold_missing(y: Float[np.ndarray, "N ny"]) -> Float[np.ndarray, "N ny"]:
    """Outputs with the last measured one where one is missing, and the first one before that."""
    measured = ~np.isnan(y)
    last = np.maximum.accumulate(np.where(measured, np.arange(len(y))[:, None], -1), axis=0)
    place = np.where(last < 0, measured.argmax(axis=0), last)
    return np.nan_to_num(np.take_along_axis(y, place, axis=0))


def past_is_known(y: Float[np.ndarray, "N ny"], n_past: int) -> Bool[np.ndarray, "N"]:
    """Before which samples every output was measured recently enough for an encoder.

    Recently is within the last `n_past` samples, or within the usual distance of measured samples where an output is
    measured more rarely than that.
    """
    if n_past == 0:
        return np.ones(len(y), bool)
    known = np.arange(len(y)) >= n_past
    for channel in (~np.isnan(y)).T:
        places = np.flatnonzero(channel)
        usual = int(np.median(np.diff(places))) if len(places) > 1 else 1
        last = np.maximum.accumulate(np.where(channel, np.arange(len(y)), -len(y)))
        age = np.arange(1, len(y)) - last[:-1]  # of the newest measured sample, at samples 1, 2, ...
        known[1:] &= age <= max(n_past, usual)
    return known
