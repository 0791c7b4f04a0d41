"""Flows, levels, temperatures and pH."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tausid.data.plants._excitation import Multisine, Steps
from tausid.data.plants._integrate import State
from tausid.data.plants._plant import AbstractPlant, parameter

# Acidity constants of carbonic acid at 25 degrees Celsius, and the range in which a pH is looked for.
PK1, PK2 = 6.35, 10.25
PH_RANGE = (-2.0, 16.0)
GRAVITY = 981.0  # cm/s^2
KELVIN = 273.15  # at 0 degrees Celsius


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
    """

    mixer_seconds: float = parameter(10.0, "s", "the mixer's volume over the flow")
    tank_seconds: float = parameter(60.0, "s", "the tank's volume over the flow")
    flow: float = parameter(30.0, "ml/s", "of the waste water")
    acid: float = parameter(1e-3, "mol/l", "strong acid in it")
    carbonate: float = parameter(5e-4, "mol/l", "carbonic acid and its ions in it")
    base: float = parameter(0.1, "mol/l", "strength of the base")

    name = "ph"
    summary = "simulated neutralization, a titration curve: base (ml/s) to pH, Ts = 5 s, 2000 samples each"
    inputs = (("base", "ml/s"),)
    outputs = (("pH", "pH"),)
    states = (("excess of base behind the mixer", "mol/l"), ("excess of base in the tank", "mol/l"))
    ts = 5.0
    max_step = 1.0
    train = Multisine(((3e-3, 1.0), (20e-3, 0.2)), std=0.08, mean=0.44)
    tests = (train, Steps(0.3, 0.58, hold=(50.0, 400.0)))
    u_range = (0.0, 1.0)
    settle = 400.0
    noise = (0.03,)

    def derivative(self, x: State, u: State) -> State:
        """How the excess of base changes behind the mixer and in the tank."""
        mixed, tank = x
        arriving = self.base * u[0] / self.flow - self.acid
        return (arriving - mixed) / self.mixer_seconds, (mixed - tank) / self.tank_seconds

    def output(self, x: State) -> State:
        """The pH in the tank, from the balance of charges."""
        from scipy.optimize import brentq

        return (float(brentq(lambda ph: self.excess_of_base(ph) - x[1], *PH_RANGE, xtol=1e-10)),)

    def excess_of_base(self, ph: float) -> float:
        """The titration curve, from the pH to the excess of strong base over strong acid in mol/l."""
        a, b = 10.0 ** (PK1 - ph), 10.0 ** (ph - PK2)
        return 10.0 ** (ph - 14.0) - 10.0**-ph + self.carbonate * (1.0 + 2.0 * b) / (1.0 + a + b)


@dataclass(frozen=True)
class FlowHeater(AbstractPlant):
    """A stirred tank with a heated wall; the flow through it is the input, which multiplies a state (bilinear).

        dT/dt = u / volume (T_in - T) + (W - T) / to_water,   dW/dt = heating - (W - T) / to_wall,   y = T

    At rest the water is T_in + heating to_wall volume / (to_water u). Its time constant falls with the flow.
    """

    volume: float = parameter(10.0, "l", "of the tank")
    inflow: float = parameter(15.0, "degC", "temperature of the inflow, T_in")
    to_water: float = parameter(30.0, "s", "how long the wall takes to heat the water")
    to_wall: float = parameter(60.0, "s", "how long the water takes to cool the wall")
    heating: float = parameter(0.4, "K/s", "how fast the heater warms the wall alone")

    name = "bilinear"
    summary = "simulated heater, bilinear in its flow: flow (l/s) to temperature (degC), Ts = 5 s, 800 samples each"
    inputs = (("flow", "l/s"),)
    outputs = (("temperature", "degC"),)
    states = (("water", "degC"), ("wall", "degC"))
    ts = 5.0
    max_step = 1.0
    samples = 800
    train = Steps(0.1, 0.4, hold=(30.0, 300.0))
    tests = (Multisine(((4e-3, 1.0), (20e-3, 0.3)), std=0.06, mean=0.24),)
    u_range = (0.1, 0.4)
    settle = 800.0
    noise = (0.2,)

    def derivative(self, x: State, u: State) -> State:
        """Slopes of the temperatures of water and wall."""
        water, wall = x
        flowing = u[0] / self.volume * (self.inflow - water)
        return flowing + (wall - water) / self.to_water, self.heating - (wall - water) / self.to_wall

    def output(self, x: State) -> State:
        """The temperature of the water."""
        return (x[0],)


