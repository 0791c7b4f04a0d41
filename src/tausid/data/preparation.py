"""Explicit steps between what was measured and what is identified; each gives a new record that tells of it.

The same filter goes over inputs and outputs: filters commute with linear dynamics, so what the input does to the
output stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tausid import checks
from tausid.data import clocks, outliers
from tausid.data.records import Record
from tausid.errors import ConfigError, DataError
from tausid.shapes import Bool, Float

# A new sampling rate must be this ratio of whole numbers, at most, to the old one.
LARGEST_RATIO = 20_000
# Half the length of the low-pass, in samples of the slower clock; `scipy.signal.resample_poly` designs it so.
FILTER_SAMPLES = 10


def trim(record: Record, start: float = -np.inf, stop: float = np.inf, *, unit: str = "s") -> Record:
    """Keep the samples from `start` up to, but without, `stop`.

    Args:
        record: the record.
        start: where to begin: a time stamp in seconds, or the number of a sample.
        stop: where to end, likewise.
        unit: `s` for seconds on the record's own clock, `samples` for numbers of samples, counted from zero.

    Returns:
        The shorter record, its time stamps kept.

    Raises:
        ConfigError: an unknown unit, or limits that are no numbers.
        DataError: fewer than two samples are left.

    Example:
        >>> trim(Record.from_arrays([1, 2, 3, 4], [1, 2, 3, 4], ts=0.5), 0.5, 1.5).t
        array([0.5, 1. ])
    """
    checks.check_choice("unit", unit, ("s", "samples"))
    if np.isnan(start) or np.isnan(stop):
        raise ConfigError(f"`trim` must have numbers as limits; got {start} and {stop}. Give seconds or samples.")
    clock = record.t if unit == "s" else np.arange(len(record))
    first, last = (int(i) for i in np.searchsorted(clock, [start, stop], side="left"))
    if last - first < 2:
        raise DataError(
            f"`trim` must leave at least two samples; of {record.name!r}, from {clock[0]:g} to {clock[-1]:g} {unit}, "
            f"{max(last - first, 0)} lie from {start:g} to {stop:g}. Change the limits."
        )
    name = record.name if last - first == len(record) else f"{record.name}[{first}:{last}]"
    return _with_step(
        record.part(first, last, name=name), f"trim {start:.12g} {stop:.12g} {unit}: samples {first} to {last}"
    )


def detrend(record: Record, kind: str = "constant", *, channels: Sequence[str] | None = None) -> Record:
    """Take the mean or a straight line in time out of channels; missing outputs stay missing.

    Args:
        record: the record.
        kind: `constant` for the mean, `linear` for a line fitted by least squares.
        channels: names of the channels; by default all.

    Returns:
        The record; its history holds what was taken out, so that it can be put back.

    Raises:
        ConfigError: an unknown kind or channel.

    Example:
        >>> detrend(Record.from_arrays([1, 3], [5, 9], ts=1.0)).y[:, 0]
        array([-2.,  2.])
    """
    checks.check_choice("trend", kind, ("constant", "linear"))
    known = (*record.input_names, *record.output_names)
    chosen = _chosen(record, known if channels is None else channels)
    values, removed = np.concatenate([record.u, record.y], axis=1), []
    for i, name in enumerate(known):
        if chosen[i]:
            offset, slope = _fit_line(record.t, values[:, i], kind)
            values[:, i] -= offset + slope * (record.t - record.t[0])
            removed.append(f"{name} {offset:.9g}" + (f" {slope:+.9g} t" if kind == "linear" else ""))
    changed = replace(record, u=values[:, : record.nu], y=values[:, record.nu :])
    return _with_step(changed, f"detrend {kind}: took out {', '.join(removed)}")


def decimate(record: Record, factor: int) -> Record:
    """Filter with a low-pass and keep every `factor`-th sample.

    The low-pass is a linear-phase FIR filter that ends at the new Nyquist frequency and delays nothing. Outputs
    within one new sampling time of a missing sample are missing.

    Args:
        record: the record, with one clock.
        factor: how many samples become one.

    Raises:
        ConfigError: a factor that is no whole number of at least 1.
        DataError: an irregular clock, or fewer than two samples are left.
    """
    if isinstance(factor, bool) or not float(factor).is_integer() or factor < 1:
        raise ConfigError(f"`factor` must be a whole number of at least 1; got {factor!r}. Use resample for others.")
    _check_uniform(record, "decimated")
    kept = record.t[:: int(factor)]
    _check_two(record, len(kept), f"decimate {int(factor)}")
    made = _filter(record, 1, int(factor), kept)
    return _with_step(made, f"decimate {int(factor)}: {_clocks(record, made)}, low-pass {_low_pass(record, made)}")


def resample(record: Record, ts: float) -> Record:
    """Bring a record onto a uniform clock with another step, with a low-pass against aliasing.

    Polyphase filtering with a linear-phase FIR low-pass that ends at the lower of both Nyquist frequencies. Outputs
    within one sampling time, the longer of both, of a missing sample are missing.

    Args:
        record: the record, with one clock.
        ts: the new sampling time in seconds, in a ratio of whole numbers to the old one.

    Returns:
        The record on its new clock, which starts at the same time.

    Raises:
        ConfigError: `ts` is not positive, or in no such ratio.
        DataError: an irregular clock, or fewer than two samples are left.
    """
    checks.check_number("ts", ts, positive=True)
    _check_uniform(record, "resampled")
    old = _mean_step(record)
    ratio = Fraction(old / ts).limit_denominator(LARGEST_RATIO)
    count = int(np.floor((len(record) - 1) * old / ts * (1 + 1e-12))) + 1
    # By the end of the record the two clocks must not have drifted apart by more than a hundredth of a sample.
    if ratio.numerator > LARGEST_RATIO or abs(float(ratio) - old / ts) * (len(record) - 1) > 0.01:
        raise ConfigError(
            f"`ts` must be a ratio of whole numbers up to {LARGEST_RATIO} of the old sampling time, {old:g} s; got "
            f"{ts:g} s. Choose a simpler ratio, or decimate by a whole number."
        )
    _check_two(record, count, f"resample {ts:g}")
    made = _filter(record, ratio.numerator, ratio.denominator, record.t[0] + np.arange(count) * float(ts))
    return _with_step(made, f"resample {ts:.9g}: {_clocks(record, made)}, low-pass {_low_pass(record, made)}")


def interpolate(record: Record, ts: float, *, inputs: str = "hold") -> Record:
    """Bring a record with an irregular clock onto a uniform one; no filter, so nothing guards against aliasing.

    Outputs lie on straight lines between measured neighbours; they are missing where these are more than 2.5 median
    steps apart.

    Args:
        record: the record.
        ts: the sampling time in seconds.
        inputs: what inputs did between samples: `hold` for the last one, whose mean over each new step is taken, so
            that none of its area is lost; `linear` for straight lines.

    Returns:
        The record on its new clock, which starts at the same time.

    Raises:
        ConfigError: `ts` is not positive, or an unknown way.
        DataError: fewer than two samples are left, or an output has none.
    """
    checks.check_number("ts", ts, positive=True)
    checks.check_choice("interpolation", inputs, ("hold", "linear"))
    steps = (record.t[-1] - record.t[0]) / ts
    if steps > 1e9:
        raise ConfigError(f"`ts` must give at most 1e9 samples; {ts:g} s gives {steps:.3g}. Choose a longer one.")
    _check_two(record, int(np.floor(steps * (1 + 1e-12))) + 1, f"interpolate {ts:g}")
    made = clocks.to_uniform(record, float(ts), hold="zero" if inputs == "hold" else "first")
    lost = f"{int(np.isnan(made.y).sum())} outputs missing, far from measured ones"
    return _with_step(made, f"interpolate {ts:.9g} {inputs}: {_clocks(record, made)}, {lost}")


def split(record: Record, share: float) -> tuple[Record, Record]:
    """Cut a record in two.

    Args:
        record: the record.
        share: which share of its samples belongs to the first part.

    Returns:
        The first part and the last one, time stamps kept.

    Raises:
        ConfigError: a share that is not between 0 and 1.
        DataError: a part with fewer than two samples.

    Example:
        >>> first, last = split(Record.from_arrays([1, 2, 3, 4], [1, 2, 3, 4], ts=1.0), 0.5)
        >>> last.t
        array([2., 3.])
    """
    if not 0 < share < 1:
        raise ConfigError(f"`share` must be between 0 and 1; got {share!r}. Write 0.75 for three quarters.")
    cut = int(share * len(record))
    if cut < 2 or len(record) - cut < 2:
        raise DataError(
            f"`split` must leave at least two samples in each part; {share:g} of {len(record)} samples of "
            f"{record.name!r} does not. Change the share."
        )
    first, last = record.part(0, cut), record.part(cut, len(record))
    return (
        _with_step(first, f"split {share:g} first: samples 0 to {cut}"),
        _with_step(last, f"split {share:g} last: samples {cut} to {len(record)}"),
    )


def blank(record: Record, value: float) -> Record:
    """Take a value that a logger writes for "nothing" for what it is: missing.

    Args:
        record: the record.
        value: the value, such as -999.

    Returns:
        The record; outputs of this value are missing, inputs hold the last other value.

    Raises:
        DataError: a channel has no other value.

    Example:
        >>> blank(Record.from_arrays([1, -999, 3], [1, 2, -999], ts=1.0), -999).u[:, 0]
        array([1., 1., 3.])
    """
    bad = np.isclose(np.concatenate([record.u, record.y], axis=1), value, rtol=1e-6, atol=0.0)
    return _without(record, bad, f"blank {value:.9g}")


def drop_outliers(record: Record, *, channels: Sequence[str] | None = None) -> Record:
    """Take out single samples far from their neighbours and from the rest, by the rule of `tausid.look`.

    Args:
        record: the record.
        channels: names of the channels; by default the outputs.

    Returns:
        The record; outliers of outputs are missing, inputs hold the last value before one.

    Raises:
        ConfigError: an unknown channel.
    """
    chosen = _chosen(record, record.output_names if channels is None else channels)
    bad = np.zeros((len(record), record.nu + record.ny), dtype=bool)
    for i, values in enumerate(np.concatenate([record.u, record.y], axis=1).T):
        bad[outliers.find_outliers(values) if chosen[i] else [], i] = True
    return _without(record, bad, "drop-outliers")


def clip(record: Record, low: float, high: float, channels: Sequence[str]) -> Record:
    """Limit channels to a range, such as that of their sensor.

    Args:
        record: the record.
        low: smallest value.
        high: largest value.
        channels: names of the channels.

    Raises:
        ConfigError: an unknown channel, or a range that is none.

    Example:
        >>> clip(Record.from_arrays([1, 2], [-3, 30], ts=1.0), 0, 10, ["y"]).y[:, 0]
        array([ 0., 10.])
    """
    if not low < high:
        raise ConfigError(f"`clip` must have a lower limit below the upper one; got {low:g} and {high:g}. Correct it.")
    chosen = _chosen(record, channels)
    values = np.concatenate([record.u, record.y], axis=1)
    clipped = np.where(chosen, np.clip(values, low, high), values)
    changed = int((clipped != values)[~np.isnan(values)].sum())
    made = replace(record, u=clipped[:, : record.nu], y=clipped[:, record.nu :])
    return _with_step(made, f"clip {low:.9g} {high:.9g} {' '.join(channels)}: {changed} samples")


def _chosen(record: Record, channels: Sequence[str]) -> Bool[np.ndarray, " n"]:
    known = (*record.input_names, *record.output_names)
    for name in channels:
        checks.check_choice("channel", name, known)
    return np.array([name in channels for name in known])


def _without(record: Record, bad: Bool[np.ndarray, "N n"], step: str) -> Record:
    """Without bad samples: outputs are missing, inputs hold the last good value, or at the start the first one."""
    y, u = np.where(bad[:, record.nu :], np.nan, record.y), record.u.copy()
    for i, mask in enumerate(bad[:, : record.nu].T):
        if mask.all():
            raise DataError(f"`{step}` must leave a sample of {record.input_names[i]!r}; it leaves none. Leave it out.")
        good = np.flatnonzero(~mask)
        u[:, i] = u[good[np.maximum(np.searchsorted(good, np.arange(len(u)), side="right") - 1, 0)], i]
    names = (*record.input_names, *record.output_names)
    counts = [f"{name} {count}" for name, count in zip(names, bad.sum(axis=0), strict=True) if count]
    return _with_step(replace(record, u=u, y=y), f"{step}: {', '.join(counts) or 'no'} samples")


def _with_step(record: Record, description: str) -> Record:
    return replace(record, history=(*record.history, description))


def _fit_line(t: np.ndarray, values: np.ndarray, kind: str) -> tuple[float, float]:
    """Offset at the first time stamp, and slope, of the measured samples."""
    known = ~np.isnan(values)
    if kind == "constant" or known.sum() < 2:
        return float(np.mean(values[known])), 0.0
    since = t[known] - t[0]
    centre, mean = since.mean(), values[known].mean()
    slope = float(((since - centre) @ (values[known] - mean)) / ((since - centre) @ (since - centre)))
    return float(mean - slope * centre), slope


def _filter(record: Record, up: int, down: int, clock: np.ndarray) -> Record:
    """All channels through one low-pass, onto the new clock."""
    samples = len(clock)
    y = np.stack([_resample_channel(column, up, down)[:samples] for column in record.y.T], axis=1)
    u = [_resample_channel(column, up, down)[:samples] for column in record.u.T]
    reach = max(record.ts, (clock[-1] - clock[0]) / (samples - 1))
    y[_near_missing(record, clock, reach)] = np.nan
    return replace(record, u=np.stack(u, axis=1) if u else np.zeros((samples, 0)), y=y, t=clock)


def _resample_channel(values: np.ndarray, up: int, down: int) -> Float[np.ndarray, " M"]:
    """One channel through the low-pass; missing samples lie on straight lines meanwhile."""
    from scipy.signal import resample_poly  # late: it takes a while to import

    if up == down:
        return values.copy()
    missing = np.isnan(values)
    if missing.any():
        values = np.interp(np.arange(len(values)), np.flatnonzero(~missing), values[~missing])
    # Past its ends the signal goes on as the line through them: no jump that would ring into the record.
    return resample_poly(values, up, down, padtype="line")


def _near_missing(record: Record, clock: np.ndarray, reach: float) -> Bool[np.ndarray, "M ny"]:
    """Which new samples have a missing one within reach."""
    near = np.zeros((len(clock), record.ny), dtype=bool)
    for channel, values in enumerate(record.y.T):
        missing = record.t[np.isnan(values)]
        # A thousandth of slack, as time stamps are rounded.
        first = np.searchsorted(missing, clock - 1.001 * reach)
        near[:, channel] = np.searchsorted(missing, clock + 1.001 * reach) > first
    return near


def _mean_step(record: Record) -> float:
    return float((record.t[-1] - record.t[0]) / (len(record) - 1))


def _clocks(before: Record, after: Record) -> str:
    return f"{len(before)} to {len(after)} samples, Ts {before.ts:.6g} to {after.ts:.6g} s"


def _low_pass(before: Record, after: Record) -> str:
    return f"at {0.5 / max(before.ts, after.ts):.6g} Hz, ends affected for {FILTER_SAMPLES} samples"


def _check_uniform(record: Record, done: str) -> None:
    if not record.is_uniform:
        steps = np.diff(record.t)
        raise DataError(
            f"record {record.name!r} must have one sampling time to be {done}; its steps are from {steps.min():g} to "
            f"{steps.max():g} s. Bring it onto one clock first: interpolate(record, {record.ts:.4g}) "
            f'(--prepare "interpolate {record.ts:.4g}").'
        )


def _check_two(record: Record, left: int, step: str) -> None:
    if left < 2:
        raise DataError(f"`{step}` must leave at least two samples; {len(record)} of {record.name!r} become {left}.")
