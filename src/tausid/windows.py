"""Training windows: stretches of normalized records, gathered by index and never copied ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tausid.clocks import held_between, split_steps
from tausid.config import FULL
from tausid.errors import ConfigError, DataError
from tausid.holds import hold_slopes
from tausid.records import Record
from tausid.scaling import Scaling

# Samples that are normalized at a time, in double precision.
CHUNK = 2**16


class Windows(eqx.Module):
    """A batch of windows, time first, in normalized units and seconds.

    Args:
        past_u: inputs before the window, from old to new.
        past_y: outputs before the window, from old to new; filled where missing.
        u: inputs in the window.
        y: outputs in the window; any number where missing.
        measured: where `y` was measured.
        dt: seconds from each point of the window to the next.
        record: which record each window is from.
        lag: how much longer ago than the nominal steps each past sample was, in median steps; None for
            an encoder that does not see time stamps.
    """

    past_u: Float[Array, "n_past B nu"]
    past_y: Float[Array, "n_past B ny"]
    u: Float[Array, "J B nu"]
    y: Float[Array, "J B ny"]
    measured: Bool[Array, "J B ny"]
    dt: Float[Array, "J-1 B"]
    record: Int[Array, "B"]
    lag: Float[Array, "n_past B"] | None = None


class WindowSource(eqx.Module):
    """All records end to end, and where a window may start.

    The arrays have one row per sample, and rows in between where a step is too long for one integration step: there
    the input is held and no output measured. Windows start at samples, and their past is made of samples.

    Args:
        u: inputs of all records, normalized.
        y: outputs of all records, normalized; the last measured one where missing.
        measured: where `y` was measured.
        dt: seconds to the next row; the last one of a record is repeated.
        stops: end of each record in these arrays.
        ends: how many windows start in this run of neighbouring samples or an earlier one.
        shifts: what to add to a window's number to get the sample where it starts, for each run.
        rows: the row of each sample; None where every row is a sample.
        lag: seconds to the next sample in median steps, minus one; None where the encoder does not see time stamps.
        gaps: whether outputs are missing.
        count: number of windows.
        n_past: samples before a window that the encoder sees.
        horizon: rows per window, J.
    """

    u: Float[Array, "N nu"]
    y: Float[Array, "N ny"]
    measured: Bool[Array, "N ny"]
    dt: Float[Array, "N"]
    stops: Int[Array, "n_records"]
    ends: Int[Array, "n_runs"]
    shifts: Int[Array, "n_runs"]
    rows: Int[Array, "n_samples"] | None
    lag: Float[Array, "n_samples"] | None
    gaps: bool = eqx.field(static=True)
    count: int = eqx.field(static=True)
    n_past: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @classmethod
    def from_records(
        cls,
        records: Sequence[Record],
        scaling: Scaling,
        *,
        horizon: int | str,
        n_past: int,
        longest: float = np.inf,
        hold: str | tuple[str, ...] | None = None,
        ts: float | None = None,
    ) -> WindowSource:
        """Lay the records end to end and find the starts of all windows.

        Args:
            records: training records.
            scaling: physical to normalized units.
            horizon: rows per window, or `full` for one window per record.
            n_past: samples before a window that the encoder sees.
            longest: longest step between two rows in seconds; longer ones are split.
            hold: what the inputs do between samples.
            ts: the median step in seconds, for an encoder that sees time stamps; None for one that does not.

        Returns:
            The source.

        Raises:
            ConfigError: a record is shorter than `n_past + horizon`.
            DataError: no window has measured outputs before it and in it.
        """
        layouts = [_lay_out(record, longest, hold) for record in records]
        samples = _horizon(layouts, horizon, n_past)
        runs = [_runs(layout, samples, n_past, full=horizon == FULL) for layout in layouts]
        firsts = np.cumsum([0, *(len(record) for record in records)])[:-1]
        starts = np.concatenate([run + first for run, first in zip(runs, firsts, strict=True)])
        if not len(starts):
            raise DataError(
                "windows must have every output measured shortly before them, and an output in them; no place has. "
                "Use a record with fewer missing outputs, or a longer horizon."
            )
        ends = np.cumsum(starts[:, 1] - starts[:, 0])
        stops = np.cumsum([layout.count for layout in layouts])
        whole = all(layout.places is None for layout in layouts)
        return cls(
            **_rows(layouts, scaling),
            stops=jnp.asarray(stops, jnp.int32),
            ends=jnp.asarray(ends, jnp.int32),
            shifts=jnp.asarray(starts[:, 1] - ends, jnp.int32),
            rows=None if whole else jnp.asarray(_sample_rows(layouts, stops), jnp.int32),
            lag=None if ts is None else jnp.asarray(_lags(records, ts)),
            gaps=any(bool(np.isnan(record.y).any()) for record in records),
            count=int(ends[-1]),
            n_past=n_past,
            horizon=samples,
        )

    def starts(self, index: Int[Array, "B"]) -> Int[Array, "B"]:
        """The samples at which windows start, counted through all records.

        Args:
            index: which windows.

        Returns:
            Sample numbers.
        """
        return index + self.shifts[jnp.searchsorted(self.ends, index, side="right")]

    def past(
        self, index: Int[Array, "B"]
    ) -> tuple[Float[Array, "n_past B nu"], Float[Array, "n_past B ny"], Float[Array, "n_past B"] | None]:
        """What the encoder sees before these windows.

        Args:
            index: which windows.

        Returns:
            Past inputs, past outputs without holes, and the lags where it sees time stamps; then both are interpolated
            at the nominal times.
        """
        samples = self.starts(index) + jnp.arange(-self.n_past, 0)[:, None]  # (n_past, B)
        rows = self._row(samples)
        lag = None if self.lag is None else jax.lax.cumsum(self.lag[samples], axis=0, reverse=True)
        u, y = self.u[rows], self.y[rows]
        y = fill_past(y, self.measured[rows], lag) if self.gaps else y
        return (u, y, None) if lag is None else (at_nominal_times(u, lag), at_nominal_times(y, lag), lag)

    def gather(self, index: Int[Array, "B"]) -> Windows:
        """These windows.

        A window that is longer than what is left of its record holds the last input, with no output measured.

        Args:
            index: which windows.

        Returns:
            The batch.
        """
        start = self._row(self.starts(index))
        record = jnp.searchsorted(self.stops, start, side="right").astype(jnp.int32)
        ahead = start + jnp.arange(self.horizon)[:, None]  # (J, B)
        last = self.stops[record] - 1
        inside = jnp.minimum(ahead, last)
        past_u, past_y, lag = self.past(index)
        return Windows(
            past_u=past_u,
            past_y=past_y,
            u=self.u[inside],
            y=self.y[inside],
            measured=self.measured[inside] & (ahead <= last)[..., None],
            dt=self.dt[inside[:-1]],
            record=record,
            lag=lag,
        )

    def _row(self, sample: Int[Array, "*B"]) -> Int[Array, "*B"]:
        return sample if self.rows is None else self.rows[sample]


def fill_past(
    y: Float[Array, "n_past B ny"], measured: Bool[Array, "n_past B ny"], lag: Float[Array, "n_past B"] | None
) -> Float[Array, "n_past B ny"]:
    """Past outputs without holes: missing ones between two measured ones are interpolated over time.

    Args:
        y: past outputs, the last measured one where missing, which stays where none is measured after it.
        measured: where they were measured.
        lag: how much longer ago than the nominal steps each sample was, in median steps; None on one clock.

    Returns:
        The outputs.
    """
    n = y.shape[0]
    places = jnp.arange(n)[:, None, None]
    before = jax.lax.cummax(jnp.where(measured, places, -1), axis=0)
    after = jax.lax.cummin(jnp.where(measured, places, n), axis=0, reverse=True)
    between = ~measured & (before >= 0) & (after < n)
    ago = jnp.arange(n, 0, -1, dtype=y.dtype)[:, None] + (jnp.zeros((n, 1)) if lag is None else lag)
    times = jnp.broadcast_to(-ago[..., None], y.shape)
    left, right = jnp.maximum(before, 0), jnp.minimum(after, n - 1)
    t0, t1 = jnp.take_along_axis(times, left, 0), jnp.take_along_axis(times, right, 0)
    y0, y1 = jnp.take_along_axis(y, left, 0), jnp.take_along_axis(y, right, 0)
    share = (times - t0) / jnp.where(between, t1 - t0, 1.0)
    return jnp.where(between, y0 + share * (y1 - y0), y)


def at_nominal_times(values: Float[Array, "n_past B n"], lag: Float[Array, "n_past B"]) -> Float[Array, "n_past B n"]:
    """Past samples interpolated at n, n - 1, ..., 1 median steps ago; the newest and the oldest one beyond the ends.

    Args:
        values: the samples.
        lag: how much longer ago than the nominal steps each was, in median steps.

    Returns:
        What they would have been on a regular clock, up to the interpolation.
    """
    n = values.shape[0]
    nominal = -jnp.arange(n, 0, -1, dtype=lag.dtype)
    interpolate = jax.vmap(jnp.interp, in_axes=(None, None, 1), out_axes=1)  # over channels
    return jax.vmap(interpolate, in_axes=(None, 1, 1), out_axes=1)(nominal, nominal[:, None] - lag, values)


def hold_missing(y: Float[np.ndarray, "N ny"]) -> Float[np.ndarray, "N ny"]:
    """Outputs with the last measured one where one is missing, and the first one before that.

    Args:
        y: outputs, NaN where missing.

    Returns:
        Outputs without NaN; zero for one that is never measured.
    """
    measured = ~np.isnan(y)
    last = np.maximum.accumulate(np.where(measured, np.arange(len(y))[:, None], -1), axis=0)
    place = np.where(last < 0, measured.argmax(axis=0), last)
    return np.nan_to_num(np.take_along_axis(y, place, axis=0))


def past_is_known(y: Float[np.ndarray, "N ny"], n_past: int) -> Bool[np.ndarray, "N"]:
    """Before which samples every output was measured recently enough for an encoder.

    Recently is within the last `n_past` samples, or within the usual distance of measured samples where an output is
    measured more rarely than that.

    Args:
        y: outputs, NaN where missing.
        n_past: samples that the encoder sees.

    Returns:
        One answer per sample.
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


