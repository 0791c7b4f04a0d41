"""Free-run simulation of a whole record in normalized units: no measured output enters after the start.

By the compiled library where it supports the model, in double precision; by JAX elsewhere.
"""

from __future__ import annotations

import numpy as np

from tausid.engine import compiled
from tausid.engine.choice import Engine
from tausid.engine.integrators import FixedStep, Integrator
from tausid.engine.layout import why_not
from tausid.engine.library import missing
from tausid.model.initial import FreeState
from tausid.model.state_estimate import SimulationError, find_state
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
    if isinstance(integrator, FixedStep) and why_not_compiled(model, engine) is None:
        return compiled.simulate(model.f, model.g, rate_of(model), model.limits, integrator, x0, u, dt)
    from tausid.model import free_run_jax

    x, y = free_run_jax.run(model, x0, u, dt, integrator, engine)
    return np.asarray(x, float), np.asarray(y, float)


def one_step(model: StateSpace, integrator: FixedStep, engine: Engine) -> compiled.OneStep | None:
    """A step that is taken again and again by the compiled library; None where that does not simulate the model."""
    if why_not_compiled(model, engine) is not None:
        return None
    system = compiled.System.of(model.f, model.g, rate_of(model), model.limits, integrator)
    return compiled.OneStep(system, system.pack(model.f, model.g))


def estimate_initial_state(
    model: StateSpace,
    u: Float[np.ndarray, "N nu"],
    y: Float[np.ndarray, "N ny"],
    dt: Float[np.ndarray, "N-1"],
    integrator: FixedStep,
    guess: Float[np.ndarray, "nx"],
    engine: Engine,
) -> Float[np.ndarray, "nx"]:
    """The initial state that makes the simulation of these samples fit best, by nonlinear least squares.

    `min over x0 of sum (y - y_hat)^2 + |tightness (x0 - center)|^2` over the measured samples (eq. 3 with theta fixed),
    with `center` and `tightness` those of all states in training, or of those that explain the samples, whichever make
    the samples more likely.
    """
    if why_not_compiled(model, engine) is not None:
        from tausid.model import free_run_jax

        return free_run_jax.estimate_initial_state(model, u, y, dt, integrator, guess)
    system = compiled.System.of(model.f, model.g, rate_of(model), model.limits, integrator)
    samples = compiled.Samples.join([u], [y], [dt])
    free = model.initial if isinstance(model.initial, FreeState) else FreeState.unknown(np.zeros((0, model.nx)))
    return find_state(SimulationError(system, system.pack(model.f, model.g), samples), guess, free)


def encode(
    model: StateSpace,
    past_u: Float[np.ndarray, "n_past nu"],
    past_y: Float[np.ndarray, "n_past ny"],
    lag: Float[np.ndarray, "n_past"] | None = None,
) -> Float[np.ndarray, "nx"]:
    """The encoder's state after one stretch of past samples."""
    columns = None if lag is None else lag[:, None]
    return model.initial(past_u[:, None], past_y[:, None], np.zeros(1, int), columns)[0]


def why_not_compiled(model: StateSpace, engine: Engine) -> str | None:
    """Why the compiled library does not simulate a model, in words."""
    if engine.name == "scan":
        return "the model is to be computed by JAX"
    if model.physics is not None:
        return "known equations are computed by JAX"
    return missing() or why_not(model.f, model.g)


def rate_of(model: StateSpace) -> np.ndarray:
    """1 / tau, one number or one per state."""
    return 1.0 / np.atleast_1d(model.tau.now)
