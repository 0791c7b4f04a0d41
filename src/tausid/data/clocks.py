"""Time as it was measured: one clock or several, jitter, gaps, and grids between the samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tausid.data.records import UNIFORM_TOLERANCE, Record
from tausid.errors import ConfigError, DataError
from tausid.shapes import Float, Int

# A step longer than this many median steps is a gap: what the inputs did in it is not known.
GAP_STEPS = 10.0
# A step longer than this many median steps has lost samples.
LOST_STEPS = 1.5
# Outputs are interpolated between measured ones that are at most this many steps apart.
NEAR_STEPS = 2.5
# More samples than this, on a clock that is asked for, do not fit into the memory of most machines.
MOST_SAMPLES = 100_000_000


def find_gaps(steps: Float[np.ndarray, "n"], ts: float, *, longest: float | None = None) -> Int[np.ndarray, "gaps"]:
    """Which steps of a clock are gaps: longer than `longest` seconds, by default ten median steps `ts`."""
    return np.flatnonzero(steps > (GAP_STEPS * ts if longest is None else longest))


def count_lost(steps: Float[np.ndarray, "n"], ts: float) -> int:
    """How many samples are lost between those that are there."""
    return int(np.round(steps[steps > LOST_STEPS * ts] / ts - 1.0).sum())


def has_one_clock(records: Sequence[Record], *, ts: float | None = None) -> bool:
    """Whether all steps of all records are equal to within a thousandth."""
    ts = records[0].ts if ts is None else ts
    return all(r.is_uniform and abs(r.ts - ts) <= UNIFORM_TOLERANCE * ts for r in records)


def check_count(count: float, step: float, seconds: float) -> None:
    """Check that a clock that is asked for does not have more samples than can be held."""
    if not count <= MOST_SAMPLES:
        raise ConfigError(
            f"a time step must give at most {MOST_SAMPLES:g} samples; {step:g} s gives {count:.3g} of them over "
            f"{seconds:g} s. Take a longer step, or a part of the record."
        )


def median_step(records: Sequence[Record]) -> float:
    """The sampling time of records: the median over the steps of all of them."""
    if has_one_clock(records):
        return records[0].ts
    return float(np.median(np.concatenate([np.diff(record.t) for record in records])))


def nominal_step(record: Record) -> float:
    """The step of the regular clock behind jitter and lost samples: a uniform clock with it does not drift away."""
    steps = np.diff(record.t)
    return float(steps.sum() / np.maximum(np.round(steps / record.ts), 1.0).sum())


def spans(records: Sequence[Record], steps: int) -> tuple[float, float]:
    """The shortest and the longest time that a number of steps in a row takes."""
    lasts = [record.t[steps:] - record.t[: len(record) - steps] for record in records]
    return float(min(last.min() for last in lasts)), float(max(last.max() for last in lasts))


def split_at_gaps(record: Record, *, least: int = 2, max_gap: float | None = None) -> tuple[Record, ...]:
    """The stretches of a record between its gaps, as records of their own.

    Args:
        record: the record.
        least: samples that a stretch must have; shorter ones are left out.
        max_gap: longest step in seconds that is not a gap; by default ten times the median one.

    Returns:
        The record itself where it has no gap; otherwise its stretches that are long enough and have every output
        measured.

    Raises:
        DataError: no stretch is long enough.

    Example:
        >>> record = Record.from_arrays(range(5), range(5), t=[0.0, 1.0, 2.0, 60.0, 61.0])
        >>> [part.name for part in split_at_gaps(record)]
        ['record[0:3]', 'record[3:5]']
    """
    ends = [*(find_gaps(np.diff(record.t), record.ts, longest=max_gap) + 1).tolist(), len(record)]
    if len(ends) == 1:
        return (record,)
    pairs = [(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True) if b - a >= max(least, 2)]
    parts = [record.part(a, b) for a, b in pairs if not np.isnan(record.y[a:b]).all(axis=0).any()]
    if not parts:
        limit = GAP_STEPS * record.ts if max_gap is None else max_gap
        raise DataError(
            f"record {record.name!r} must have a stretch of {least} samples without a gap; its {len(ends)} stretches "
            f"are shorter (a step above {limit:g} s is a gap). Use a shorter horizon, or raise max_gap."
        )
    return tuple(parts)


def split_steps(t: Float[np.ndarray, "N"], longest: float) -> tuple[Float[np.ndarray, "M"], Int[np.ndarray, "N"]]:
    """Split long steps into equal parts."""
    if np.max(np.diff(t), initial=0.0) <= longest * (1.0 + UNIFORM_TOLERANCE):
        return t, np.arange(len(t))
    parts = np.maximum(np.ceil(np.diff(t) / longest - UNIFORM_TOLERANCE), 1.0)
    check_count(parts.sum(), longest, t[-1] - t[0])
    places = np.concatenate([[0], np.cumsum(parts)]).astype(int)
    return np.interp(np.arange(places[-1] + 1), places, t), places


def held_between(
    u: Float[np.ndarray, "N nu"], places: Int[np.ndarray, "N"], slopes: Iterable[float]
) -> Float[np.ndarray, "M nu"]:
    """Inputs at the finer time stamps that `split_steps` gave."""
    if places[-1] + 1 == len(u):
        return u
    fine = np.arange(places[-1] + 1)
    before = np.searchsorted(places, fine, side="right") - 1
    columns = [np.interp(fine, places, u[:, i]) if slope else u[before, i] for i, slope in enumerate(slopes)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(fine), 0))


def inputs_at(
    record: Record, t: Float[np.ndarray, "M"], slopes: Iterable[float], tolerance: float
) -> Float[np.ndarray, "M nu"]:
    """The record's inputs at other times: the sample before, or between the neighbours."""
    before = np.searchsorted(record.t, t + tolerance, side="right") - 1
    columns = [
        np.interp(t, record.t, record.u[:, i]) if slope else record.u[before, i] for i, slope in enumerate(slopes)
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(t), 0))


