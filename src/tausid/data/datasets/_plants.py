"""Simulated plants of the field: their equations, and an experiment that is usual for each."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from tausid.checks import check_number
from tausid.data.datasets._simulator import (
    Bands,
    State,
    as_signal,
    make_dataset,
    multisine,
    runge_kutta,
    sample_states,
)
from tausid.data.records import Dataset
from tausid.errors import ConfigError, unknown_name


class AbstractPlant(abc.ABC):
    """A plant with one input and one output, dx/dt = f(x, u), y = g(x), and how it is measured.

    A subclass is a frozen dataclass whose fields are the plant's parameters. Beside its two methods it sets:

    - `name` and `summary`: what to call it, and one sentence on it;
    - `channels`: name and unit of the input, and of the output;
    - `states`: what the states are, with units;
    - `ts` and `max_step`: sampling time, and longest step of the integration, in seconds;
    - `u_mean`, `u_std`, `u_range`, `bands`: the multisine that excites it (`bands`: highest frequency in Hz and
      amplitude of its lines, the lowest band first);
    - `settle`: seconds of excitation before the first sample of a record, so that each begins in a state of its own;
    - `noise`: standard deviation of the sensor's white noise, in the output's unit.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    channels: ClassVar[tuple[tuple[str, str], tuple[str, str]]]
    states: ClassVar[tuple[str, ...]]
    ts: ClassVar[float]
    max_step: ClassVar[float]
    u_mean: ClassVar[float] = 0.0
    u_std: ClassVar[float]
    u_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    bands: ClassVar[Bands]
    settle: ClassVar[float]
    noise: ClassVar[float]

    @abc.abstractmethod
    def derivative(self, x: State, u: float) -> State:
        """The state equation f(x, u), dx/dt per second; x: the state, u: the input."""

    @abc.abstractmethod
    def output(self, x: State) -> float:
        """The output equation g(x), without noise; x: the state."""


@dataclass(frozen=True)
class Duffing(AbstractPlant):
    """A mass on a spring that hardens, like the Silverbox: a force moves it, its position x is measured.

        mass dv/dt = u - damping v - stiffness x - cubic x^3,   dx/dt = v,   y = 1000 x

    At small amplitudes it resonates at 71 Hz with 5 % of critical damping. At the peaks of a record the spring pulls
    half as hard again as a linear one. The force has equal lines up to 150 Hz; it is sampled at 600 Hz.

    Args:
        mass: in kg.
        damping: in N s/m.
        stiffness: of the spring at rest, in N/m.
        cubic: how it hardens, in N/m^3.
    """

    mass: float = 0.1
    damping: float = 4.5
    stiffness: float = 2e4
    cubic: float = 1e9

    name = "duffing"
    summary = "simulated mass on a hardening spring: force (N) to position (mm), 600 Hz, 2000 samples each"
    channels = (("force", "N"), ("position", "mm"))
    states = ("position (m)", "velocity (m/s)")
    ts = 1 / 600
    max_step = 1 / 9000
    u_std = 10.0
    bands = ((150.0, 1.0),)
    settle = 0.4
    noise = 0.01

    def derivative(self, x: State, u: float) -> State:
        """Velocity and acceleration; x: position (m) and velocity (m/s), u: force (N)."""
        position, velocity = x
        spring = self.stiffness * position + self.cubic * position**3
        return velocity, (u - self.damping * velocity - spring) / self.mass

    def output(self, x: State) -> float:
        """The position in mm; x: position (m) and velocity (m/s)."""
        return 1e3 * x[0]


