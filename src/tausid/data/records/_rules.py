"""The rules that every record keeps, one function each; checked when it is made."""

from __future__ import annotations

import numpy as np

from tausid.errors import DataError

# Larger numbers are no measurements but marks of a logger for "nothing"; squares of smaller ones stay finite.
LARGEST = 1e100
# Rates of shorter steps are not finite any more.
SHORTEST_STEP = 1e-100


def check_samples(u: np.ndarray, y: np.ndarray, t: np.ndarray, record: str) -> None:
    """Inputs, outputs and time have their dimensions and as many samples, two or more, of one output or more."""
    for field, values, dimensions in (("u", u, 2), ("y", y, 2), ("t", t, 1)):
        if values.ndim != dimensions:
            raise DataError(
                f"`{field}` of {record!r} must have {dimensions} dimension(s), time first; got {values.ndim}. "
                "Use Record.from_arrays for one-dimensional signals."
            )
    if y.shape[1] + u.shape[1] < 1:
        raise DataError(f"record {record!r} must have at least one channel; got none. Name an output.")
    n_u, n_y, n_t = len(u), len(y), len(t)
    if not n_u == n_y == n_t:
        raise DataError(
            f"`u`, `y` and `t` of {record!r} must have the same number of samples; got {n_u}, {n_y} and {n_t}. "
            "Trim them to the shared interval."
        )
    if n_t < 2:
        raise DataError(f"record {record!r} must have at least two samples; got {n_t}. Measure longer.")


def check_labels(kind: str, n: int, *, names: tuple[str, ...], units: tuple[str, ...]) -> None:
    """Each of the n channels of a kind, `input` or `output`, has a name and a unit."""
    for what, got in (("names", names), ("units", units)):
        if not all(isinstance(text, str) for text in got):
            raise DataError(f"`{kind}_{what}` must be text; got {got!r}. Write them in quotes.")
        if len(got) != n:
            raise DataError(
                f"`{kind}_{what}` must have one entry per {kind} channel; got {len(got)} for {n} channels. Give {n}."
            )


def check_unique(names: tuple[str, ...]) -> None:
    """No two channels have one name."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(
            f"channel names must differ; got {twice[0]!r} twice. Rename one, or use each column in one role only."
        )


def check_time(t: np.ndarray, record: str) -> None:
    """Time is finite and increases."""
    if not np.all(np.abs(t) <= LARGEST):
        row = int(np.flatnonzero(~(np.abs(t) <= LARGEST))[0])
        raise DataError(
            f"time of {record!r} must be finite and below {LARGEST:g} s in size; sample {row} is {t[row]}. Drop that "
            "row, or correct the sampling time."
        )
    backwards = np.flatnonzero(np.diff(t) <= 0)
    if len(backwards):
        row = int(backwards[0])
        raise DataError(
            f"time of {record!r} must increase from sample to sample; sample {row} is at {t[row]:g} s and sample "
            f"{row + 1} at {t[row + 1]:g} s. Sort the rows, drop repeats "
            "(--prepare drop-repeated-times), or split into several records."
        )
    if np.diff(t).min() < SHORTEST_STEP:
        raise DataError(
            f"time steps of {record!r} must be at least {SHORTEST_STEP:g} s; the shortest is {np.diff(t).min():g} s. "
            "Correct the sampling time, or the unit of the time stamps."
        )


def check_inputs(u: np.ndarray, names: tuple[str, ...], record: str) -> None:
    """Inputs are known at every sample."""
    bad_u = np.argwhere(~np.isfinite(u))
    if len(bad_u):
        row, channel = bad_u[0]
        raise DataError(
            f"input {names[channel]!r} of {record!r} must be known at every sample; {len(bad_u)} "
            f"values are NaN or infinite, the first at sample {row}. Fill them in or cut those rows out."
        )


def check_size(values: np.ndarray, names: tuple[str, ...], record: str) -> None:
    """No value of a channel is a mark for "nothing"."""
    large = np.argwhere(np.isfinite(values) & (np.abs(values) > LARGEST))
    if len(large):
        row, channel = large[0]
        raise DataError(
            f"channel {names[channel]!r} of {record!r} must be below {LARGEST:g} in size; sample {row} is "
            f"{values[row, channel]:g}. Some loggers write such numbers for missing samples. Replace it by NaN."
        )


def check_outputs(y: np.ndarray, names: tuple[str, ...], record: str) -> None:
    """Outputs are finite, or NaN where missing; none is missing everywhere."""
    bad_y = np.argwhere(np.isinf(y))
    if len(bad_y):
        row, channel = bad_y[0]
        raise DataError(
            f"output {names[channel]!r} of {record!r} must be finite, or NaN where missing; "
            f"sample {row} is infinite. Replace it by NaN."
        )
    for channel, name in enumerate(names):
        if np.all(np.isnan(y[:, channel])):
            raise DataError(
                f"output {name!r} of {record!r} must have measured samples; all are NaN. Choose another column."
            )
