"""Two cascaded tanks with overflow: records with the physics of the benchmark, as many as one likes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tausid.checks import check_choice, check_number
from tausid.data.plants._excitation import multisine, random_steps
from tausid.data.plants._integrate import (
    State,
    as_signal,
    make_dataset,
    runge_kutta,
    sample_states,
)
from tausid.data.plants._plant import parameter
from tausid.data.records import Dataset
from tausid.errors import ConfigError
from tausid.shapes import ArrayLike, Float

# The rim of both tanks, and with it the largest reading of the level sensor, in volts.
RIM = 10.0
# Longest step of the integration in seconds: halving it changes the benchmark's levels by less than 0.1 mV.
MAX_STEP = 0.5
# The benchmark's pump signal, read off its spectrum: equal lines up to 4.7 mHz, twenty decibels less up to
# 14.5 mHz, nothing above.
BANDS = ((4.7e-3, 1.0), (14.5e-3, 0.1))
# Shortest and longest time between two random steps: the benchmark's pump turns round about every 100 s.
STEP_SECONDS = (20.0, 200.0)
# The pump's range in volts.
PUMP_RANGE = (0.0, 10.0)


@dataclass(frozen=True)
class TankParameters:
    """Parameters of the tanks; the defaults were fitted to the training record of the benchmark."""

    k1: float = parameter(0.04304, "V^0.5/s", "outflow of the upper tank per square root of its level")
    k2: float = parameter(0.0655, "V^0.5/s", "outflow of the lower tank per square root of its level")
    k3: float = parameter(0.04246, "1/s", "inflow of the upper tank per volt at the pump")
    # Fitted as 0.21226 per second and volt above the rim, in steps of 4 s that each start at the rim: a step
    # with an overflow of s V/s then ends 4 s above it, so the share of s is 4 times that figure.
    spill: float = parameter(4.0 * 0.21226, "", "share of the upper tank's overflow that lands in the lower one")
    k5: float = parameter(0.00055, "1/s", "outflow of the upper tank per level")
    k6: float = parameter(-0.00611, "1/s", "outflow of the lower tank per level")

    states = (("upper", "V"), ("lower", "V"))


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
    pump = as_signal(u, ["pump voltage"])
    check_number("ts", ts, positive=True)
    if len(x0) != 2 or not all(0.0 <= level <= RIM for level in x0):
        raise ConfigError(f"`x0` must be two levels from 0 to {RIM:g} V; got {x0!r}. Start inside the tanks.")
    p = parameters or TankParameters()
    levels = sample_states(
        lambda x, held, h: _advance(x, held[0], h, p), pump, (float(x0[0]), float(x0[1])), ts=ts, max_step=MAX_STEP
    )
    return levels[:, 1]


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
    for name, value in {"noise": noise, "u_mean": u_mean, "u_std": u_std}.items():
        check_number(name, value)
    check_choice("excitation", excitation, EXCITATIONS)

    def experiment(random: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
        pump = np.clip(u_mean + u_std * EXCITATIONS[excitation](random, length, ts), *PUMP_RANGE)
        level = tanks_response(pump, ts=ts, x0=x0, parameters=parameters)
        return pump, np.clip(level + noise * random.standard_normal(length), 0.0, RIM)

    return make_dataset(
        {"train": experiment, "test": experiment},
        (samples, samples if test_samples is None else test_samples),
        name="simulated_tanks",
        seed=seed,
        ts=ts,
        inputs=(("u", "V"),),
        outputs=(("y", "V"),),
        noise=(noise,),
    )


def _advance(x: State, u: float, h: float, p: TankParameters) -> State:
    """One step, with the overflow taken apart so that its onset costs no accuracy."""
    overflows = x[0] >= RIM and p.k3 * u > _flow_between(RIM, p)
    upper, lower = runge_kutta(lambda levels: _derivative(levels, u, overflows, p), x, h)
    # What stands above the rim after a step that began below it has run over within that step.
    return _clip(upper), _clip(lower + p.spill * max(upper - RIM, 0.0))


def _derivative(x: State, u: float, overflows: bool, p: TankParameters) -> State:
    flow, level = _flow_between(x[0], p), _clip(x[1])
    excess = p.k3 * u - flow
    drained = p.k2 * math.sqrt(level) + p.k6 * level
    return (0.0, flow + p.spill * excess - drained) if overflows else (excess, flow - drained)


def _flow_between(x1: float, p: TankParameters) -> float:
    level = _clip(x1)
    return p.k1 * math.sqrt(level) + p.k5 * level


def _clip(level: float) -> float:
    return min(max(level, 0.0), RIM)


def _multisine(random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
    return multisine(random, samples, ts=ts, bands=BANDS)


def _random_steps(random: np.random.Generator, samples: int, ts: float) -> Float[np.ndarray, " N"]:
    return random_steps(random, samples, ts=ts, hold=STEP_SECONDS)


EXCITATIONS: dict[str, Callable[[np.random.Generator, int, float], np.ndarray]] = {
    "multisine": _multisine,
    "random_steps": _random_steps,
}