@dataclass(frozen=True)
class TwoMassDrive(AbstractPlant):
    """A motor that turns a load through an elastic shaft; torque in, the motor's speed out, where drives measure it.

    With the speeds w1 of the motor and w2 of the load, the twist p of the shaft, and its torque
    s = stiffness p + damping (w1 - w2):

        motor_inertia dw1/dt = u - s - motor_viscous w1 - motor_coulomb tanh(w1 / creep)
        load_inertia dw2/dt = s - load_viscous w2 - load_coulomb tanh(w2 / creep)
        dp/dt = w1 - w2,   y = w1

    Without friction the motor's speed has a zero at 11 Hz and a resonance at 19 Hz. The torque has its strong lines
    below 2 Hz, where friction brakes and the speed changes its sign, and weaker ones up to 50 Hz; 200 Hz sampling.

    Args:
        motor_inertia: in kg m^2.
        load_inertia: in kg m^2.
        stiffness: of the shaft, in N m/rad.
        damping: of the shaft, in N m s/rad.
        motor_viscous: friction per speed of the motor, in N m s/rad.
        load_viscous: friction per speed of the load, in N m s/rad.
        motor_coulomb: friction of constant size at the motor, in N m.
        load_coulomb: friction of constant size at the load, in N m.
        creep: speed in rad/s below which the constant friction fades.
    """

    motor_inertia: float = 0.01
    load_inertia: float = 0.02
    stiffness: float = 100.0
    damping: float = 0.1
    motor_viscous: float = 0.02
    load_viscous: float = 0.05
    motor_coulomb: float = 0.2
    load_coulomb: float = 0.5
    creep: float = 1.0

    name = "two_mass"
    summary = "simulated drive with an elastic shaft: torque (N m) to motor speed (rad/s), 200 Hz, 2000 samples each"
    channels = (("torque", "N m"), ("speed", "rad/s"))
    states = ("motor's speed (rad/s)", "load's speed (rad/s)", "twist (rad)")
    ts = 0.005
    max_step = 0.001
    u_std = 1.5
    u_range = (-10.0, 10.0)
    bands = ((2.0, 1.0), (50.0, 0.2))
    settle = 2.0
    noise = 0.05

    def derivative(self, x: State, u: float) -> State:
        """Accelerations and rate of twist; x: speeds of motor and load (rad/s), twist (rad), u: torque (N m)."""
        motor, load, twist = x
        shaft = self.stiffness * twist + self.damping * (motor - load)
        at_motor = self.motor_viscous * motor + self.motor_coulomb * math.tanh(motor / self.creep)
        at_load = self.load_viscous * load + self.load_coulomb * math.tanh(load / self.creep)
        return (u - shaft - at_motor) / self.motor_inertia, (shaft - at_load) / self.load_inertia, motor - load

    def output(self, x: State) -> float:
        """The speed of the motor in rad/s; x: speeds of motor and load, twist."""
        return x[0]


@dataclass(frozen=True)
class Neutralization(AbstractPlant):
    """Acid waste water that is neutralized: a dosing pump adds base, the pH behind a mixer and a tank is measured.

    The excess of strong base over strong acid, w in mol/l, is mixed linearly; carbonate buffers the pH (Wiener
    structure). The base is so strong that its own flow does not count:

        mixer_seconds dw1/dt = base u / flow - acid - w1
        tank_seconds dw2/dt = w1 - w2
        w2 = 10^(pH - 14) - 10^-pH + carbonate (1 + 2 b) / (1 + a + b),   a = 10^(pK1 - pH),   b = 10^(pH - pK2)

    with pK1 = 6.35 and pK2 = 10.25 of carbonic acid. The titration curve is ten times as steep at pH 8.3 as at 6.4.
    The pump's signal has strong lines up to 3 mHz, weaker ones up to 20 mHz, sampled every 5 s.

    Args:
        mixer_seconds: the mixer's volume over the flow, in s.
        tank_seconds: the tank's volume over the flow, in s.
        flow: of the waste water, in ml/s.
        acid: strong acid in it, in mol/l.
        carbonate: carbonic acid and its ions in it, in mol/l.
        base: strength of the base, in mol/l.
    """

    mixer_seconds: float = 10.0
    tank_seconds: float = 60.0
    flow: float = 30.0
    acid: float = 1e-3
    carbonate: float = 5e-4
    base: float = 0.1

    name = "ph"
    summary = "simulated neutralization, a titration curve: base (ml/s) to pH, Ts = 5 s, 2000 samples each"
    channels = (("base", "ml/s"), ("pH", "pH"))
    states = ("excess of base behind the mixer (mol/l)", "excess of base in the tank (mol/l)")
    ts = 5.0
    max_step = 1.0
    u_mean = 0.44
    u_std = 0.08
    u_range = (0.0, 1.0)
    bands = ((3e-3, 1.0), (20e-3, 0.2))
    settle = 400.0
    noise = 0.03

    def derivative(self, x: State, u: float) -> State:
        """Rates of both concentrations; x: excess of base behind the mixer and in the tank (mol/l), u: base (ml/s)."""
        mixed, tank = x
        arriving = self.base * u / self.flow - self.acid
        return (arriving - mixed) / self.mixer_seconds, (mixed - tank) / self.tank_seconds

    def output(self, x: State) -> float:
        """The pH in the tank from the balance of charges; x: both concentrations (mol/l)."""
        from scipy.optimize import brentq

        return float(brentq(lambda ph: self.excess_of_base(ph) - x[1], *PH_RANGE, xtol=1e-10))

    def excess_of_base(self, ph: float) -> float:
        """Titration curve: the excess of strong base (mol/l) that gives a pH; ph: the pH."""
        a, b = 10.0 ** (PK1 - ph), 10.0 ** (ph - PK2)
        return 10.0 ** (ph - 14.0) - 10.0**-ph + self.carbonate * (1.0 + 2.0 * b) / (1.0 + a + b)


