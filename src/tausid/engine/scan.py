"""The rollout for any vector field on any device: a `lax.scan` over samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tausid.engine.holds import held_input, hold_slopes
from tausid.engine.integrators import FixedStep
from tausid.engine.steppers import get_stepper, take_step
from tausid.engine.tree import register

register()


def rollout_scan(
    field: Callable[[Array, Array], Array],
    x0: Float[Array, "B nx"],
    u: Float[Array, "J B nu"],
    dt: Float[Array, "J-1 B"],
    integrator: FixedStep,
) -> Float[Array, "J B nx"]:
    """Integrate a batch of trajectories with a fixed step (see the contract in `tausid.engine`)."""
    step = make_step(field, integrator, u.shape[-1])

    def advance(x: Array, sample: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        x = step(x, *sample)
        return x, x

    _, states = jax.lax.scan(advance, x0, (u[:-1], u[1:], dt))
    return jnp.concatenate([x0[None], states])


def make_step(
    field: Callable[[Array, Array], Array], integrator: FixedStep, nu: int
) -> Callable[[Array, Array, Array, Array], Array]:
    """From one sample to the next."""
    stepper = get_stepper(integrator.stepper)
    slopes = hold_slopes(integrator.hold, nu)
    n = integrator.substeps

    def input_at(u_now: Array, u_next: Array, substep: int, fraction: float) -> Array:
        return held_input(slopes, u_now, u_next, (substep + fraction) / n)

    def step(x: Array, u_now: Array, u_next: Array, dt: Array) -> Array:
        h = dt[..., None] / n
        for i in range(n):
            x = take_step(stepper, field, partial(input_at, u_now, u_next, i), x, h)
        return x

    return step
