"""`tausid look`: which channels to look at, and how what was found is printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tausid.cli.printing import print_columns, print_pairs
from tausid.data.readers import Channels, read_channels
from tausid.data.sources import Columns, read_part
from tausid.errors import ConfigError

if TYPE_CHECKING:
    from tausid.data.inspection import ChannelReport, ClockReport, Inspection

HEADER = (
    "channel",
    "role",
    "samples",
    "missing",
    "min",
    "max",
    "mean",
    "std",
    "at limits",
    "still",
    "crest",
    "band Hz",
)


def channels_to_look_at(data: str, columns: Columns, part: str | None) -> Channels:
    """The channels of a file as they are; those of a record where it was prepared or is a known dataset."""
    if data.startswith("@"):
        return Channels.from_record(read_part([data], columns, part or "train")[0])
    if part is not None or columns.prepare or columns.fill:
        if not columns.outputs and part is None:
            raise ConfigError(
                "`--prepare` and `--fill` must know the channels; no --output was given. Look at the file without "
                "them first, then name inputs with --input and outputs with --output."
            )
        return Channels.from_record(read_part([data], columns, part)[0])
    inputs, outputs = list(columns.inputs or ()) or None, list(columns.outputs or ()) or None
    return read_channels(
        data, inputs=inputs, outputs=outputs, ts=columns.ts, time=columns.time, time_format=columns.time_format
    )


def print_inspection(found: Inspection, picture: Path | None) -> None:
    """Print a first look: the clock, a table of channels, and what to do."""
    print_pairs({"data": found.name, "clock": _clock_words(found.clock)})
    for step in found.history:
        print(f"prepared  {step}")
    print_columns(HEADER, [_cells(channel) for channel in found.channels])
    for channel in found.channels:
        if channel.note:
            print(f"not a channel: {channel.note}")
    print("\nwhat to do:")
    for sentence in found.suggestions:
        print(f"- {sentence}")
    if picture is not None:
        print_pairs({"picture": picture})


def _clock_words(clock: ClockReport | None) -> str:
    if clock is None:
        return "unknown"
    rate = f"Ts = {clock.ts:.6g} s ({1 / clock.ts:.5g} Hz)" if clock.ts > 0 else "no increasing time stamps"
    words = f"{clock.samples} samples from {clock.start:.6g} to {clock.stop:.6g} s, {rate}"
    if clock.is_uniform:
        return f"{words}, uniform"
    lost = f", {clock.lost} samples lost" if clock.lost else ""
    gaps = "no gaps"
    if clock.gaps:
        many = "1 gap" if clock.gaps == 1 else f"{clock.gaps} gaps"
        gaps = f"{many}, the longest of {clock.longest:.4g} s after {clock.longest_gap_from:.6g} s"
    steps = f"steps {clock.shortest:.4g} to {clock.longest:.4g} s"
    return f"{words}, jitter {100 * clock.jitter:.3g} %, {steps}{lost}, {gaps}"


def _cells(channel: ChannelReport) -> list[str]:
    name = f"{channel.name} ({channel.unit})" if channel.unit else channel.name
    numbers = [channel.minimum, channel.maximum, channel.mean, channel.std]
    return [
        name,
        channel.role,
        str(channel.samples),
        str(channel.missing),
        *("" if number is None else f"{number:.4g}" for number in numbers),
        f"{100 * channel.limited:.2g} %" if channel.limited else "",
        str(channel.longest_still) if channel.is_dead else "",
        "" if channel.crest is None or channel.role == "time" else f"{channel.crest:.2g}",
        "" if channel.band_hz is None else f"{channel.band_hz:.3g}",
    ]
