"""Explicit Runge-Kutta methods with a fixed step, each one a tableau."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tausid.errors import ConfigError, unknown_name
from tausid.shapes import Array, Float


@dataclass(frozen=True)
class Stepper:
    """Butcher tableau of an explicit method: `k_i = f(x + dt sum_j a_ij k_j, u(c_i))`, `x+ = x + dt sum b_i k_i`.

    Args:
        name: how the method is called in settings.
        a: stage weights, one row a stage; row i has i entries.
        b: weights of the stages in the step.
        c: where in the step each stage lies, from 0 to 1.
        order: order of convergence.
    """

    name: str
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    order: int


EULER = Stepper("euler", a=((),), b=(1.0,), c=(0.0,), order=1)
MIDPOINT = Stepper("midpoint", a=((), (0.5,)), b=(0.0, 1.0), c=(0.0, 0.5), order=2)
HEUN = Stepper("heun", a=((), (1.0,)), b=(0.5, 0.5), c=(0.0, 1.0), order=2)
RK4 = Stepper(
    "rk4",
    a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    c=(0.0, 0.5, 0.5, 1.0),
    order=4,
)

STEPPERS = {stepper.name: stepper for stepper in (EULER, MIDPOINT, HEUN, RK4)}


def get_stepper(name: str) -> Stepper:
    """The method of that name."""
    if name not in STEPPERS:
        raise ConfigError(unknown_name("stepper", name, STEPPERS))
    return STEPPERS[name]


def take_step(
    stepper: Stepper,
    derivative: Callable[[Array, Array], Array],
    input_at: Callable[[float], Array],
    x: Float[Array, "*B nx"],
    dt: Float[Array, "*B 1"],
) -> Float[Array, "*B nx"]:
    """One step of an explicit Runge-Kutta method."""
    slopes: list[Array] = []
    for row, fraction in zip(stepper.a, stepper.c, strict=True):
        slopes.append(derivative(_advance(x, dt, row, slopes), input_at(fraction)))
    return _advance(x, dt, stepper.b, slopes)


def _advance(x: Array, dt: Array, weights: tuple[float, ...], slopes: list[Array]) -> Array:
    terms = [w * k for w, k in zip(weights, slopes, strict=True) if w != 0.0]
    return x + dt * sum(terms[1:], start=terms[0]) if terms else x
