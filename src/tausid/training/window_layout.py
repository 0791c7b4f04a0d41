"""The rows that records become, where windows may lie on them, and what fills them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tausid.data.clocks import held_between, split_steps
from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.engine.holds import hold_slopes
from tausid.errors import ConfigError
from tausid.model.past import hold_missing, past_is_known
from tausid.training.parts import FULL

# Samples that are normalized at a time, in double precision.
CHUNK = 2**16


def steps_to_next(t: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """Seconds from each time stamp to the next, the last one repeated."""
    steps = np.diff(t)
    return np.append(steps, steps[-1])


@dataclass(frozen=True, eq=False)
class Layout:
    """One record, and the rows that it becomes: `t` and `places` of its samples where rows lie between them."""

    record: Record
    slopes: tuple[float, ...]
    t: np.ndarray
    places: np.ndarray | None

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.t)

    def row(self, sample: int) -> int:
        """The row of a sample."""
        return sample if self.places is None else int(self.places[sample])

    def rows(self, samples: slice) -> slice | np.ndarray:
        """The rows of several samples."""
        return samples if self.places is None else self.places[samples]


def lay_out(record: Record, longest: float, hold: str | tuple[str, ...] | None) -> Layout:
    """A record with its long steps split."""
    t, places = split_steps(record.t, longest)
    return Layout(record, hold_slopes(hold, record.nu), t, None if len(t) == len(record) else places)


def window_samples(layouts: Sequence[Layout], horizon: int | str, n_past: int) -> int:
    """Samples of a window; records must be long enough for one."""
    for layout in layouts:
        if len(layout.record) < n_past + 2:
            _refuse_length(layout, n_past, 2)
    longest = max(layout.count - layout.row(n_past) for layout in layouts)
    return longest if horizon == FULL else int(horizon)


def window_runs(layout: Layout, samples: int, n_past: int, *, full: bool) -> Int[np.ndarray, "n_runs 2"]:
    """Runs of samples at which windows of this record may start: first sample, and the one after the last."""
    last = layout.count - (2 if full else samples)  # the last row at which a window may start
    if last < layout.row(n_past):
        _refuse_length(layout, n_past, samples)
    places = layout.places
    stop = last + 1 if places is None else int(np.searchsorted(places, last, side="right"))
    y = layout.record.y
    if not np.isnan(y).any():
        return np.array([[n_past, n_past + 1 if full else stop]])
    good = past_is_known(y, n_past) & _has_targets(layout, samples) & (np.arange(len(y)) < stop)
    edges = np.flatnonzero(np.diff(good, prepend=False, append=False)).reshape(-1, 2)
    return np.array([[first, first + 1] for first, _ in edges[:1]], int).reshape(-1, 2) if full else edges


def _has_targets(layout: Layout, samples: int) -> Bool[np.ndarray, "n_samples"]:
    """From which samples on an output is measured within a window."""
    measured = (~np.isnan(layout.record.y)).any(axis=1)
    known = np.flatnonzero(measured)
    rows = np.arange(len(measured)) if layout.places is None else layout.places
    after = np.searchsorted(known, np.arange(len(measured)))  # the first measured sample from here on
    found = after < len(known)
    return found & (rows[known[np.minimum(after, len(known) - 1)]] < rows + samples)


def _refuse_length(layout: Layout, n_past: int, samples: int) -> None:
    between = "" if layout.places is None else ", points between samples counted"
    most = layout.count - layout.row(min(n_past, len(layout.record) - 1))  # samples that a window could have
    shorter = f", or take shorter windows (--set trainer.horizon={most})" if samples > most >= 2 else ""
    raise ConfigError(
        f"record {layout.record.name!r} must have at least {n_past + samples} samples ({n_past} for the initial state "
        f"and {samples} for a window{between}); got {layout.count}. Measure longer{shorter}."
    )


def fill_rows(layouts: Sequence[Layout], scaling: Scaling) -> dict[str, Array]:
    """The arrays of all rows, one after the other: only single precision is held for whole records."""

    def joined(fill: Callable[[np.ndarray, Layout], None], shape: tuple[int, ...], dtype: Any) -> Array:
        out = np.zeros((sum(layout.count for layout in layouts), *shape), dtype)
        stops = np.cumsum([layout.count for layout in layouts])
        for layout, stop in zip(layouts, stops, strict=True):
            fill(out[stop - layout.count : stop], layout)
        return jnp.asarray(out)

    real = jax.dtypes.canonicalize_dtype(np.float64)
    ny = len(scaling.y_mean)
    return {
        "u": joined(partial(_fill_inputs, scaling), (len(scaling.u_mean),), real),
        "y": joined(partial(_fill_outputs, scaling), (ny,), real),
        "measured": joined(_fill_measured, (ny,), bool),
        "dt": joined(_fill_steps, (), real),
    }


def _fill_inputs(scaling: Scaling, out: np.ndarray, layout: Layout) -> None:
    u = layout.record.u if layout.places is None else held_between(layout.record.u, layout.places, layout.slopes)
    for a in range(0, len(u), CHUNK):
        out[a : a + CHUNK] = scaling.normalize_u(u[a : a + CHUNK])


def _fill_outputs(scaling: Scaling, out: np.ndarray, layout: Layout) -> None:
    y = layout.record.y
    held = hold_missing(y) if np.isnan(y).any() else y
    for a in range(0, len(y), CHUNK):
        here = slice(a, a + CHUNK)
        out[layout.rows(here)] = scaling.normalize_y(held[here])


def _fill_measured(out: np.ndarray, layout: Layout) -> None:
    out[layout.rows(slice(None))] = ~np.isnan(layout.record.y)


def _fill_steps(out: np.ndarray, layout: Layout) -> None:
    # The difference is taken in double precision and rounded once, without an array of its own.
    np.subtract(layout.t[1:], layout.t[:-1], out=out[:-1], casting="same_kind")
    out[-1] = out[-2]


def sample_rows(layouts: Sequence[Layout], stops: np.ndarray) -> np.ndarray:
    """Where each sample, counted through all records, lies among the split steps."""
    return np.concatenate(
        [
            (np.arange(layout.count) if layout.places is None else layout.places) + stop - layout.count
            for layout, stop in zip(layouts, stops, strict=True)
        ]
    )


def stamp_lags(records: Sequence[Record], ts: float) -> np.ndarray:
    """By how much each step is longer than the sampling time, relative to it."""
    return np.concatenate([steps_to_next(record.t) / ts - 1.0 for record in records])
