"""A first look: clock and channels, measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tausid.data.clocks import LOST_STEPS, count_lost, find_gaps
from tausid.data.inspection._reports import BAND_SHARE, ChannelReport, ClockReport, Inspection, usable
from tausid.data.inspection._suggestions import suggest, suggest_samples
from tausid.data.limits import find_limits
from tausid.data.outliers import find_marks, find_outliers
from tausid.data.readers import Channel, Channels, Key, Keys, read_channels
from tausid.data.records import UNIFORM_TOLERANCE, Record


def look(
    source: Any,
    *,
    inputs: Keys | None = None,
    outputs: Keys | None = None,
    ts: float | None = None,
    time: Key | None = None,
    time_format: str | None = None,
) -> Inspection:
    """Take a first look at data: what is there, how it was sampled, what is wrong with it, and what to do.

    Args:
        source: a record, channels, or what `read` takes: a path, a data frame, a mapping.
        inputs: names of the inputs, if that is known already.
        outputs: names of the outputs; with these, only the named channels are looked at.
        ts: sampling time in seconds, if it is known.
        time: the channel of time stamps, if it is known.
        time_format: how dates are written that are no ISO 8601, as for `read`.

    Raises:
        DataError: the file is damaged, or an unknown channel was named.
        MissingExtraError: the library for this kind of file is not installed.

    Example:
        >>> found = look({"u": [0.0, 1.0, 0.0, 1.0], "y": [2.0, 2.0, 2.0, 2.0], "Ts": 0.5})
        >>> found.clock.ts, found.channels[1].is_constant
        (0.5, True)
    """
    if isinstance(source, Record):
        return inspect_channels(Channels.from_record(source))
    if isinstance(source, Channels):
        return inspect_channels(source)
    return inspect_channels(
        read_channels(source, inputs=inputs, outputs=outputs, ts=ts, time=time, time_format=time_format)
    )


def bad_samples(records: Sequence[Record]) -> list[str]:
    """Marks for "nothing" and outliers in records, in sentences with the option to type."""
    found = []
    for record in records:
        data = Channels.from_record(record)
        reports = [_inspect_channel(channel, None) for channel in data.channels]
        found += [f"{record.name}: {sentence}" for report in reports for sentence in suggest_samples(report, data)]
    return found


def inspect_channels(data: Channels) -> Inspection:
    """Analyse channels."""
    clock = _inspect_clock(data)
    reports = tuple(_inspect_channel(channel, clock) for channel in data.channels)
    return Inspection(data.name, clock, reports, tuple(suggest(data, clock, reports)), data.history)


def _inspect_clock(data: Channels) -> ClockReport | None:
    stamps = data.with_role("time")
    if stamps:
        return _clock_of(stamps[0].values)
    samples = max((len(channel.values) for channel in data.channels), default=0)
    if data.ts is None or samples < 2:
        return None
    ts = float(data.ts)
    return ClockReport(samples, 0.0, (samples - 1) * ts, ts, ts, ts, 0.0, 0, 0, None, 0, True)


def _clock_of(stamps: np.ndarray) -> ClockReport | None:
    t = stamps[usable(stamps)]
    if len(t) < 2:
        return None
    steps = np.diff(t)
    ahead = steps[steps > 0]
    ts = float(np.median(ahead)) if len(ahead) else 0.0
    gaps = find_gaps(ahead, ts)
    regular = ahead[ahead <= LOST_STEPS * ts]
    return ClockReport(
        samples=len(stamps),
        start=float(t[0]),
        stop=float(t[-1]),
        ts=ts,
        shortest=float(steps.min()),
        longest=float(steps.max()),
        jitter=float(np.std(regular) / ts) if len(regular) else 0.0,
        lost=count_lost(ahead, ts),
        gaps=len(gaps),
        longest_gap_from=float(t[np.argmax(steps)]) if len(gaps) else None,
        backwards=int((steps <= 0).sum()),
        is_uniform=bool(ts > 0 and np.all(np.abs(steps - ts) <= UNIFORM_TOLERANCE * ts)),
        repeated=int((steps == 0).sum()),
    )


def _inspect_channel(channel: Channel, clock: ClockReport | None) -> ChannelReport:
    known = usable(channel.values)
    values = channel.values[known]
    report = ChannelReport(
        channel.name, channel.role, channel.unit, len(channel.values), int((~known).sum()), note=channel.note
    )
    if not len(values):
        return report
    marks, marked, outliers = _strange(channel)
    low, high, mean, std = float(values.min()), float(values.max()), float(values.mean()), float(values.std())
    still_from, longest_still = _longest_run(channel.values)
    levels = len(np.unique(values))
    return dataclasses.replace(
        report,
        minimum=low,
        maximum=high,
        mean=mean,
        std=std,
        levels=levels,
        changes=int(np.count_nonzero(np.diff(values))),
        limits=find_limits([values]),
        at_minimum=float(np.mean(values == low)),
        at_maximum=float(np.mean(values == high)),
        longest_still=longest_still,
        still_from=still_from,
        crest=max(high - mean, mean - low) / std if levels > 1 and std > 0 else None,
        band_hz=_band(channel, clock) if levels > 1 and channel.role != "time" else None,
        marks=tuple(marks),
        marked=tuple(marked.tolist()),
        outliers=tuple(outliers.tolist()),
    )


def _strange(channel: Channel) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Marks for "nothing", where they are, and where other outliers are; a clock has neither."""
    if channel.role == "time":
        return [], np.arange(0), np.arange(0)
    marks = find_marks(channel.values)
    marked = np.isin(channel.values, marks)
    return marks, np.flatnonzero(marked), find_outliers(np.where(marked, np.nan, channel.values))


def _longest_run(values: np.ndarray) -> tuple[int, int]:
    """Where the longest run of one and the same value begins, and how many samples it has."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1  # NaN differs from everything, itself included
    edges = np.concatenate([[0], changes, [len(values)]])
    longest = int(np.argmax(np.diff(edges)))
    return int(edges[longest]), int(edges[longest + 1] - edges[longest])


def _band(channel: Channel, clock: ClockReport | None) -> float | None:
    """Frequency below which most of the power lies, the mean left out; missing samples are bridged by lines."""
    known = usable(channel.values)
    if clock is None or not clock.is_uniform or known.sum() < 8:
        return None
    from scipy.signal import welch  # late: it takes a while to import

    values = np.interp(np.arange(len(known)), np.flatnonzero(known), channel.values[known])
    spread = np.std(values)
    if not spread > 0:
        return None
    # Long segments, as slow channels need them; deviations are scaled, so that squares of any unit stay numbers.
    freq_hz, power = welch((values - values.mean()) / spread, fs=1.0 / clock.ts, nperseg=min(len(values), 8192))
    total = np.cumsum(power)
    return float(freq_hz[np.searchsorted(total, BAND_SHARE * total[-1])]) if total[-1] > 0 else None