# Acidity constants of carbonic acid at 25 degrees Celsius, and the range in which a pH is looked for.
PK1, PK2 = 6.35, 10.25
PH_RANGE = (-2.0, 16.0)

PLANTS: dict[str, type[AbstractPlant]] = {kind.name: kind for kind in (Duffing, TwoMassDrive, Neutralization)}


def response(plant: AbstractPlant | str, u: ArrayLike, *, x0: Sequence[float] | None = None) -> Float[np.ndarray, " N"]:
    """Output of a plant without noise, for an input held constant between samples.

    Args:
        plant: a plant, or `duffing`, `two_mass` or `ph` for one with its default parameters.
        u: the input at the samples, `plant.ts` seconds apart, shape (N,).
        x0: the state at the first sample, one number for each of `plant.states`; zeros by default.

    Returns:
        The output at the samples.

    Raises:
        DataError: `u` is not a finite signal of one channel.
        ConfigError: there is no plant of that name, or `x0` does not fit it.

    Example:
        >>> response(Duffing(cubic=0.0), [20.0] * 400)[-1].round(3)  # 20 N at 20 N/mm
        np.float64(1.0)
    """
    plant = _find(plant)
    signal = as_signal(u, plant.channels[0][0])
    start = (0.0,) * len(plant.states) if x0 is None else tuple(float(value) for value in x0)
    if len(start) != len(plant.states) or not all(math.isfinite(value) for value in start):
        wanted = ", ".join(plant.states)
        raise ConfigError(f"`x0` must be one finite number for each of: {wanted}; got {x0!r}. Correct it.")
    states = sample_states(
        lambda x, held, h: runge_kutta(lambda stage: plant.derivative(stage, held), x, h),
        signal,
        start,
        ts=plant.ts,
        max_step=plant.max_step,
    )
    return np.array([plant.output(tuple(x)) for x in states.tolist()])


def simulate(
    plant: AbstractPlant | str,
    *,
    seed: int,
    samples: int = 2000,
    test_samples: int | None = None,
    noise: float | None = None,
) -> Dataset:
    """Make a training and a test record of a plant, each with an excitation and an initial state of its own.

    The input is a multisine with random phases whose period is the record. It has excited the plant for some time when
    the record begins.

    Args:
        plant: a plant, or `duffing`, `two_mass` or `ph` for one with its default parameters.
        seed: decides all phases and noise; the same seed gives the same records.
        samples: length of the training record.
        test_samples: length of the test record; by default that of the training record.
        noise: standard deviation of the sensor's white noise, in the output's unit; by default the plant's.

    Raises:
        ConfigError: there is no plant of that name, or a setting breaks a rule.

    Example:
        >>> data = simulate("two_mass", samples=300, seed=0)
        >>> data.train.input_names, data.test.output_names, len(data.test)
        (('torque',), ('speed',), 300)
    """
    plant = _find(plant)
    sigma = plant.noise if noise is None else noise
    check_number("noise", sigma)

    def experiment(random: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
        wave = plant.u_mean + plant.u_std * multisine(random, length, ts=plant.ts, bands=plant.bands)
        u = np.clip(wave, *plant.u_range)
        before = round(plant.settle / plant.ts)
        y = response(plant, np.take(u, np.arange(-before, length), mode="wrap"))[before:]
        return u, y + sigma * random.standard_normal(length)

    return make_dataset(
        experiment,
        name=plant.name,
        seed=seed,
        samples=samples,
        test_samples=test_samples,
        ts=plant.ts,
        channels=plant.channels,
    )


def _find(plant: AbstractPlant | str) -> AbstractPlant:
    if not isinstance(plant, str):
        return plant
    if plant not in PLANTS:
        raise ConfigError(unknown_name("plant", plant, PLANTS))
    return PLANTS[plant]()
