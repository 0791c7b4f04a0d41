"""A first look at data: channels, clock, gaps, limits and excitation, and what to do about them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from tausid.readers import Channel, Channels, Key, Keys, read_channels
from tausid.records import LARGEST, UNIFORM_TOLERANCE, Record

# A step of the clock longer than this many median steps is a gap.
GAP_STEPS = 1.5
# A channel with at most this many different values is a switch or a staircase: it has no limits to run into.
FEW_LEVELS = 16
# From this share of samples at its largest or smallest value on, a channel is said to run into a limit.
LIMIT_SHARE = 0.01
# A value that stands still for this share of the record, and for this many samples, is a dead stretch.
DEAD_SHARE, DEAD_SAMPLES = 0.05, 20
# The band of a channel holds this share of its power.
BAND_SHARE = 0.99
# Samples per period of the highest frequency in the band that must be left: generously for outputs, which show the
# dynamics; for inputs, so many that the low-pass of a decimation leaves the band as it is.
OUTPUT_SAMPLES, INPUT_SAMPLES = 20.0, 2.5
# An input that changes less often than this excites little.
FEW_CHANGES = 10
# Fewer samples than this are not to be decimated.
ENOUGH_SAMPLES = 1000
# Names that time stamps and sampling times usually have, in lower case.
TIME_NAMES = ("t", "time", "tid", "zeit", "timestamp", "seconds", "time_s", "t_s", "samplinginstants")
TS_NAMES = ("ts", "dt", "sampletime", "samplingtime", "sample_time", "sampling_time")


@dataclass(frozen=True)
class ChannelReport:
    """What can be said of one channel.

    Args:
        name: its name.
        role: `input`, `output`, `time`, or empty while nobody has said.
        unit: its unit, if it is known.
        samples: number of samples, missing ones included.
        missing: number of missing samples, NaN or infinite.
        minimum: smallest value; None without any.
        maximum: largest value; None without any.
        mean: mean value; None without any.
        std: standard deviation; None without any.
        levels: number of different values.
        changes: number of samples whose value is not that of the sample before.
        at_minimum: share of the samples at the smallest value.
        at_maximum: share of the samples at the largest value.
        longest_still: most samples in a row with one and the same value.
        still_from: number of the sample at which that stretch begins.
        crest: largest deviation from the mean in standard deviations; None for a constant.
        band_hz: frequency below which 99 % of its power lies; None for a constant or without a uniform clock.
        note: why it holds no numbers, if it does not.
    """

    name: str
    role: str
    unit: str
    samples: int
    missing: int
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None
    levels: int = 0
    changes: int = 0
    at_minimum: float = 0.0
    at_maximum: float = 0.0
    longest_still: int = 0
    still_from: int = 0
    crest: float | None = None
    band_hz: float | None = None
    note: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it has samples, all of one value."""
        return self.levels == 1

    @property
    def limited(self) -> float:
        """Share of the samples at a limit, 0 where the channel runs into none."""
        shares = [share for share in (self.at_minimum, self.at_maximum) if share >= LIMIT_SHARE]
        return sum(shares) if self.levels > FEW_LEVELS else 0.0

    @property
    def is_dead(self) -> bool:
        """Whether it stands still for long, though it is no switch and at no limit."""
        long = self.longest_still >= max(DEAD_SAMPLES, DEAD_SHARE * self.samples)
        return long and self.levels > FEW_LEVELS and not self.limited


@dataclass(frozen=True)
class ClockReport:
    """What can be said of the clock.

    Args:
        samples: number of time stamps.
        start: first time stamp in seconds.
        stop: last time stamp in seconds.
        ts: median step in seconds.
        shortest: shortest step in seconds.
        longest: longest step in seconds.
        jitter: standard deviation of the steps that are no gaps, as a share of the median step.
        gaps: number of steps longer than 1.5 median steps.
        longest_gap_from: time stamp before the longest gap; None without gaps.
        backwards: number of time stamps that do not come after the one before.
        is_uniform: whether all steps are equal to within a thousandth.
    """

    samples: int
    start: float
    stop: float
    ts: float
    shortest: float
    longest: float
    jitter: float
    gaps: int
    longest_gap_from: float | None
    backwards: int
    is_uniform: bool


@dataclass(frozen=True)
class Inspection:
    """What a first look at data finds.

    Args:
        name: the name of the data.
        clock: the clock, or None while it is not known.
        channels: the channels in the order of the file.
        suggestions: what to do, in sentences, with the option to type.
        history: what was done to the channels since they were measured.
    """

    name: str
    clock: ClockReport | None
    channels: tuple[ChannelReport, ...]
    suggestions: tuple[str, ...]
    history: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return {
            "name": self.name,
            "clock": None if self.clock is None else dataclasses.asdict(self.clock),
            "channels": [dataclasses.asdict(channel) for channel in self.channels],
            "suggestions": list(self.suggestions),
            "history": list(self.history),
        }