def steps_to_next(t: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """Seconds from each time stamp to the next, the last one repeated.

    Args:
        t: time stamps.

    Returns:
        One step per time stamp.
    """
    steps = np.diff(t)
    return np.append(steps, steps[-1])


@dataclass(frozen=True, eq=False)
class _Layout:
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


def _lay_out(record: Record, longest: float, hold: str | tuple[str, ...] | None) -> _Layout:
    t, places = split_steps(record.t, longest)
    return _Layout(record, hold_slopes(hold, record.nu), t, None if len(t) == len(record) else places)


def _horizon(layouts: Sequence[_Layout], horizon: int | str, n_past: int) -> int:
    for layout in layouts:
        if len(layout.record) < n_past + 2:
            _refuse_length(layout, n_past, 2)
    longest = max(layout.count - layout.row(n_past) for layout in layouts)
    return longest if horizon == FULL else int(horizon)


def _runs(layout: _Layout, samples: int, n_past: int, *, full: bool) -> Int[np.ndarray, "n_runs 2"]:
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


def _has_targets(layout: _Layout, samples: int) -> Bool[np.ndarray, "n_samples"]:
    """From which samples on an output is measured within a window."""
    measured = (~np.isnan(layout.record.y)).any(axis=1)
    known = np.flatnonzero(measured)
    rows = np.arange(len(measured)) if layout.places is None else layout.places
    after = np.searchsorted(known, np.arange(len(measured)))  # the first measured sample from here on
    found = after < len(known)
    return found & (rows[known[np.minimum(after, len(known) - 1)]] < rows + samples)


def _refuse_length(layout: _Layout, n_past: int, samples: int) -> None:
    between = "" if layout.places is None else ", points between samples counted"
    raise ConfigError(
        f"record {layout.record.name!r} must have at least {n_past + samples} samples ({n_past} for the initial state "
        f"and {samples} for a window{between}); got {layout.count}. Use a longer record, or a shorter horizon."
    )


def _rows(layouts: Sequence[_Layout], scaling: Scaling) -> dict[str, Array]:
    """The arrays of all rows, one after the other: only single precision is held for whole records."""

    def joined(fill: Callable[[np.ndarray, _Layout], None], shape: tuple[int, ...], dtype: Any) -> Array:
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


def _fill_inputs(scaling: Scaling, out: np.ndarray, layout: _Layout) -> None:
    u = layout.record.u if layout.places is None else held_between(layout.record.u, layout.places, layout.slopes)
    for a in range(0, len(u), CHUNK):
        out[a : a + CHUNK] = scaling.normalize_u(u[a : a + CHUNK])


def _fill_outputs(scaling: Scaling, out: np.ndarray, layout: _Layout) -> None:
    y = layout.record.y
    held = hold_missing(y) if np.isnan(y).any() else y
    for a in range(0, len(y), CHUNK):
        here = slice(a, a + CHUNK)
        out[layout.rows(here)] = scaling.normalize_y(held[here])


def _fill_measured(out: np.ndarray, layout: _Layout) -> None:
    out[layout.rows(slice(None))] = ~np.isnan(layout.record.y)


def _fill_steps(out: np.ndarray, layout: _Layout) -> None:
    # The difference is taken in double precision and rounded once, without an array of its own.
    np.subtract(layout.t[1:], layout.t[:-1], out=out[:-1], casting="same_kind")
    out[-1] = out[-2]


def _sample_rows(layouts: Sequence[_Layout], stops: np.ndarray) -> np.ndarray:
    return np.concatenate(
        [
            (np.arange(layout.count) if layout.places is None else layout.places) + stop - layout.count
            for layout, stop in zip(layouts, stops, strict=True)
        ]
    )


def _lags(records: Sequence[Record], ts: float) -> np.ndarray:
    return np.concatenate([steps_to_next(record.t) / ts - 1.0 for record in records])
