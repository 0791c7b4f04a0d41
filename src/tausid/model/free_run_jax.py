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
from tausid.model.state_priors import priors
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

    known = model.initial if isinstance(model.initial, FreeState) else FreeState.unknown(np.zeros((0, model.nx)))
    arrays = (jnp.asarray(u), jnp.asarray(np.nan_to_num(y)), jnp.asarray(~np.isnan(y)), jnp.asarray(dt))

    def of_seen(states: np.ndarray, count: int) -> np.ndarray:
        return _finite(_errors_of_all(model, jnp.asarray(states), *arrays, integrator))

    def solve(start: np.ndarray, center: np.ndarray, tightness: np.ndarray) -> Any:
        def residuals(x0: np.ndarray) -> np.ndarray:
            errors = _finite(_errors(model, jnp.asarray(x0), *arrays, integrator))
            return np.concatenate([errors, tightness @ (x0 - center)])

        def jacobian(x0: np.ndarray) -> np.ndarray:
            slopes = np.asarray(_jacobian(model, jnp.asarray(x0), *arrays, integrator), float)
            return np.concatenate([np.nan_to_num(slopes), tightness])

        # Single-precision residuals: tolerances below 1e-6 would only chase rounding.
        return least_squares(residuals, start, jac=jacobian, xtol=1e-6, ftol=1e-6, gtol=1e-6)

    prior = priors(known, of_seen, len(u), len(u))  # at once: another number of samples would be compiled once more
    starts = [np.asarray(guess, float), *prior.start[1:]]
    found = [solve(*each) for each in zip(starts, prior.center, prior.tightness, strict=True)]
    curvature = np.stack([each.jac.T @ each.jac for each in found])
    evidence = prior.log_evidence(np.array([2 * each.cost for each in found]), curvature)
    return np.asarray(found[int(np.argmax(evidence))].x)


def _finite(residuals: Array) -> np.ndarray:
    return np.nan_to_num(np.asarray(residuals, float), nan=LOST, posinf=LOST, neginf=-LOST)


@eqx.filter_jit
def _errors(
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
    return jnp.where(measured, model.output(x, u) - y, 0.0).ravel()


@eqx.filter_jit
def _errors_of_all(model: StateSpace, states: Float[Array, "n nx"], *arguments: Any) -> Array:
    return jax.vmap(lambda x0: _errors(model, x0, *arguments))(states)


_jacobian = eqx.filter_jit(jax.jacfwd(_errors, argnums=1))