def look(
    source: Any,
    *,
    inputs: Keys | None = None,
    outputs: Keys | None = None,
    ts: float | None = None,
    time: Key | None = None,
) -> Inspection:
    """Take a first look at data: what is there, how it was sampled, what is wrong with it, and what to do.

    Args:
        source: a record, channels, or what `read` takes: a path, a data frame, a mapping.
        inputs: names of the inputs, if that is known already.
        outputs: names of the outputs; with these, only the named channels are looked at.
        ts: sampling time in seconds, if it is known.
        time: the channel of time stamps, if it is known.

    Returns:
        What was found.

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
    return inspect_channels(read_channels(source, inputs=inputs, outputs=outputs, ts=ts, time=time))


def inspect_channels(data: Channels) -> Inspection:
    """Analyse channels.

    Args:
        data: the channels.

    Returns:
        What was found.
    """
    clock = _inspect_clock(data)
    reports = tuple(_inspect_channel(channel, clock) for channel in data.channels)
    return Inspection(data.name, clock, reports, tuple(_suggest(data, clock, reports)), data.history)


def _inspect_clock(data: Channels) -> ClockReport | None:
    stamps = data.with_role("time")
    if stamps:
        return _clock_of(stamps[0].values)
    samples = max((len(channel.values) for channel in data.channels), default=0)
    if data.ts is None or samples < 2:
        return None
    ts = float(data.ts)
    return ClockReport(samples, 0.0, (samples - 1) * ts, ts, ts, ts, 0.0, 0, None, 0, True)


def _clock_of(stamps: np.ndarray) -> ClockReport | None:
    t = stamps[_usable(stamps)]
    if len(t) < 2:
        return None
    steps = np.diff(t)
    ahead = steps[steps > 0]
    ts = float(np.median(ahead)) if len(ahead) else 0.0
    gaps = np.flatnonzero(steps > GAP_STEPS * ts) if ts > 0 else np.empty(0, int)
    regular = ahead[ahead <= GAP_STEPS * ts]
    return ClockReport(
        samples=len(stamps),
        start=float(t[0]),
        stop=float(t[-1]),
        ts=ts,
        shortest=float(steps.min()),
        longest=float(steps.max()),
        jitter=float(np.std(regular) / ts) if len(regular) else 0.0,
        gaps=len(gaps),
        longest_gap_from=float(t[np.argmax(steps)]) if len(gaps) else None,
        backwards=int((steps <= 0).sum()),
        is_uniform=bool(ts > 0 and np.all(np.abs(steps - ts) <= UNIFORM_TOLERANCE * ts)),
    )


def _usable(values: np.ndarray) -> np.ndarray:
    """Which values are numbers that a record could hold."""
    return np.isfinite(values) & (np.abs(values) <= LARGEST)


def _inspect_channel(channel: Channel, clock: ClockReport | None) -> ChannelReport:
    known = _usable(channel.values)
    values = channel.values[known]
    report = ChannelReport(
        channel.name, channel.role, channel.unit, len(channel.values), int((~known).sum()), note=channel.note
    )
    if not len(values):
        return report
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
        at_minimum=float(np.mean(values == low)),
        at_maximum=float(np.mean(values == high)),
        longest_still=longest_still,
        still_from=still_from,
        crest=max(high - mean, mean - low) / std if levels > 1 and std > 0 else None,
        band_hz=_band(channel, clock) if levels > 1 and channel.role != "time" else None,
    )


def _longest_run(values: np.ndarray) -> tuple[int, int]:
    """Where the longest run of one and the same value begins, and how many samples it has."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1  # NaN differs from everything, itself included
    edges = np.concatenate([[0], changes, [len(values)]])
    longest = int(np.argmax(np.diff(edges)))
    return int(edges[longest]), int(edges[longest + 1] - edges[longest])


def _band(channel: Channel, clock: ClockReport | None) -> float | None:
    """Frequency below which most of the power lies, the mean left out; missing samples are bridged by lines."""
    from scipy.signal import welch  # late: it takes a while to import

    known = _usable(channel.values)
    if clock is None or not clock.is_uniform or known.sum() < 8:
        return None
    values = np.interp(np.arange(len(known)), np.flatnonzero(known), channel.values[known])
    spread = np.std(values)
    if not spread > 0:
        return None
    # Long segments, as slow channels need them; deviations are scaled, so that squares of any unit stay numbers.
    freq_hz, power = welch((values - values.mean()) / spread, fs=1.0 / clock.ts, nperseg=min(len(values), 8192))
    total = np.cumsum(power)
    return float(freq_hz[np.searchsorted(total, BAND_SHARE * total[-1])]) if total[-1] > 0 else None


def _suggest(data: Channels, clock: ClockReport | None, reports: tuple[ChannelReport, ...]) -> list[str]:
    measured = [report for report in reports if report.role != "time" and report.samples > 1 and not report.note]
    said = [
        *_suggest_roles(measured),
        *_suggest_clock(data, clock),
        *(sentence for report in measured for sentence in _suggest_channel(report, clock)),
        *_suggest_rate(clock, measured),
    ]
    return said or ["Nothing was found that stands in the way of a fit."]


