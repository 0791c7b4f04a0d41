"""Blocks of textbooks: linear parts with a nonlinear function before, between or within them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tausid.data.plants._excitation import Multisine, Steps, Sweep
from tausid.data.plants._integrate import State
from tausid.data.plants._plant import AbstractPlant, parameter


def oscillator(position: float, velocity: float, drive: float, omega: float, damping: float) -> State:
    """Slopes of position and velocity of a linear oscillator that rests where the drive is."""
    return velocity, omega**2 * (drive - position) - 2.0 * damping * omega * velocity


@dataclass(frozen=True)
class LinearPlant(AbstractPlant):
    """A plant that is linear: a resonance and a lag. No model can be better than the right linear one.

    d2x/dt2 = omega^2 (u - x) - 2 damping omega dx/dt,   lag dy/dt = gain x - y
    """

    omega: float = parameter(6.0, "rad/s", "of the resonance")
    damping: float = parameter(0.15, "", "of the resonance, as a share of the critical one")
    lag: float = parameter(0.4, "s", "time constant of the lag")
    gain: float = parameter(2.0, "", "at rest")

    name = "linear"
    summary = "simulated plant that is linear, a resonance and a lag: u (V) to y (V), 10 Hz, 1000 samples each"
    inputs = (("u", "V"),)
    outputs = (("y", "V"),)
    states = (("x", "V"), ("dx/dt", "V/s"), ("y", "V"))
    ts = 0.1
    max_step = 0.02
    samples = 1000
    train = Steps(-3.0, 3.0, hold=(0.2, 2.0))
    tests = (Multisine(((2.0, 1.0),), std=1.0),)
    settle = 10.0
    noise = (0.05,)

    def derivative(self, x: State, u: State) -> State:
        """Slopes of the resonance and of the lag."""
        position, velocity, y = x
        return *oscillator(position, velocity, u[0], self.omega, self.damping), (self.gain * position - y) / self.lag

    def output(self, x: State) -> State:
        """What leaves the lag."""
        return (x[2],)


@dataclass(frozen=True)
class DeadZoneValve(AbstractPlant):
    """A valve with a dead zone and an end stop moves a damped oscillator (Hammerstein structure).

    w = sign(u) min(max(|u| - dead_zone, 0), stop),   d2x/dt2 = omega^2 (w - x) - 2 damping omega dx/dt,   y = x
    """

    dead_zone: float = parameter(1.5, "V", "how far the input moves nothing")
    stop: float = parameter(4.0, "V", "where the valve is fully open")
    omega: float = parameter(4.0, "rad/s", "of the oscillator")
    damping: float = parameter(0.4, "", "of the oscillator, as a share of the critical one")

    name = "dead_zone"
    summary = "simulated valve with dead zone and saturation: voltage (V) to position (mm), 20 Hz, 1000 samples each"
    inputs = (("voltage", "V"),)
    outputs = (("position", "mm"),)
    states = (("position", "mm"), ("velocity", "mm/s"))
    ts = 0.05
    max_step = 0.025
    samples = 1000
    train = Multisine(((1.5, 1.0),), std=3.5)
    tests = (Steps(-6.5, 6.5, hold=(0.3, 3.0)),)
    u_range = (-10.0, 10.0)
    settle = 5.0
    noise = (0.03,)

    def derivative(self, x: State, u: State) -> State:
        """Velocity and acceleration."""
        opened = math.copysign(min(max(abs(u[0]) - self.dead_zone, 0.0), self.stop), u[0])
        position, velocity = x
        return oscillator(position, velocity, opened, self.omega, self.damping)

    def output(self, x: State) -> State:
        """The position."""
        return (x[0],)


@dataclass(frozen=True)
class WienerHammerstein(AbstractPlant):
    """A filter, a diode, a filter: the nonlinear part is between two oscillators and neither end shows it.

        d2v/dt2 = first^2 (u - v) - 2 first_damping first dv/dt
        w = v - share knee log(1 + exp((v - limit) / knee))
        d2y/dt2 = second^2 (w - y) - 2 second_damping second dy/dt

    Above the limit the diode passes one tenth of what comes. 20 Hz sampling.
    """

    first: float = parameter(7.0, "rad/s", "of the first filter")
    first_damping: float = parameter(0.4, "", "as a share of the critical one")
    limit: float = parameter(0.3, "V", "where the diode begins to conduct")
    knee: float = parameter(0.1, "V", "how softly it begins")
    share: float = parameter(0.9, "", "what it takes away above the limit")
    second: float = parameter(12.0, "rad/s", "of the second filter")
    second_damping: float = parameter(0.25, "", "as a share of the critical one")

    name = "wiener_hammerstein"
    summary = "simulated filter, diode and filter: u (V) to y (V), 20 Hz, 2000 samples each"
    inputs = (("u", "V"),)
    outputs = (("y", "V"),)
    states = (("v", "V"), ("dv/dt", "V/s"), ("y", "V"), ("dy/dt", "V/s"))
    ts = 0.05
    max_step = 0.01
    train = Multisine(((3.0, 1.0),), std=1.0)
    tests = (Sweep((0.1, 2.5), amplitude=1.2),)
    settle = 5.0
    noise = (0.005,)

    def derivative(self, x: State, u: State) -> State:
        """Slopes of both filters."""
        v, v_slope, y, y_slope = x
        over = (v - self.limit) / self.knee
        softplus = max(over, 0.0) + math.log1p(math.exp(-abs(over)))
        passed = v - self.share * self.knee * softplus
        return (
            *oscillator(v, v_slope, u[0], self.first, self.first_damping),
            *oscillator(y, y_slope, passed, self.second, self.second_damping),
        )

    def output(self, x: State) -> State:
        """What leaves the second filter."""
        return (x[2],)


@dataclass(frozen=True)
class VanDerPol(AbstractPlant):
    """Van der Pol's oscillator, which swings by itself; the force is strong enough to lead it.

        dv/dt = mu (1 - x^2) v - x + u,   dx/dt = v,   y = x

    Alone it swings between -2 and 2 once in 6.7 s; 10 Hz sampling.
    """

    mu: float = parameter(1.0, "1/s", "how strongly it is driven when small and damped when large")

    name = "van_der_pol"
    summary = "simulated Van der Pol oscillator, forced: u (1) to y (1), 10 Hz, 1500 samples each"
    inputs = (("u", "1"),)
    outputs = (("y", "1"),)
    states = (("x", "1"), ("dx/dt", "1/s"))
    ts = 0.1
    max_step = 0.02
    samples = 1500
    train = Multisine(((0.5, 1.0),), std=2.0)
    tests = (Steps(-3.0, 3.0, hold=(0.5, 5.0)),)
    settle = 40.0
    noise = (0.03,)

    def derivative(self, x: State, u: State) -> State:
        """Velocity and acceleration."""
        position, velocity = x
        return velocity, self.mu * (1.0 - position**2) * velocity - position + u[0]

    def output(self, x: State) -> State:
        """The position."""
        return (x[0],)