def delay_inputs(record: Record, delays: Sequence[float], slopes: Iterable[float]) -> Record:
    """The record with each input as it was so many seconds before; before the first sample it is as there."""
    if not any(delays):
        return record
    slopes, tolerance = tuple(slopes), 1e-3 * float(np.diff(record.t).min())
    columns = [
        inputs_at(record, np.maximum(record.t - delay, record.t[0]), slopes, tolerance)[:, i]
        for i, delay in enumerate(delays)
    ]
    return dataclasses.replace(record, u=np.stack(columns, axis=1))


def samples_within(record: Record, seconds: float) -> int:
    """How many samples are earlier than so many seconds after the first one."""
    return int(np.searchsorted(record.t, record.t[0] + seconds - 1e-3 * float(np.diff(record.t).min())))


def on_one_clock(records: Sequence[Record], *, hold: str, ts: float | None = None) -> tuple[Record, ...]:
    """The records on one uniform clock, for what needs one: a linear approximation."""
    if hold not in ("zero", "first"):
        raise ConfigError(f"`hold` must be 'zero' or 'first' here; got {hold!r}. Choose one.")
    if has_one_clock(records, ts=ts):
        return tuple(records)
    step = median_step(records) if ts is None else ts
    return tuple(to_uniform(record, step, hold=hold, near=step) for record in records)


def to_uniform(record: Record, ts: float, *, hold: str, near: float | None = None) -> Record:
    """The record on a uniform clock that starts at the same time.

    A zero-order-held input becomes its mean over each new step, so that none of its area is lost; a first-order-held
    one is interpolated. Outputs are interpolated between measured neighbours that are at most 2.5 times `near` apart,
    by default the record's median step, and missing elsewhere.
    """
    lasts = record.t[-1] - record.t[0]
    check_count(lasts / ts, ts, lasts)
    count = int(np.floor(lasts / ts + UNIFORM_TOLERANCE)) + 1
    if count < 2:
        raise DataError(
            f"record {record.name!r} must last two steps of {ts:g} s; it lasts {lasts:g} s. Leave "
            "it out, or choose a shorter step."
        )
    t = record.t[0] + ts * np.arange(count)
    reach = NEAR_STEPS * (record.ts if near is None else near)
    y = [_interpolate_near(t, record.t, channel, reach) for channel in record.y.T]
    u = [np.interp(t, record.t, channel) if hold == "first" else _means(t, record.t, channel) for channel in record.u.T]
    return replace(record, u=np.stack(u, axis=1) if u else np.zeros((count, 0)), y=np.stack(y, axis=1), t=t)


def _means(t: np.ndarray, t_old: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Mean of a zero-order-held signal over each step of a new clock; the last value at its end."""
    area = np.concatenate([[0.0], np.cumsum(u[:-1] * np.diff(t_old))])
    means = np.diff(np.interp(t, t_old, area)) / np.diff(t)
    return np.append(means, u[np.searchsorted(t_old, t[-1], side="right") - 1])


def _interpolate_near(t: np.ndarray, t_old: np.ndarray, channel: np.ndarray, near: float) -> np.ndarray:
    known = ~np.isnan(channel)
    times, values = t_old[known], channel[known]
    after = np.clip(np.searchsorted(times, t), 1, max(len(times) - 1, 1))
    to_left = t - times[after - 1]
    to_right = times[np.minimum(after, len(times) - 1)] - t
    on_sample = np.minimum(np.abs(to_left), np.abs(to_right)) <= UNIFORM_TOLERANCE * near
    between = (to_left >= 0) & (to_right >= 0) & (to_left + to_right <= near)
    return np.where(on_sample | between, np.interp(t, times, values), np.nan)
