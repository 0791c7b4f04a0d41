"""What to do about what a first look finds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from tausid.data.inspection._reports import BAND_SHARE, ChannelReport, ClockReport, usable
from tausid.data.readers import Channel, Channels, in_words
from tausid.data.records import LARGEST, SHORTEST_STEP, UNIFORM_TOLERANCE
from tausid.data.steps import REPEATED

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


def suggest(data: Channels, clock: ClockReport | None, reports: tuple[ChannelReport, ...]) -> list[str]:
    measured = [report for report in reports if report.role != "time" and report.samples > 1 and not report.note]
    said = [
        *_suggest_roles(measured),
        *_suggest_clock(data, clock),
        *(sentence for report in measured for sentence in _suggest_channel(report, clock, data)),
        *_suggest_rate(clock, measured),
    ]
    return said or ["No problem was found: the data are ready for a fit."]


def _suggest_roles(measured: list[ChannelReport]) -> list[str]:
    if any(report.role == "output" for report in measured):
        return []
    names = ", ".join(shlex.quote(report.name) for report in measured[:12]) or "none with more than one sample"
    return [f"Name the inputs and outputs: --input NAME --output NAME. Channels: {names}."]


def _suggest_clock(data: Channels, clock: ClockReport | None) -> list[str]:
    if clock is None:
        return _suggest_time(data)
    if clock.repeated and clock.repeated == clock.backwards:
        return [
            f"Time stands still at {_count(clock.repeated, 'sample')} of {clock.samples}: a logger that wrote them "
            f'twice, or stamps that are rounded. To keep the first of each: --prepare "{REPEATED}".'
        ]
    if clock.backwards:
        return [
            f"Time does not increase at {clock.backwards} of {clock.samples} samples: sort the rows, drop repeats, or "
            "split the file; it cannot be read as it is."
        ]
    if clock.shortest < SHORTEST_STEP or clock.stop > LARGEST:
        return [
            f"Time steps of {clock.shortest:g} s are none of a measurement, which has {SHORTEST_STEP:g} to {LARGEST:g} "
            "s: correct the sampling time, or the unit of the time stamps; it cannot be read as it is."
        ]
    if clock.is_uniform:
        return []
    lost = f", {_count(clock.lost, 'lost sample')}" if clock.lost else ""
    gaps = f", {_count(clock.gaps, 'gap')} (the longest {clock.longest:.4g} s)" if clock.gaps else ""
    cut = " and splits the record at its gaps" if clock.gaps else ""
    return [
        f"The clock is irregular: jitter {100 * clock.jitter:.2g} %{lost}{gaps}. A fit takes it as it is{cut}. "
        f'Steps that need a uniform clock, such as decimate, need --prepare "interpolate {clock.ts:.4g}" first.'
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
    stamps = [channel for channel in data.channels if like_time(channel)]
    if not stamps:
        return ["The sampling time is not known: give it in seconds, --ts 0.01, or name the channel of time stamps."]
    name = stamps[0].name
    return [f"Channel {name} increases from sample to sample. If it is time: --time {shlex.quote(name)}."]


def like_time(channel: Channel, *, named: bool = False) -> bool:
    """Whether a channel could be time: it increases, and is called so or, unless `named`, has equal steps."""
    values = channel.values
    if len(values) < 3 or not usable(values).all():
        return False
    steps = np.diff(values)
    called = channel.name.split("/")[-1].split(".")[-1].lower() in TIME_NAMES
    equal = not named and np.ptp(steps) <= UNIFORM_TOLERANCE * np.median(steps)
    return bool(np.all(steps > 0) and (called or equal))


def suggest_samples(report: ChannelReport, data: Channels) -> list[str]:
    """What to do about samples that are no measurements."""
    said = []
    for mark in report.marks:
        said.append(
            f"{report.name} is {mark:g} at {_rows(report.marked, data)}, far from all other samples: a mark for "
            f'"nothing"? To take it so: --prepare "blank {mark:.9g}".'
        )
    if report.outliers:
        named = f" {shlex.quote(report.name)}" if report.role == "input" else ""
        said.append(
            f"{report.name} has {_count(len(report.outliers), 'outlier')}, far from neighbours and range, at "
            f'{_rows(report.outliers, data)}. To leave them out: --prepare "drop-outliers'
            f'{named}".'
        )
    return said


def _rows(samples: Sequence[int], data: Channels) -> str:
    return in_words([i if data.row_numbers is None else data.row_numbers[i] for i in samples], data.row_word)


def _suggest_channel(report: ChannelReport, clock: ClockReport | None, data: Channels) -> list[str]:
    name, said = report.name, suggest_samples(report, data)
    if report.is_constant:
        return [f"{name} is constant at {report.minimum:g}: it says nothing about the plant. Leave it out."]
    if report.missing and report.role == "input":
        lacks = f"{name} lacks {report.missing} of {report.samples} samples"
        said.append(f"{lacks}; an input must be complete. Fill it: --fill hold.")
    elif report.missing:
        said.append(
            f"{name} lacks {report.missing} of {report.samples} samples: allowed for an output, not for an input."
        )
    if report.limited:
        ends = zip(("minimum", "maximum"), report.limits, (report.at_minimum, report.at_maximum), strict=True)
        where = [f"at its {end}, {limit:g}, for {100 * share:.2g} %" for end, limit, share in ends if limit is not None]
        also = " Simulated outputs end there, too." if report.role == "output" else ""
        said.append(f"{name} is {' and '.join(where)} of the samples: a limit of the plant or of the sensor.{also}")
    if report.role == "input" and report.changes < FEW_CHANGES:
        said.append(
            f"{name} changes only {_count(report.changes, 'time')}: it excites little, and a model will know "
            "little beyond these levels. Use a signal that changes more often."
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
        f'--prepare "decimate {factor}" would keep it and shorten the training.'
    ]


def _needed_rate(report: ChannelReport) -> float | None:
    if report.band_hz is None:
        return None
    return report.band_hz * (OUTPUT_SAMPLES if report.role == "output" else INPUT_SAMPLES)
