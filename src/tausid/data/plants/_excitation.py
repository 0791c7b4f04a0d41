"""Signals that plants are excited with: each is one input channel over one record."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

import numpy as np

from tausid.shapes import Float

Bands = tuple[tuple[float, float], ...]


class AbstractExcitation(abc.ABC):
    """A kind of signal with its size."""

    @abc.abstractmethod
    def wave(self, random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
        """One realization, in the input's unit."""


@dataclass(frozen=True)
class Multisine(AbstractExcitation):
    """Lines with random phases whose period is the record.

    Args:
        bands: highest frequency in Hz and relative amplitude of its lines, the lowest band first.
        std: standard deviation of the signal.
        mean: its mean.
        lowest: lowest frequency in Hz; by default one period per record.
    """

    bands: Bands
    std: float
    mean: float = 0.0
    lowest: float = 0.0

    def wave(self, random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
        """One realization, in the input's unit."""
        return self.mean + self.std * multisine(random, samples, ts=ts, bands=self.bands, lowest=self.lowest)


@dataclass(frozen=True)
class Steps(AbstractExcitation):
    """Levels, uniform between two limits, each held for a time, uniform between two others.

    Args:
        low: lowest level.
        high: highest level.
        hold: shortest and longest time of one level, in seconds.
        balanced: whether the mean of the record is made that of the limits, for a plant that integrates.
    """

    low: float
    high: float
    hold: tuple[float, float]
    balanced: bool = False

    def wave(self, random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
        """One realization, in the input's unit."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        levels = middle + half / math.sqrt(3.0) * random_steps(random, samples, ts=ts, hold=self.hold)
        return levels + (middle - levels.mean()) if self.balanced else levels


@dataclass(frozen=True)
class Sweep(AbstractExcitation):
    """A sine whose frequency goes from one limit to the other within the record, and a random phase.

    Args:
        frequencies: first and last frequency in Hz.
        amplitude: of the sine.
        mean: about which it swings.
    """

    frequencies: tuple[float, float]
    amplitude: float
    mean: float = 0.0

    def wave(self, random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
        """One realization, in the input's unit."""
        first, last = self.frequencies
        t = np.arange(samples) * ts
        turns = first * t + (last - first) * t**2 / (2.0 * samples * ts)
        return self.mean + self.amplitude * np.sin(2.0 * np.pi * (turns + random.uniform()))


def multisine(
    random: np.random.Generator, samples: int, *, ts: float, bands: Bands, lowest: float = 0.0
) -> Float[np.ndarray, " N"]:
    """Zero mean, unit variance, random phases, one line per multiple of 1 / (samples ts)."""
    freq_hz = np.fft.rfftfreq(samples, ts)
    amplitude = np.zeros(len(freq_hz))
    for highest, height in reversed(bands):
        amplitude[freq_hz <= highest] = height
    amplitude[freq_hz < lowest] = 0.0
    amplitude[0] = 0.0
    # A record shorter than the slowest period of the band still gets one line.
    amplitude[1] = amplitude[1] if amplitude.any() else 1.0
    # The line at half the sampling rate is real, and so would have no random phase.
    amplitude[(samples + 1) // 2 :] = 0.0
    phase = random.uniform(0.0, 2.0 * np.pi, len(freq_hz))
    lines = amplitude / np.sqrt(np.sum(amplitude**2) / 2.0) * np.exp(1j * phase)
    return np.fft.irfft(lines * samples / 2.0, samples)


def random_steps(
    random: np.random.Generator, samples: int, *, ts: float, hold: tuple[float, float]
) -> Float[np.ndarray, " N"]:
    """Zero mean, unit variance: levels uniform within plus and minus sqrt(3), for uniform times."""
    count = math.ceil(samples * ts / hold[0]) + 1
    ends = np.cumsum(random.uniform(*hold, count))
    levels = random.uniform(-math.sqrt(3.0), math.sqrt(3.0), count)
    return levels[np.searchsorted(ends, np.arange(samples) * ts, side="right")]
