"""Windows of normalized records, and where they are gathered from."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.errors import DataError
from tausid.model.model import Model
from tausid.training.parts import FULL
from tausid.training.past import at_nominal_times, fill_past
from tausid.training.window_layout import fill_rows, lay_out, sample_rows, stamp_lags, window_runs, window_samples


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
        """Lay the records end to end and find the starts of all windows."""
        layouts = [lay_out(record, longest, hold) for record in records]
        samples = window_samples(layouts, horizon, n_past)
        runs = [window_runs(layout, samples, n_past, full=horizon == FULL) for layout in layouts]
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
            **fill_rows(layouts, scaling),
            stops=jnp.asarray(stops, jnp.int32),
            ends=jnp.asarray(ends, jnp.int32),
            shifts=jnp.asarray(starts[:, 1] - ends, jnp.int32),
            rows=None if whole else jnp.asarray(sample_rows(layouts, stops), jnp.int32),
            lag=None if ts is None else jnp.asarray(stamp_lags(records, ts)),
            gaps=any(bool(np.isnan(record.y).any()) for record in records),
            count=int(ends[-1]),
            n_past=n_past,
            horizon=samples,
        )

    def starts(self, index: Int[Array, "B"]) -> Int[Array, "B"]:
        """The samples at which windows start, counted through all records."""
        return index + self.shifts[jnp.searchsorted(self.ends, index, side="right")]

    def past(
        self, index: Int[Array, "B"]
    ) -> tuple[Float[Array, "n_past B nu"], Float[Array, "n_past B ny"], Float[Array, "n_past B"] | None]:
        """What the encoder sees before these windows."""
        samples = self.starts(index) + jnp.arange(-self.n_past, 0)[:, None]  # (n_past, B)
        rows = self._row(samples)
        lag = None if self.lag is None else jax.lax.cumsum(self.lag[samples], axis=0, reverse=True)
        u, y = self.u[rows], self.y[rows]
        y = fill_past(y, self.measured[rows], lag) if self.gaps else y
        return (u, y, None) if lag is None else (at_nominal_times(u, lag), at_nominal_times(y, lag), lag)

    def gather(self, index: Int[Array, "B"]) -> Windows:
        """These windows.

        A window that is longer than what is left of its record holds the last input, with no output measured.
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


def make_windows(model: Model, records: Sequence[Record], *, horizon: int | str) -> WindowSource:
    """Windows of records in the model's units, with the past that its encoder sees."""
    n_past = model.state_space.initial.n_past
    sees_time = model.structure.clock == "irregular" and n_past > 0
    return WindowSource.from_records(
        records,
        model.scaling,
        horizon=horizon,
        n_past=n_past,
        longest=model.longest_step,
        hold=model.integration.hold,
        ts=model.ts if sees_time else None,
    )
