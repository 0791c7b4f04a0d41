"""What all simulated plants share: a multisine, Runge-Kutta steps, and two records with signals of their own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from tausid.checks import check_number, check_whole
from tausid.data.records import Dataset, Record, as_columns
from tausid.errors import DataError

# Two samples hold no line of a multisine below half the sampling rate.
LEAST_SAMPLES = 3

State = tuple[float, ...]
Bands = tuple[tuple[float, float], ...]


def make_dataset(
    experiment: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]],
    *,
    name: str,
    seed: int,
    samples: int,
    test_samples: int | None,
    ts: float,
    channels: tuple[tuple[str, str], tuple[str, str]],
) -> Dataset:
    """Make a training and a test record, each with random numbers of its own."""
    lengths = {"train": samples, "test": samples if test_samples is None else test_samples}
    check_whole("seed", seed, 0)
    for role, length in lengths.items():
        check_whole(f"samples of the {role} record", length, LEAST_SAMPLES)
    check_number("ts", ts, positive=True)
    (u_name, _), (y_name, _) = channels
    records = []
    for (role, length), stream in zip(lengths.items(), np.random.SeedSequence(seed).spawn(2), strict=True):
        u, y = experiment(np.random.default_rng(stream), length)
        records.append(
            Record.from_arrays(
                u, y, ts=ts, input_names=[u_name], output_names=[y_name], units=dict(channels), name=role
            )
        )
    return Dataset(train=records[0], test=records[1], name=name)


def multisine(random: np.random.Generator, samples: int, *, ts: float, bands: Bands) -> Float[np.ndarray, " N"]:
    """Zero mean, unit variance, random phases, one line per multiple of 1 / (samples ts)."""
    freq_hz = np.fft.rfftfreq(samples, ts)
    amplitude = np.zeros(len(freq_hz))
    for highest, height in reversed(bands):
        amplitude[freq_hz <= highest] = height
    amplitude[0] = 0.0
    # A record shorter than the slowest period of the band still gets one line.
    amplitude[1] = 1.0
    # The line at half the sampling rate is real, and so would have no random phase.
    amplitude[(samples + 1) // 2 :] = 0.0
    phase = random.uniform(0.0, 2.0 * np.pi, len(freq_hz))
    lines = amplitude / np.sqrt(np.sum(amplitude**2) / 2.0) * np.exp(1j * phase)
    return np.fft.irfft(lines * samples / 2.0, samples)


def sample_states(
    step: Callable[[State, float, float], State],
    u: Float[np.ndarray, " N"],
    x0: State,
    *,
    ts: float,
    max_step: float,
) -> Float[np.ndarray, "N nx"]:
    """States at the samples, for an input held constant between them."""
    substeps = math.ceil(ts / max_step)
    x, states = x0, [x0]
    for held in u[:-1].tolist():
        for _ in range(substeps):
            x = step(x, held, ts / substeps)
        states.append(x)
    return np.array(states)


def runge_kutta(derivative: Callable[[State], State], x: State, h: float) -> State:
    """One step of the classical Runge-Kutta method of order 4."""
    a = derivative(x)
    b = derivative(_moved(x, a, h / 2))
    c = derivative(_moved(x, b, h / 2))
    d = derivative(_moved(x, c, h))
    slopes = zip(a, b, c, d, strict=True)
    return _moved(x, tuple(ai + 2 * bi + 2 * ci + di for ai, bi, ci, di in slopes), h / 6)


def _moved(x: State, slope: State, h: float) -> State:
    return tuple(xi + h * si for xi, si in zip(x, slope, strict=True))


def as_signal(u: ArrayLike, what: str) -> Float[np.ndarray, " N"]:
    """One finite signal."""
    signal = as_columns(u, "u")
    if signal.shape[1] != 1 or len(signal) == 0 or not np.all(np.isfinite(signal)):
        raise DataError(
            f"`u` must be a finite signal of one channel; got shape {np.shape(u)} with "
            f"{int(np.sum(~np.isfinite(signal)))} NaN or infinite values. Give the {what} at each sample."
        )
    return signal[:, 0]
