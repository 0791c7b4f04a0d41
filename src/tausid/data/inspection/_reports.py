"""What a first look finds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from tausid.data.limits import FEW_LEVELS
from tausid.data.records import LARGEST
from tausid.display import html_table

# The band of a channel holds this share of its power.
BAND_SHARE = 0.99
# A value that stands still for this share of the record, and for this many samples, is a dead stretch.
DEAD_SHARE, DEAD_SAMPLES = 0.05, 20


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
        limits: lower and upper limit that it runs into, by the rule that a fit uses; None where it runs into none.
        at_minimum: share of the samples at the smallest value.
        at_maximum: share of the samples at the largest value.
        longest_still: most samples in a row with one and the same value.
        still_from: number of the sample at which that stretch begins.
        crest: largest deviation from the mean in standard deviations; None for a constant.
        band_hz: frequency below which 99 % of its power lies; None for a constant or without a uniform clock.
        marks: values that seem to stand for "nothing", such as -999.
        marked: numbers of the samples with one of them.
        outliers: numbers of other samples that are far from their neighbours and from the rest.
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
    limits: tuple[float | None, float | None] = (None, None)
    at_minimum: float = 0.0
    at_maximum: float = 0.0
    longest_still: int = 0
    still_from: int = 0
    crest: float | None = None
    band_hz: float | None = None
    marks: tuple[float, ...] = ()
    marked: tuple[int, ...] = ()
    outliers: tuple[int, ...] = ()
    note: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it has samples, all of one value."""
        return self.levels == 1

    @property
    def limited(self) -> float:
        """Share of the samples at a limit, 0 where the channel runs into none."""
        shares = zip(self.limits, (self.at_minimum, self.at_maximum), strict=True)
        return sum(share for limit, share in shares if limit is not None)

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
        jitter: standard deviation of the steps without lost samples, as a share of the median step.
        lost: number of samples that the clock says are lost.
        gaps: number of steps longer than ten median steps; a fit splits the record there.
        longest_gap_from: time stamp before the longest gap; None without gaps.
        backwards: number of time stamps that do not come after the one before.
        is_uniform: whether all steps are equal to within a thousandth.
        repeated: number of time stamps that are that of the sample before; these are among `backwards`.
    """

    samples: int
    start: float
    stop: float
    ts: float
    shortest: float
    longest: float
    jitter: float
    lost: int
    gaps: int
    longest_gap_from: float | None
    backwards: int
    is_uniform: bool
    repeated: int = 0


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

    def _repr_html_(self) -> str:
        rows = [
            (c.name, c.role, c.unit, c.samples, c.missing, _shown(c.minimum), _shown(c.maximum)) for c in self.channels
        ]
        header = ("channel", "role", "unit", "samples", "missing", "smallest", "largest")
        clock = "clock unknown" if self.clock is None else f"Ts = {self.clock.ts:g} s"
        advice = html_table("What to do", [(sentence,) for sentence in self.suggestions])
        return html_table(f"{self.name}: {clock}", rows, header=header) + advice

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return {
            "name": self.name,
            "clock": None if self.clock is None else dataclasses.asdict(self.clock),
            "channels": [dataclasses.asdict(channel) for channel in self.channels],
            "suggestions": list(self.suggestions),
            "history": list(self.history),
        }


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def usable(values: np.ndarray) -> np.ndarray:
    """Which values are numbers that a record could hold."""
    return np.isfinite(values) & (np.abs(values) <= LARGEST)