@dataclass(frozen=True)
class DelayedTank(AbstractPlant):
    """A tank that a long belt fills: what the input puts on it arrives `dead_time` later, and flows out by gravity.

        area dh/dt = feed u(t - dead_time) - outflow sqrt(h),   lag dm/dt = h - m,   y = m

    The level goes with the square of the feed; its time constant is 8 to 32 s; Ts = 1 s.
    """

    area: float = parameter(5.0, "m^2", "of the tank")
    feed: float = parameter(1.0, "m^3/s", "inflow per unit of the input")
    outflow: float = parameter(1.0, "m^2.5/s", "outflow per square root of the level")
    lag: float = parameter(3.0, "s", "time constant of the sensor")
    dead_time: float = parameter(8.0, "s", "of the belt")

    name = "transport_delay"
    summary = "simulated tank behind a belt, 8 samples of dead time: feed (1) to level (m), Ts = 1 s, 1000 samples each"
    inputs = (("feed", "1"),)
    outputs = (("level", "m"),)
    states = (("level", "m"), ("sensor", "m"))
    ts = 1.0
    max_step = 0.25
    samples = 1000
    train = Steps(0.8, 3.2, hold=(5.0, 60.0))
    tests = (Multisine(((0.01, 1.0), (0.05, 0.3)), std=0.45, mean=2.0),)
    u_range = (0.8, 3.2)
    settle = 300.0
    noise = (0.04,)

    def derivative(self, x: State, u: State) -> State:
        """Slopes of level and sensor."""
        level, sensor = x
        return (self.feed * u[0] - self.outflow * math.sqrt(max(level, 0.0))) / self.area, (level - sensor) / self.lag

    def output(self, x: State) -> State:
        """The sensor."""
        return (x[1],)


@dataclass(frozen=True)
class QuadrupleTanks(AbstractPlant):
    """Four tanks, two pumps, two levels: each pump fills one lower tank and, across, the upper one over the other.

    With the outflows q_i = a_i sqrt(2 g h_i) and the shares `split` of the pumps' flows to the lower tanks:

        A_1 dh1/dt = q3 - q1 + split_1 k_1 u1          A_3 dh3/dt = -q3 + (1 - split_2) k_2 u2
        A_2 dh2/dt = q4 - q2 + split_2 k_2 u2          A_4 dh4/dt = -q4 + (1 - split_1) k_1 u1,   y = h1, h2

    Johansson, "The quadruple-tank process", 2000, with its minimum-phase setting; Ts = 5 s.
    """

    left_area: float = parameter(28.0, "cm^2", "A_1 and A_3")
    right_area: float = parameter(32.0, "cm^2", "A_2 and A_4")
    left_hole: float = parameter(0.071, "cm^2", "a_1 and a_3")
    right_hole: float = parameter(0.057, "cm^2", "a_2 and a_4")
    left_pump: float = parameter(3.33, "cm^3/(V s)", "k_1")
    right_pump: float = parameter(3.35, "cm^3/(V s)", "k_2")
    left_split: float = parameter(0.7, "", "split_1")
    right_split: float = parameter(0.6, "", "split_2")

    name = "quadruple_tanks"
    summary = "simulated quadruple tanks, 2 x 2: two pumps (V) to two levels (cm), Ts = 5 s, 800 samples each"
    inputs = (("left_pump", "V"), ("right_pump", "V"))
    outputs = (("left_level", "cm"), ("right_level", "cm"))
    states = (("lower left", "cm"), ("lower right", "cm"), ("upper left", "cm"), ("upper right", "cm"))
    ts = 5.0
    max_step = 1.0
    samples = 800
    train = Steps(1.5, 4.0, hold=(30.0, 300.0))
    tests = (Multisine(((3e-3, 1.0), (15e-3, 0.3)), std=0.5, mean=2.8),)
    u_range = (1.5, 4.0)
    settle = 1000.0
    noise = (0.05, 0.05)

    def derivative(self, x: State, u: State) -> State:
        """Slopes of the levels."""
        lower_left, lower_right, upper_left, upper_right = (math.sqrt(2.0 * GRAVITY * max(h, 0.0)) for h in x)
        left, right = self.left_pump * u[0], self.right_pump * u[1]
        return (
            (self.left_hole * (upper_left - lower_left) + self.left_split * left) / self.left_area,
            (self.right_hole * (upper_right - lower_right) + self.right_split * right) / self.right_area,
            ((1.0 - self.right_split) * right - self.left_hole * upper_left) / self.left_area,
            ((1.0 - self.left_split) * left - self.right_hole * upper_right) / self.right_area,
        )

    def output(self, x: State) -> State:
        """The levels of the lower tanks."""
        return x[:2]


