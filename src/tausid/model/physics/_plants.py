"""Plants that come with the package, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tausid.data.plants import SlidingMass, TankParameters, parameter_units
from tausid.errors import ConfigError, unknown_name
from tausid.model.physics._declare import AbstractPhysics, Parameter, State
from tausid.shapes import Array

# The square root is made smooth below about this level in volts; at 1 V that changes it by 0.05 %.
SMOOTH_LEVEL = 1e-3
_TANKS = parameter_units(TankParameters)
_MASS = parameter_units(SlidingMass)


@dataclass(frozen=True)
class CascadedTanks(AbstractPhysics):
    """Two tanks, one above the other; a pump fills the upper one, the level of the lower one is measured.

    With `q = k1 sqrt(x1) + k5 x1` and the overflow `s = weir max(x1 - upper_rim, 0)`:

        dx1/dt = k3 u - q - s
        dx2/dt = q + spill s - k2 sqrt(x2) - k6 x2 - weir max(x2 - rim, 0)
        y = min(x2, rim)

    The equations of `datasets.tanks_response`, with an overflow that takes `1 / weir` seconds instead of none, so that
    levels have a derivative; levels in the square roots end at the rim. The level of the upper tank is not measured,
    and is counted so that the same flow fills both tanks alike: its rim says how much the upper tank holds, which need
    not be what the lower one does. Its start value must lie where the fit begins with an overflow: without one nothing
    depends on it.

    Args:
        k1: outflow of the upper tank per square root of its level.
        k2: outflow of the lower tank per square root of its level.
        k3: inflow of the upper tank per volt at the pump.
        spill: share of the upper tank's overflow that lands in the lower one.
        k5: outflow of the upper tank per level.
        k6: outflow of the lower tank per level.
        upper_rim: level at which the upper tank runs over, in volts.
        rim: level at which the lower tank runs over, in volts.
        weir: rate at which water above the rim runs off, in 1/s.
    """

    k1: float | Parameter = Parameter(0.05, 0.0, 0.5, _TANKS["k1"])
    k2: float | Parameter = Parameter(0.05, 0.0, 0.5, _TANKS["k2"])
    k3: float | Parameter = Parameter(0.05, 0.0, 0.5, _TANKS["k3"])
    spill: float | Parameter = Parameter(0.5, 0.0, 1.5)
    k5: float | Parameter = Parameter(0.0, -0.05, 0.05, _TANKS["k5"])
    k6: float | Parameter = Parameter(0.0, -0.05, 0.05, _TANKS["k6"])
    upper_rim: float | Parameter = Parameter(12.0, 2.0, 100.0, "V")
    rim: float | Parameter = 10.0
    weir: float = 1.0

    states = {name: State(5.0, unit) for name, unit in TankParameters.states}
    max_dt = 2.0  # the weir is integrated stably up to 2.8 s

    def derivative(self, x: Sequence[Array], u: Sequence[Array], p: Any) -> Sequence[Array]:
        """The derivative of both levels.

        Args:
            x: levels of the upper and of the lower tank, in volts.
            u: the pump voltage.
            p: the parameters.

        Returns:
            Volts per second.
        """
        import jax.numpy as jnp

        upper, lower = x
        (pump,) = u
        full1, full2 = jnp.clip(upper, 0.0, p.upper_rim), jnp.clip(lower, 0.0, p.rim)
        between = p.k1 * _sqrt(full1) + p.k5 * full1
        over = p.weir * jnp.maximum(upper - p.upper_rim, 0.0)
        drained = p.k2 * _sqrt(full2) + p.k6 * full2 + p.weir * jnp.maximum(lower - p.rim, 0.0)
        return p.k3 * pump - between - over, between + p.spill * over - drained

    def output(self, x: Sequence[Array], u: Sequence[Array], p: Any) -> Sequence[Array]:
        """The measured level.

        Args:
            x: levels of the upper and of the lower tank, in volts.
            u: the pump voltage.
            p: the parameters.

        Returns:
            The level of the lower tank, up to the rim.
        """
        import jax.numpy as jnp

        return (jnp.minimum(x[1], p.rim),)


@dataclass(frozen=True)
class MassWithFriction(AbstractPhysics):
    """A mass that a force moves against friction; its position is measured.

        mass dv/dt = gain u - viscous v - coulomb tanh(v / creep) - stiffness q - offset,   dq/dt = v,   y = q

    The equations of the simulated plant `datasets.plants.SlidingMass`. From motion alone only the ratios to the gain
    can be found: the gain is a constant, in newtons per unit of the input.

    Args:
        mass: what is moved.
        viscous: friction per velocity.
        coulomb: friction of constant size, against the motion.
        offset: constant force, as of gravity or of an amplifier's offset.
        stiffness: of a spring at the origin; none by default.
        gain: force per unit of the input.
        creep: velocity in m/s below which the constant friction fades; samples must resolve it.
    """

    mass: float | Parameter = Parameter(1.0, 0.0, None, _MASS["mass"])
    viscous: float | Parameter = Parameter(1.0, 0.0, None, _MASS["viscous"])
    coulomb: float | Parameter = Parameter(0.1, 0.0, None, _MASS["coulomb"])
    offset: float | Parameter = Parameter(0.0, unit=_MASS["offset"])
    stiffness: float | Parameter = 0.0
    gain: float = 1.0
    creep: float = 1e-2

    states = {name: State(0.0, unit) for name, unit in SlidingMass.states}

    def derivative(self, x: Sequence[Array], u: Sequence[Array], p: Any) -> Sequence[Array]:
        """Velocity and acceleration.

        Args:
            x: position in metres and velocity in metres per second.
            u: the input.
            p: the parameters.

        Returns:
            Their derivatives per second.
        """
        return SlidingMass.derivative(p, x, u)

    def output(self, x: Sequence[Array], u: Sequence[Array], p: Any) -> Sequence[Array]:
        """The position.

        Args:
            x: position and velocity.
            u: the input.
            p: the parameters.

        Returns:
            The position in metres.
        """
        return (x[0],)


PLANTS: dict[str, type[AbstractPhysics]] = {kind.__name__: kind for kind in (CascadedTanks, MassWithFriction)}


def find_physics(physics: AbstractPhysics | str) -> AbstractPhysics:
    """A plant, or the one of that name with its own start values.

    Args:
        physics: a plant, or `CascadedTanks` or `MassWithFriction`.

    Returns:
        The plant.

    Raises:
        ConfigError: there is none of that name.
    """
    if not isinstance(physics, str):
        return physics
    if physics not in PLANTS:
        raise ConfigError(unknown_name("physics", physics, PLANTS))
    return PLANTS[physics]()


def _sqrt(level: Array) -> Array:
    """The square root with a finite slope at zero."""
    import jax.numpy as jnp

    return level / jnp.sqrt(level + SMOOTH_LEVEL)
