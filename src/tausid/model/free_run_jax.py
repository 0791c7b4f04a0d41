"""Free runs by JAX: of known equations, with an adaptive solver, and of what the compiled library does not have."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from tausid.engine.choice import Engine
from tausid.engine.engines import rollout
from tausid.engine.integrators import Adaptive, FixedStep, Integrator
from tausid.engine.scan import rollout_scan
from tausid.model.initial import FreeState
from tausid.model.state_estimate import MUCH_LOWER, TRIED_SEEN
from tausid.model.state_space import StateSpace
from tausid.shapes import Array

# Residual of a sample at which the simulation diverged; measured outputs have a deviation of 1.
LOST = 1e6
# Outputs of trajectories longer than this are computed in pieces: 64 hidden units of 2^17 samples are 32 MB a layer.
LONG, PIECE = 2**17, 2**14


@eqx.filter_jit
def run(
    model: StateSpace,
    x0: Float[Array, "nx"],
    u: Float[Array, "N nu"],
    dt: Float[Array, "N-1"],
    integrator: Integrator,
    engine: Engine,
) -> tuple[Float[Array, "N nx"], Float[Array, "N ny"]]:
    """States and outputs of one trajectory from its initial state."""
    batch = (x0[None], u[:, None], dt[:, None])
    if isinstance(integrator, Adaptive):
        from tausid.engine.adaptive import rollout_adaptive

        x = rollout_adaptive(model.field, *batch, integrator)[:, 0]
    else:
        x = rollout(model.field, *batch, integrator, engine)[:, 0]
    return x, _outputs(model, x, u)


def _outputs(model: StateSpace, x: Float[Array, "N nx"], u: Float[Array, "N nu"]) -> Float[Array, "N ny"]:
    """The outputs along a trajectory, piece by piece where the hidden layers of all samples would need much memory."""
    samples = x.shape[0]
    if samples <= LONG:
        return model.output(x, u)
    pieces = -(-samples // PIECE)
    filled = (jnp.pad(a, ((0, pieces * PIECE - samples), (0, 0))).reshape(pieces, PIECE, a.shape[1]) for a in (x, u))
    y = jax.lax.map(lambda piece: model.output(*piece), tuple(filled))
    return y.reshape(pieces * PIECE, y.shape[-1])[:samples]


def estimate_initial_state(
    model: StateSpace,
    u: Float[np.ndarray, "N nu"],
    y: Float[np.ndarray, "N ny"],
    dt: Float[np.ndarray, "N-1"],
    integrator: FixedStep,
    guess: Float[np.ndarray, "nx"],
) -> Float[np.ndarray, "nx"]:
    """As `free_run.estimate_initial_state`, by Gauss-Newton steps in a trust region."""
    from scipy.optimize import least_squares

    arrays = (jnp.asarray(u), jnp.asarray(np.nan_to_num(y)), jnp.asarray(~np.isnan(y)), jnp.asarray(dt))

    def residuals(x0: np.ndarray) -> np.ndarray:
        return _finite(_residuals(model, jnp.asarray(x0), *arrays, integrator))

    def jacobian(x0: np.ndarray) -> np.ndarray:
        return np.nan_to_num(np.asarray(_jacobian(model, jnp.asarray(x0), *arrays, integrator), float))

    def solve(start: np.ndarray) -> Any:
        # Single-precision residuals: tolerances below 1e-6 would only chase rounding.
        return least_squares(residuals, start, jac=jacobian, xtol=1e-6, ftol=1e-6, gtol=1e-6)

    found = solve(guess)
    seen = np.asarray(model.initial.seen, float) if isinstance(model.initial, FreeState) else np.zeros(0)
    if seen.any():  # zeros stand for none
        costs = np.sum(_finite(_residuals_of_all(model, jnp.asarray(seen), *arrays, integrator)) ** 2, axis=1)
        for start in seen[np.argsort(costs, kind="stable")[:TRIED_SEEN]]:
            other = solve(start)
            found = other if other.cost < MUCH_LOWER * found.cost else found
    return np.asarray(found.x)


def _finite(residuals: Array) -> np.ndarray:
    return np.nan_to_num(np.asarray(residuals, float), nan=LOST, posinf=LOST, neginf=-LOST)


@eqx.filter_jit
def _residuals(
    model: StateSpace,
    x0: Array,
    u: Array,
    y: Array,
    measured: Bool[Array, "N ny"],
    dt: Array,
    integrator: FixedStep,
) -> Array:
    # Forward mode is cheap for a few states, and the fused engine has only reverse mode.
    x = rollout_scan(model.field, x0[None], u[:, None], dt[:, None], integrator)[:, 0]
    expected, tightness = _expected(model)
    errors = jnp.where(measured, model.output(x, u) - y, 0.0).ravel()
    return jnp.concatenate([errors, tightness @ (x0 - expected)])


def _expected(model: StateSpace) -> tuple[Float[Array, "nx"], Float[Array, "nx nx"]]:
    """What the model knows of initial states: nothing, where it has an encoder."""
    initial = model.initial
    if isinstance(initial, FreeState):
        return initial.expected, initial.tightness
    return jnp.zeros(model.nx), jnp.zeros((model.nx, model.nx))


@eqx.filter_jit
def _residuals_of_all(model: StateSpace, states: Float[Array, "n nx"], *arguments: Any) -> Array:
    return jax.vmap(lambda x0: _residuals(model, x0, *arguments))(states)


_jacobian = eqx.filter_jit(jax.jacfwd(_residuals, argnums=1))
