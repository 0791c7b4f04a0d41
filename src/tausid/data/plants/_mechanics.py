"""Masses, springs, shafts and friction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tausid.data.plants._excitation import Multisine, Steps, Sweep
from tausid.data.plants._integrate import State
from tausid.data.plants._plant import AbstractPlant, parameter, tanh


@dataclass(frozen=True)
class Duffing(AbstractPlant):
    """A mass on a spring that hardens, like the Silverbox: a force moves it, its position x is measured.

        mass dv/dt = u - damping v - stiffness x - cubic x^3,   dx/dt = v,   y = 1000 x

    At small amplitudes it resonates at 71 Hz with 5 % of critical damping. At the peaks of a record the spring pulls
    half as hard again as a linear one. The force has equal lines up to 150 Hz; it is sampled at 600 Hz.
    """

    mass: float = parameter(0.1, "kg", "what is moved")
    damping: float = parameter(4.5, "N s/m", "force per velocity")
    stiffness: float = parameter(2e4, "N/m", "of the spring at rest")
    cubic: float = parameter(1e9, "N/m^3", "how it hardens")

    name = "duffing"
    summary = "simulated mass on a hardening spring: force (N) to position (mm), 600 Hz, 2000 samples each"
    inputs = (("force", "N"),)
    outputs = (("position", "mm"),)
    states = (("position", "m"), ("velocity", "m/s"))
    ts = 1 / 600
    max_step = 1 / 9000
    train = Multisine(((150.0, 1.0),), std=10.0)
    tests = (train, Steps(-20.0, 20.0, hold=(0.005, 0.05)))
    settle = 0.4
    noise = (0.01,)

    def derivative(self, x: State, u: State) -> State:
        """Velocity and acceleration."""
        position, velocity = x
        spring = self.stiffness * position + self.cubic * position**3
        return velocity, (u[0] - self.damping * velocity - spring) / self.mass

    def output(self, x: State) -> State:
        """The position."""
        return (1e3 * x[0],)


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
    """

    motor_inertia: float = parameter(0.01, "kg m^2", "of the motor")
    load_inertia: float = parameter(0.02, "kg m^2", "of the load")
    stiffness: float = parameter(100.0, "N m/rad", "of the shaft")
    damping: float = parameter(0.1, "N m s/rad", "of the shaft")
    motor_viscous: float = parameter(0.02, "N m s/rad", "friction per speed of the motor")
    load_viscous: float = parameter(0.05, "N m s/rad", "friction per speed of the load")
    motor_coulomb: float = parameter(0.2, "N m", "friction of constant size at the motor")
    load_coulomb: float = parameter(0.5, "N m", "friction of constant size at the load")
    creep: float = parameter(1.0, "rad/s", "speed below which the constant friction fades")

    name = "two_mass"
    summary = "simulated drive with an elastic shaft: torque (N m) to motor speed (rad/s), 200 Hz, 2000 samples each"
    inputs = (("torque", "N m"),)
    outputs = (("speed", "rad/s"),)
    states = (("motor's speed", "rad/s"), ("load's speed", "rad/s"), ("twist", "rad"))
    ts = 0.005
    max_step = 0.001
    train = Multisine(((2.0, 1.0), (50.0, 0.2)), std=1.5)
    tests = (train, Steps(-2.5, 2.5, hold=(0.05, 0.5)))
    u_range = (-10.0, 10.0)
    settle = 2.0
    noise = (0.05,)

    def derivative(self, x: State, u: State) -> State:
        """Accelerations of motor and load, and how fast the shaft is twisted."""
        motor, load, twist = x
        shaft = self.stiffness * twist + self.damping * (motor - load)
        at_motor = self.motor_viscous * motor + self.motor_coulomb * math.tanh(motor / self.creep)
        at_load = self.load_viscous * load + self.load_coulomb * math.tanh(load / self.creep)
        return (u[0] - shaft - at_motor) / self.motor_inertia, (shaft - at_load) / self.load_inertia, motor - load

    def output(self, x: State) -> State:
        """The speed of the motor."""
        return (x[0],)


