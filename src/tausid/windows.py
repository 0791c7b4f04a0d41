"""Training windows: stretches of normalized records, gathered by index and never copied ahead of time."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tausid.config import FULL
from tausid.errors import ConfigError, DataError
from tausid.records import Record
from tausid.scaling import Scaling


class Windows(eqx.Module):
    """A batch of windows, time first, in normalized units and seconds.

    Args:
        past_u: inputs before the window, from old to new.
        past_y: outputs before the window, from old to new.
        u: inputs in the window.
        y: outputs in the window; 0 where missing.
        measured: where `y` was measured.
        dt: seconds from each sample of the window to the next.
        record: which record each window is from.
    """

    past_u: Float[Array, "n_past B nu"]
    past_y: Float[Array, "n_past B ny"]
    u: Float[Array, "J B nu"]
    y: Float[Array, "J B ny"]
    measured: Bool[Array, "J B ny"]
    dt: Float[Array, "J-1 B"]
    record: Int[Array, "B"]


class WindowSource(eqx.Module):
    """All records end to end, and where a window may start.

    Args:
        u: inputs of all records, normalized.
        y: outputs of all records, normalized; 0 where missing.
        measured: where `y` was measured.
        dt: seconds to the next sample; the last one of a record is repeated.
        stops: end of each record in these arrays.
        starts: where windows may start: `n_past` samples into a record or later, with J samples ahead.
        n_past: samples before a window that the encoder sees.
        horizon: samples per window, J.
    """

    u: Float[Array, "N nu"]
    y: Float[Array, "N ny"]
    measured: Bool[Array, "N ny"]
    dt: Float[Array, "N"]
    stops: Int[Array, "n_records"]
    starts: Int[Array, "n_windows"]
    n_past: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @classmethod
    def from_records(
        cls, records: Sequence[Record], scaling: Scaling, *, horizon: int | str, n_past: int
    ) -> WindowSource:
        """Lay the records end to end and list the starts of all windows.

        Args:
            records: training records.
            scaling: physical to normalized units.
            horizon: samples per window, or `full` for one window per record.
            n_past: samples before a window that the encoder sees.

        Returns:
            The source.

        Raises:
            ConfigError: a record is shorter than `n_past + horizon`.
            DataError: no window has measured outputs in all its past samples.
        """
        longest = max(len(record) for record in records) - n_past
        samples = longest if horizon == FULL else int(horizon)
        y = np.concatenate([scaling.normalize_y(record.y) for record in records])
        stops = np.cumsum([len(record) for record in records])
        starts = np.concatenate(
            [
                first_samples(record, samples, n_past, full=horizon == FULL) + stop - len(record)
                for record, stop in zip(records, stops, strict=True)
            ]
        )
        starts = starts[_past_is_measured(~np.isnan(y).any(axis=1), starts, n_past)]
        if not len(starts):
            raise DataError(
                f"windows must have {n_past} measured outputs before them; every place has a missing one. "
                "Use fewer past samples (na, nb), or a record with fewer gaps."
            )
        return cls(
            u=jnp.asarray(np.concatenate([scaling.normalize_u(record.u) for record in records])),
            y=jnp.asarray(np.nan_to_num(y)),
            measured=jnp.asarray(~np.isnan(y)),
            dt=jnp.asarray(np.concatenate([steps_to_next(record) for record in records])),
            stops=jnp.asarray(stops, jnp.int32),
            starts=jnp.asarray(starts, jnp.int32),
            n_past=n_past,
            horizon=samples,
        )

    def gather(self, index: Int[Array, "B"]) -> Windows:
        """The windows at these places of `starts`.

        A window that is longer than what is left of its record holds the last input, with no output measured.

        Args:
            index: which windows.

        Returns:
            The batch.
        """
        start = self.starts[index]
        record = jnp.searchsorted(self.stops, start, side="right").astype(jnp.int32)
        past = start + jnp.arange(-self.n_past, 0)[:, None]  # (n_past, B)
        ahead = start + jnp.arange(self.horizon)[:, None]  # (J, B)
        last = self.stops[record] - 1
        inside = jnp.minimum(ahead, last)
        return Windows(
            past_u=self.u[past],
            past_y=self.y[past],
            u=self.u[inside],
            y=self.y[inside],
            measured=self.measured[inside] & (ahead <= last)[..., None],
            dt=self.dt[inside[:-1]],
            record=record,
        )


def first_samples(record: Record, samples: int, n_past: int, *, full: bool) -> Int[np.ndarray, "n"]:
    """Where windows of this record may start.

    Args:
        record: the record.
        samples: samples per window.
        n_past: samples before a window.
        full: whether one window is the whole record.

    Returns:
        Sample numbers.

    Raises:
        ConfigError: the record is too short.
    """
    least = n_past + (2 if full else samples)
    if len(record) < least:
        raise ConfigError(
            f"record {record.name!r} must have at least {least} samples ({n_past} for the initial state and "
            f"{least - n_past} for a window); got {len(record)}. Use a longer record, or a shorter horizon."
        )
    return np.arange(n_past, n_past + 1 if full else len(record) - samples + 1)


def steps_to_next(record: Record) -> Float[np.ndarray, "N"]:
    """Seconds from each sample to the next, the last one repeated.

    Args:
        record: the record.

    Returns:
        One step per sample.
    """
    steps = np.diff(record.t)
    return np.append(steps, steps[-1])


def _past_is_measured(measured: np.ndarray, starts: np.ndarray, n_past: int) -> np.ndarray:
    missing_before = np.concatenate([[0], np.cumsum(~measured)])
    return missing_before[starts] == missing_before[starts - n_past]
