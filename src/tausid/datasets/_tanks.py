"""Two cascaded tanks with overflow: records with the physics of the benchmark, as many as one likes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from tausid.errors import ConfigError, DataError, unknown_name
from tausid.records import Dataset, Record, as_columns

# The rim of both tanks, and with it the largest reading of the level sensor, in volts.
RIM = 10.0
# Longest step of the integration in seconds: halving it changes the benchmark's levels by less than 0.1 mV.
MAX_STEP = 0.5
# The benchmark's pump signal, read off its spectrum: equal lines up to 4.7 mHz, twenty decibels less up to
# 14.5 mHz, nothing above.
STRONG_BAND_HZ = 4.7e-3
WEAK_BAND_HZ = 14.5e-3
WEAK_AMPLITUDE = 0.1
# Shortest and longest time between two random steps: the benchmark's pump turns round about every 100 s.
STEP_SECONDS = (20.0, 200.0)
# The pump's range in volts.
PUMP_RANGE = (0.0, 10.0)


@dataclass(frozen=True)
class TankParameters:
    """Parameters of the tanks; the defaults were fitted to the training record of the benchmark.

    Args:
        k1: outflow of the upper tank per square root of its level, V^0.5/s.
        k2: outflow of the lower tank per square root of its level, V^0.5/s.
        k3: inflow of the upper tank per volt at the pump, 1/s.
        spill: share of the upper tank's overflow that lands in the lower one; the rest is lost.
        k5: outflow of the upper tank per level, 1/s.
        k6: outflow of the lower tank per level, 1/s.
    """

    k1: float = 0.04304
    k2: float = 0.0655
    k3: float = 0.04246
    # Fitted as 0.21226 per second and volt above the rim, in steps of 4 s that each start at the rim: a step
    # with an overflow of s V/s then ends 4 s above it, so the share of s is 4 times that figure.
    spill: float = 4.0 * 0.21226
    k5: float = 0.00055
    k6: float = -0.00611


# Levels at the start of the benchmark's training record, fitted with the parameters, in volts.
START_LEVELS = (6.795, 5.188)


def tanks_response(
    u: ArrayLike,
    *,
    ts: float,
    x0: tuple[float, float] = START_LEVELS,
    parameters: TankParameters | None = None,
) -> Float[np.ndarray, " N"]:
    """Level of the lower tank without noise, for a pump voltage held constant between samples.

    With levels `x1`, `x2` from 0 to 10 V and the flow between the tanks `q = k1 sqrt(x1) + k5 x1`:

        dx1/dt = k3 u - q - s
        dx2/dt = q + spill s - k2 sqrt(x2) - k6 x2
        s = max(k3 u - q, 0) where x1 = 10, else 0          (the overflow of the upper tank)

    A level that would leave its range stays at the end of it.

    Args:
        u: pump voltage at the samples, shape (N,), in volts.
        ts: sampling time in seconds.
        x0: levels of the upper and the lower tank at the first sample, in volts.
        parameters: of the tanks; by default those of the benchmark.

    Returns:
        The level of the lower tank at the samples, in volts.

    Raises:
        DataError: `u` is not a finite signal of one channel.
        ConfigError: `ts` is not positive, or `x0` does not lie in the tanks.

    Example:
        >>> tanks_response([0.0, 0.0, 0.0], ts=60.0).round(3)
        array([5.188, 3.596, 0.517])
    """
    pump = _as_signal(u)
    _check_ts(ts)
    if len(x0) != 2 or not all(0.0 <= level <= RIM for level in x0):
        raise ConfigError(f"`x0` must be two levels from 0 to {RIM:g} V; got {x0!r}. Start inside the tanks.")
    return _levels(pump, float(ts), x0, parameters or TankParameters())[:, 1]


def simulate_tanks(
    *,
    seed: int,
    samples: int = 1024,
    test_samples: int | None = None,
    ts: float = 4.0,
    excitation: str = "multisine",
    noise: float = 0.05,
    u_mean: float = 2.8,
    u_std: float = 1.0,
    x0: tuple[float, float] = START_LEVELS,
    parameters: TankParameters | None = None,
) -> Dataset:
    """Make a training and a test record of two cascaded tanks, each with a pump signal of its own.

    The equations are those of `tanks_response`. By default the pump signal has the mean, the deviation and
    the spectrum of the benchmark's, so that the upper tank overflows now and then. The sensor ends at 10 V.

    Args:
        seed: decides all pump signals and noise; the same seed gives the same records.
        samples: length of the training record.
        test_samples: length of the test record; by default that of the training record.
        ts: sampling time in seconds.
        excitation: `multisine` (random phases) or `random_steps` (uniform levels held 20 to 200 s).
        noise: standard deviation of the sensor's white noise in volts.
        u_mean: mean of the pump voltage.
        u_std: standard deviation of the pump voltage, before it is cut to the pump's 0 to 10 V.
        x0: levels of the upper and the lower tank at the start of both records, in volts.
        parameters: of the tanks; by default those of the benchmark.

    Returns:
        The two records: input `u` and output `y`, in volts.

    Raises:
        ConfigError: a setting breaks a rule.

    Example:
        >>> data = simulate_tanks(samples=500, ts=2.0, excitation="random_steps", seed=0)
        >>> len(data.train), data.train.ts, data.test.name
        (500, 2.0, 'test')
    """
    lengths = {"train": samples, "test": samples if test_samples is None else test_samples}
    _check_settings(seed, lengths, ts, noise=noise, u_mean=u_mean, u_std=u_std)
    if excitation not in EXCITATIONS:
        raise ConfigError(unknown_name("excitation", excitation, EXCITATIONS))
    records = []
    for (name, length), stream in zip(lengths.items(), np.random.SeedSequence(seed).spawn(2), strict=True):
        random = np.random.default_rng(stream)
        pump = np.clip(u_mean + u_std * EXCITATIONS[excitation](random, length, ts), *PUMP_RANGE)
        level = tanks_response(pump, ts=ts, x0=x0, parameters=parameters)
        y = np.clip(level + noise * random.standard_normal(length), 0.0, RIM)
        records.append(Record.from_arrays(pump, y, ts=ts, units={"u": "V", "y": "V"}, name=name))
    return Dataset(train=records[0], test=records[1], name="simulated_tanks")


def _levels(
    pump: Float[np.ndarray, " N"], ts: float, x0: tuple[float, float], parameters: TankParameters
) -> Float[np.ndarray, "N 2"]:
    """Both levels at the samples."""
    substeps = math.ceil(ts / MAX_STEP)
    levels = np.empty((len(pump), 2))
    x1, x2 = float(x0[0]), float(x0[1])
    for k, u in enumerate(pump.tolist()):
        levels[k] = x1, x2
        if k + 1 < len(pump):
            for _ in range(substeps):
                x1, x2 = _advance(x1, x2, u, ts / substeps, parameters)
    return levels


def _advance(x1: float, x2: float, u: float, h: float, p: TankParameters) -> tuple[float, float]:
    """One Runge-Kutta step of order 4, with the overflow taken apart so that its onset costs no accuracy."""
    overflows = x1 >= RIM and p.k3 * u > _flow_between(RIM, p)
    a1, a2 = _derivative(x1, x2, u, overflows, p)
    b1, b2 = _derivative(x1 + h / 2 * a1, x2 + h / 2 * a2, u, overflows, p)
    c1, c2 = _derivative(x1 + h / 2 * b1, x2 + h / 2 * b2, u, overflows, p)
    d1, d2 = _derivative(x1 + h * c1, x2 + h * c2, u, overflows, p)
    x1 += h / 6 * (a1 + 2 * b1 + 2 * c1 + d1)
    x2 += h / 6 * (a2 + 2 * b2 + 2 * c2 + d2)
    # What stands above the rim after a step that began below it has run over within that step.
    x2 += p.spill * max(x1 - RIM, 0.0)
    return _clip(x1), _clip(x2)


def _derivative(x1: float, x2: float, u: float, overflows: bool, p: TankParameters) -> tuple[float, float]:
    flow, level = _flow_between(x1, p), _clip(x2)
    excess = p.k3 * u - flow
    drained = p.k2 * math.sqrt(level) + p.k6 * level
    return (0.0, flow + p.spill * excess - drained) if overflows else (excess, flow - drained)


def _flow_between(x1: float, p: TankParameters) -> float:
    level = _clip(x1)
    return p.k1 * math.sqrt(level) + p.k5 * level


def _clip(level: float) -> float:
    return min(max(level, 0.0), RIM)


def _multisine(random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
    """Zero mean, unit variance, random phases, one line per multiple of 1 / (samples ts)."""
    freq_hz = np.fft.rfftfreq(samples, ts)
    amplitude = np.where(freq_hz <= STRONG_BAND_HZ, 1.0, WEAK_AMPLITUDE) * (freq_hz <= WEAK_BAND_HZ)
    amplitude[0] = 0.0
    # A record shorter than the slowest period of the band still gets one line.
    amplitude[1] = 1.0
    # The line at half the sampling rate is real, and so would have no random phase.
    amplitude[(samples + 1) // 2 :] = 0.0
    phase = random.uniform(0.0, 2.0 * np.pi, len(freq_hz))
    lines = amplitude / np.sqrt(np.sum(amplitude**2) / 2.0) * np.exp(1j * phase)
    return np.fft.irfft(lines * samples / 2.0, samples)


def _random_steps(random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
    """Zero mean, unit variance: levels uniform within plus and minus sqrt(3), for uniform times."""
    count = math.ceil(samples * ts / STEP_SECONDS[0]) + 1
    ends = np.cumsum(random.uniform(*STEP_SECONDS, count))
    levels = random.uniform(-math.sqrt(3.0), math.sqrt(3.0), count)
    return levels[np.searchsorted(ends, np.arange(samples) * ts, side="right")]


EXCITATIONS: dict[str, Callable[[np.random.Generator, int, float], np.ndarray]] = {
    "multisine": _multisine,
    "random_steps": _random_steps,
}


def _as_signal(u: ArrayLike) -> Float[np.ndarray, " N"]:
    pump = as_columns(u, "u")
    if pump.shape[1] != 1 or len(pump) == 0 or not np.all(np.isfinite(pump)):
        raise DataError(
            f"`u` must be a finite signal of one channel; got shape {np.shape(u)} with "
            f"{int(np.sum(~np.isfinite(pump)))} NaN or infinite values. Give the pump voltage at each sample."
        )
    return pump[:, 0]


def _check_settings(seed: int, lengths: dict[str, int], ts: float, **volts: float) -> None:
    if not (isinstance(seed, int | np.integer) and seed >= 0):
        raise ConfigError(f"`seed` must be a whole number from 0 on; got {seed!r}. Use seed=0, 1, 2, ...")
    for name, length in lengths.items():
        # Two samples hold no line of a multisine below half the sampling rate.
        if not (isinstance(length, int | np.integer) and length >= 3):
            raise ConfigError(f"the {name} record must have at least 3 samples; got {length!r}. Ask for more.")
    _check_ts(ts)
    for name, value in volts.items():
        if not (_is_finite(value) and value >= 0):
            raise ConfigError(f"`{name}` must be a number of volts from 0 on; got {value!r}. Use 0 for none.")


def _check_ts(ts: float) -> None:
    if not (_is_finite(ts) and ts > 0):
        raise ConfigError(f"`ts` must be a positive number of seconds; got {ts!r}. Give the sampling time.")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)