def _suggest_roles(measured: list[ChannelReport]) -> list[str]:
    if any(report.role == "output" for report in measured):
        return []
    names = ", ".join(report.name for report in measured[:12]) or "none with more than one sample"
    return [f"Say which channels are inputs and outputs: --input NAME --output NAME. There are {names}."]


def _suggest_clock(data: Channels, clock: ClockReport | None) -> list[str]:
    if clock is None:
        return _suggest_time(data)
    if clock.backwards:
        return [
            f"Time does not increase at {clock.backwards} of {clock.samples} samples: sort the rows, drop repeats, or "
            "split the file; it cannot be read as it is."
        ]
    if clock.is_uniform:
        return []
    gap = "" if not clock.gaps else f" and {_count(clock.gaps, 'gap')}, the longest {clock.longest:.4g} s"
    return [
        f"The clock is irregular, with a jitter of {100 * clock.jitter:.2g} %{gap}. A fit takes it as it is; what "
        f'needs one sampling time, such as decimate, wants --prepare "interpolate {clock.ts:.4g}" before it.'
    ]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _suggest_time(data: Channels) -> list[str]:
    for channel in data.channels:
        if channel.name.split("/")[-1].split(".")[-1].lower() in TS_NAMES and len(channel.values):
            value = channel.values[0]
            if np.all(np.isnan(channel.values[1:])) and 0 < value < LARGEST:
                return [
                    f"Channel {channel.name} holds one number, {value:g}. If it is the sampling time: --ts {value:g}."
                ]
    stamps = [channel for channel in data.channels if _like_time(channel)]
    if not stamps:
        return ["The sampling time is not known: give it in seconds, --ts 0.01, or name the channel of time stamps."]
    return [
        f"Channel {stamps[0].name} increases from sample to sample. If it is time in seconds: --time {stamps[0].name}."
    ]


def _like_time(channel: Channel) -> bool:
    """Whether a channel could be time: it increases throughout, and is called so or has equal steps."""
    values = channel.values
    if len(values) < 3 or not _usable(values).all():
        return False
    steps = np.diff(values)
    called = channel.name.split("/")[-1].split(".")[-1].lower() in TIME_NAMES
    return bool(np.all(steps > 0) and (called or np.ptp(steps) <= UNIFORM_TOLERANCE * np.median(steps)))


def _suggest_channel(report: ChannelReport, clock: ClockReport | None) -> list[str]:
    name, said = report.name, []
    if report.is_constant:
        return [f"{name} is constant at {report.minimum:g}: it says nothing about the plant. Leave it out."]
    if report.missing and report.role == "input":
        said.append(
            f"{name} misses {report.missing} of {report.samples} samples, which an input must not: --fill hold."
        )
    elif report.missing:
        said.append(
            f"{name} misses {report.missing} of {report.samples} samples: fine for an output, not for an input."
        )
    if report.limited:
        side = "maximum" if report.at_maximum >= report.at_minimum else "minimum"
        value = report.maximum if side == "maximum" else report.minimum
        said.append(
            f"{name} is at its {side}, {value:g}, for {100 * max(report.at_minimum, report.at_maximum):.2g} % of the "
            "samples: a limit of the plant or of the sensor. A model must learn it; a larger range would show more."
        )
    if report.role == "input" and report.changes < FEW_CHANGES:
        said.append(
            f"{name} changes only {_count(report.changes, 'time')}: it excites little, and a model will know little "
            "beyond these levels. Measure with a signal that changes more often."
        )
    if report.is_dead:
        said.append(_suggest_trim(report, clock))
    return said


def _suggest_trim(report: ChannelReport, clock: ClockReport | None) -> str:
    first, last = report.still_from, report.still_from + report.longest_still
    keep = f"0 {first}" if last >= report.samples - first else f"{last} {report.samples}"
    when = "" if clock is None or not clock.is_uniform else f" ({report.longest_still * clock.ts:.4g} s)"
    return (
        f"{report.name} does not change from sample {first} to {last - 1}{when}: a dead sensor, or a plant at rest. "
        f'To leave that out: --prepare "trim {keep} samples".'
    )


def _suggest_rate(clock: ClockReport | None, measured: list[ChannelReport]) -> list[str]:
    """Whether every n-th sample would do: where the band of all channels ends far below the sampling rate."""
    needs = [_needed_rate(report) for report in measured if report.role in ("input", "output")]
    if clock is None or not clock.is_uniform or not any(report.role == "output" for report in measured):
        return []
    rate = max([need for need in needs if need is not None], default=0.0)
    factor = min(int(1.0 / (clock.ts * rate)), clock.samples // ENOUGH_SAMPLES) if rate > 0 else 1
    if factor < 2:
        return []
    return [
        f"Sampled at {1 / clock.ts:.4g} Hz, the channels hold {100 * BAND_SHARE:.0f} % of their power far below that: "
        f'--prepare "decimate {factor}" would keep it, and a training window would see {factor} times as much time.'
    ]


def _needed_rate(report: ChannelReport) -> float | None:
    if report.band_hz is None:
        return None
    return report.band_hz * (OUTPUT_SAMPLES if report.role == "output" else INPUT_SAMPLES)
