"""The rollout through diffrax's adaptive solver, to check a fixed step with; an optional dependency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tausid.engine.holds import held_input, hold_slopes
from tausid.engine.integrators import Adaptive
from tausid.errors import MissingExtraError


def rollout_adaptive(
    field: Callable[[Array, Array], Array],
    x0: Float[Array, "B nx"],
    u: Float[Array, "J B nu"],
    dt: Float[Array, "J-1 B"],
    integrator: Adaptive,
) -> Float[Array, "J B nx"]:
    """Integrate a batch of trajectories with error control, sample by sample, so that no step crosses a jump of u."""
    diffrax = _import_diffrax()
    slopes = hold_slopes(integrator.hold, u.shape[-1])
    solver, control = diffrax.Tsit5(), diffrax.PIDController(rtol=integrator.rtol, atol=integrator.atol)

    def slope(s: Array, x: Array, sample: tuple[Array, Array, Array]) -> Array:
        u_now, u_next, step = sample
        return step * field(x, held_input(slopes, u_now, u_next, s))

    def advance(x: Array, sample: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(slope), solver, t0=0.0, t1=1.0, dt0=None, y0=x, args=sample,
            stepsize_controller=control, max_steps=integrator.max_steps, throw=False,
        )  # fmt: skip
        good = solution.result == diffrax.RESULTS.successful
        x = jnp.where(good, solution.ys[0], jnp.nan)
        return x, x

    def one(x: Array, inputs: Array, steps: Array) -> Array:
        _, states = jax.lax.scan(advance, x, (inputs[:-1], inputs[1:], steps))
        return jnp.concatenate([x[None], states])

    return jax.vmap(one, in_axes=(0, 1, 1), out_axes=1)(x0, u, dt)


def _import_diffrax() -> Any:
    try:
        import diffrax
    except ImportError:
        raise MissingExtraError(
            "simulation with `Adaptive` needs diffrax, which is not installed. "
            'Install it with pip install "tausid[adaptive]".'
        ) from None
    return diffrax