@dataclass(frozen=True)
class Furnace(AbstractPlant):
    """A furnace that radiates, and a thermocouple that drifts: over a record by more than its noise.

        heater_capacity dH/dt = power u - exchange (H - T)
        load_capacity dT/dt = exchange (H - T) - loss (T - T_0) - radiation ((T + 273.15)^4 - (T_0 + 273.15)^4),   y = T

    No model can know the drift: what it adds is part of the noise floor. Ts = 10 s.
    """

    heater_capacity: float = parameter(200.0, "J/K", "of the heater")
    load_capacity: float = parameter(2000.0, "J/K", "of the load")
    power: float = parameter(1000.0, "W", "at full input")
    exchange: float = parameter(20.0, "W/K", "between heater and load")
    loss: float = parameter(0.3, "W/K", "by convection")
    radiation: float = parameter(1e-9, "W/K^4", "radiated")
    ambient: float = parameter(20.0, "degC", "T_0")

    name = "drifting_sensor"
    summary = "simulated furnace, its sensor drifts: power (1) to temperature (degC), Ts = 10 s, 1000 samples each"
    inputs = (("power", "1"),)
    outputs = (("temperature", "degC"),)
    states = (("heater", "degC"), ("load", "degC"))
    ts = 10.0
    max_step = 2.5
    samples = 1000
    train = Steps(0.2, 0.8, hold=(100.0, 1500.0))
    tests = (Multisine(((0.5e-3, 1.0), (5e-3, 0.3)), std=0.15, mean=0.52),)
    u_range = (0.1, 0.9)
    settle = 8000.0
    noise = (0.5,)
    drift = 3.0

    def derivative(self, x: State, u: State) -> State:
        """Slopes of the temperatures of heater and load."""
        heater, load = x
        exchanged = self.exchange * (heater - load)
        radiated = self.radiation * ((load + KELVIN) ** 4 - (self.ambient + KELVIN) ** 4)
        lost = self.loss * (load - self.ambient) + radiated
        return (self.power * u[0] - exchanged) / self.heater_capacity, (exchanged - lost) / self.load_capacity

    def output(self, x: State) -> State:
        """The temperature of the load."""
        return (x[1],)


@dataclass(frozen=True)
class SolderingIron(AbstractPlant):
    """A small heated tip on a large body: two time constants that differ by a factor of some 200.

        tip_capacity dT/dt = power u - exchange (T - B)
        body_capacity dB/dt = exchange (T - B) - loss (B - T_0) - radiation ((B + 273.15)^4 - (T_0 + 273.15)^4),   y = T

    The tip follows the power within 2 s, and drifts with the body for minutes. Ts = 1 s.
    """

    tip_capacity: float = parameter(4.0, "J/K", "of the tip")
    body_capacity: float = parameter(150.0, "J/K", "of the body")
    power: float = parameter(60.0, "W", "at full input")
    exchange: float = parameter(2.0, "W/K", "between tip and body")
    loss: float = parameter(0.15, "W/K", "of the body by convection")
    radiation: float = parameter(1e-9, "W/K^4", "radiated by the body")
    ambient: float = parameter(20.0, "degC", "T_0")

    name = "fast_and_slow"
    summary = "simulated soldering iron, 2 s and minutes: power (1) to temperature (degC), Ts = 1 s, 2000 samples each"
    inputs = (("power", "1"),)
    outputs = (("temperature", "degC"),)
    states = (("tip", "degC"), ("body", "degC"))
    ts = 1.0
    max_step = 0.5
    train = Multisine(((2e-3, 1.0), (0.2, 0.08)), std=0.18, mean=0.5)
    tests = (Steps(0.3, 0.7, hold=(5.0, 60.0)),)
    u_range = (0.0, 1.0)
    settle = 2000.0
    noise = (0.3,)

    def derivative(self, x: State, u: State) -> State:
        """Slopes of the temperatures of tip and body."""
        tip, body = x
        exchanged = self.exchange * (tip - body)
        radiated = self.radiation * ((body + KELVIN) ** 4 - (self.ambient + KELVIN) ** 4)
        lost = self.loss * (body - self.ambient) + radiated
        return (self.power * u[0] - exchanged) / self.tip_capacity, (exchanged - lost) / self.body_capacity

    def output(self, x: State) -> State:
        """The temperature of the tip."""
        return (x[0],)