@dataclass(frozen=True)
class MassChain(AbstractPlant):
    """Three masses in a row, lightly damped: a force at the first, next to the wall, the position of the last measured.

    With the stretch s1 = x1, s2 = x2 - x1, s3 = x3 - x2 of the springs, and the pull
    p_i = stiffness s_i + damping ds_i/dt of each, the one at the wall hardening, p_1 + cubic s1^3:

        mass dv1/dt = u - p_1 + p_2,   mass dv2/dt = -p_2 + p_3,   mass dv3/dt = -p_3,   y = 1000 x3

    It resonates at 1.4, 4.0 and 5.7 Hz with 1, 2.8 and 4 % of critical damping; 25 Hz sampling.
    """

    mass: float = parameter(1.0, "kg", "of each body")
    stiffness: float = parameter(400.0, "N/m", "of each spring")
    damping: float = parameter(0.9, "N s/m", "of each spring")
    cubic: float = parameter(8e3, "N/m^3", "how the spring at the wall hardens")

    name = "mass_chain"
    summary = "simulated chain of three masses, lightly damped: force (N) to position (mm), 25 Hz, 2000 samples each"
    inputs = (("force", "N"),)
    outputs = (("position", "mm"),)
    states = tuple((f"{what} {i}", unit) for what, unit in (("position", "m"), ("velocity", "m/s")) for i in (1, 2, 3))
    ts = 0.04
    max_step = 0.004
    train = Multisine(((8.0, 1.0),), std=5.0)
    tests = (Steps(-12.0, 12.0, hold=(0.1, 2.0)),)
    settle = 80.0
    noise = (0.5,)

    def derivative(self, x: State, u: State) -> State:
        """Velocities and accelerations."""
        x1, x2, x3, v1, v2, v3 = x
        wall = self.stiffness * x1 + self.damping * v1 + self.cubic * x1**3
        first = self.stiffness * (x2 - x1) + self.damping * (v2 - v1)
        second = self.stiffness * (x3 - x2) + self.damping * (v3 - v2)
        return v1, v2, v3, (u[0] - wall + first) / self.mass, (second - first) / self.mass, -second / self.mass

    def output(self, x: State) -> State:
        """The position of the last mass."""
        return (1e3 * x[2],)


@dataclass(frozen=True)
class SlidingMass(AbstractPlant):
    """A mass that a force moves against friction, free to go anywhere: an integrator, as the EMPS without control.

        mass dv/dt = gain u - viscous v - coulomb tanh(v / creep) - stiffness q - offset,   dq/dt = v,   y = q

    The mean of the force is zero, and so brings the mass back; 50 Hz sampling.
    """

    mass: float = parameter(1.0, "kg", "what is moved")
    viscous: float = parameter(2.0, "N s/m", "friction per velocity")
    coulomb: float = parameter(1.0, "N", "friction of constant size, against the motion")
    offset: float = parameter(0.0, "N", "constant force, as of gravity or of an amplifier's offset")
    stiffness: float = parameter(0.0, "N/m", "of a spring at the origin")
    gain: float = parameter(1.0, "N", "force per unit of the input")
    creep: float = parameter(0.05, "m/s", "velocity below which the constant friction fades")

    name = "integrator"
    summary = "simulated mass that slides with friction: force (N) to position (m), 50 Hz, 1500 samples each"
    inputs = (("force", "N"),)
    outputs = (("position", "m"),)
    states = (("position", "m"), ("velocity", "m/s"))
    ts = 0.02
    max_step = 0.005
    samples = 1500
    train = Steps(-5.0, 5.0, hold=(0.2, 1.5), balanced=True)
    tests = (Multisine(((2.0, 1.0),), std=2.5, lowest=0.1),)
    settle = 5.0
    noise = (0.005,)

    def derivative(self, x: Any, u: Any) -> Any:
        """Velocity and acceleration, of numbers or of arrays: they are the grey box's equations, too."""
        position, velocity = x
        (drive,) = u
        friction = self.viscous * velocity + self.coulomb * tanh(velocity / self.creep)
        force = self.gain * drive - friction - self.stiffness * position - self.offset
        return velocity, force / self.mass

    def output(self, x: State) -> State:
        """The position."""
        return (x[0],)


