"""Free-run simulation of a whole record in normalized units: no measured output enters after the start."""

from __future__ import annotations

import numpy as np

from tausid.engine.choice import Engine
from tausid.engine.integrators import FixedStep, Integrator
from tausid.model.state_space import StateSpace
from tausid.shapes import Float


def run(
    model: StateSpace,
    x0: Float[np.ndarray, "nx"],
    u: Float[np.ndarray, "N nu"],
    dt: Float[np.ndarray, "N-1"],
    integrator: Integrator,
    engine: Engine,
) -> tuple[Float[np.ndarray, "N nx"], Float[np.ndarray, "N ny"]]:
    """States and outputs of one trajectory from its initial state."""
    from tausid.model import free_run_jax

    x, y = free_run_jax.run(model, x0, u, dt, integrator, engine)
    return np.asarray(x, float), np.asarray(y, float)


def encode(
    model: StateSpace,
    past_u: Float[np.ndarray, "n_past nu"],
    past_y: Float[np.ndarray, "n_past ny"],
    lag: Float[np.ndarray, "n_past"] | None = None,
) -> Float[np.ndarray, "nx"]:
    """The encoder's state after one stretch of past samples."""
    from tausid.model import free_run_jax

    return np.asarray(free_run_jax.encode(model, past_u, past_y, lag), float)


def estimate_initial_state(
    model: StateSpace,
    u: Float[np.ndarray, "N nu"],
    y: Float[np.ndarray, "N ny"],
    dt: Float[np.ndarray, "N-1"],
    integrator: FixedStep,
    guess: Float[np.ndarray, "nx"],
) -> Float[np.ndarray, "nx"]:
    """The initial state that makes the simulation of these samples fit best, by nonlinear least squares."""
    from tausid.model import free_run_jax

    return free_run_jax.estimate_initial_state(model, u, y, dt, integrator, guess)