@dataclass(frozen=True)
class RectifiedMotor(AbstractPlant):
    """A motor that turns both ways, with a speed sensor that has no sign: the output is an even function of the state.

        inertia dw/dt = constant i - viscous w - coulomb tanh(w / creep)
        inductance di/dt = u - resistance i - constant w,   y = |w|

    The best linear approximation of such a plant says next to nothing. 25 Hz sampling.
    """

    inertia: float = parameter(2e-3, "kg m^2", "of rotor and load")
    constant: float = parameter(0.1, "V s/rad", "torque per current, and voltage per speed")
    viscous: float = parameter(2e-3, "N m s/rad", "friction per speed")
    coulomb: float = parameter(0.05, "N m", "friction of constant size")
    creep: float = parameter(2.0, "rad/s", "speed below which the constant friction fades")
    inductance: float = parameter(0.05, "H", "of the winding")
    resistance: float = parameter(1.0, "ohm", "of the winding")

    name = "rectified"
    summary = "simulated motor, a speed sensor without sign: voltage (V) to |speed| (rad/s), 25 Hz, 1000 samples each"
    inputs = (("voltage", "V"),)
    outputs = (("speed", "rad/s"),)
    states = (("speed", "rad/s"), ("current", "A"))
    ts = 0.04
    max_step = 0.004
    samples = 1000
    train = Multisine(((2.0, 1.0),), std=4.0)
    tests = (Steps(-7.0, 7.0, hold=(0.3, 2.0)),)
    u_range = (-12.0, 12.0)
    settle = 2.0
    noise = (0.4,)

    def derivative(self, x: State, u: State) -> State:
        """Acceleration, and slope of the current."""
        speed, current = x
        friction = self.viscous * speed + self.coulomb * math.tanh(speed / self.creep)
        torque = self.constant * current - friction
        return torque / self.inertia, (u[0] - self.resistance * current - self.constant * speed) / self.inductance

    def output(self, x: State) -> State:
        """The speed without its sign."""
        return (abs(x[0]),)


@dataclass(frozen=True)
class BoucWen(AbstractPlant):
    """A mass with a hysteretic restoring force z, the equations and parameters of the Bouc-Wen benchmark.

        mass dv/dt = u - damping v - stiffness x - z,   dx/dt = v,   y = 1000 x
        dz/dt = alpha v - beta (gamma |v| z + delta v |z|)

    Force and position do not tell z: what it is depends on the way there. 750 Hz sampling, a force of 50 N up to
    150 Hz; the test is the benchmark's sweep from 20 to 50 Hz with 40 N (Noel and Schoukens, "Hysteretic benchmark
    with a dynamic nonlinearity", 2016).
    """

    mass: float = parameter(2.0, "kg", "what is moved")
    damping: float = parameter(10.0, "N s/m", "force per velocity")
    stiffness: float = parameter(5e4, "N/m", "of the linear spring")
    alpha: float = parameter(5e4, "N/m", "stiffness of the hysteretic force at rest")
    beta: float = parameter(1e3, "1/m", "size of what bends the loop")
    gamma: float = parameter(0.8, "", "shape of the loop")
    delta: float = parameter(-1.1, "", "shape of the loop")

    name = "bouc_wen"
    summary = "simulated hysteresis (Bouc-Wen benchmark): force (N) to position (mm), 750 Hz, 2000 samples each"
    inputs = (("force", "N"),)
    outputs = (("position", "mm"),)
    states = (("position", "m"), ("velocity", "m/s"), ("hysteretic force", "N"))
    ts = 1 / 750
    max_step = 1 / 15000
    train = Multisine(((150.0, 1.0),), std=50.0, lowest=5.0)
    tests = (Sweep((20.0, 50.0), amplitude=40.0),)
    settle = 1.0
    noise = (0.008,)

    def derivative(self, x: State, u: State) -> State:
        """Velocity, acceleration, and slope of the hysteretic force."""
        position, velocity, force = x
        bend = self.gamma * abs(velocity) * force + self.delta * velocity * abs(force)
        acceleration = (u[0] - self.damping * velocity - self.stiffness * position - force) / self.mass
        return velocity, acceleration, self.alpha * velocity - self.beta * bend

    def output(self, x: State) -> State:
        """The position."""
        return (1e3 * x[0],)
