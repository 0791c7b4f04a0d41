"""What training minimizes: the simulation error of windows plus the penalties (eq. 14)."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from tausid.engine.engines import Engine, evaluate, rollout
from tausid.engine.integrators import FixedStep
from tausid.model.build import nonlinear_part
from tausid.model.initial import Encoder, FreeState
from tausid.model.state_space import StateSpace
from tausid.training.losses import (
    contraction_penalty,
    dae_penalty,
    negative_definite_barrier,
    sigmoid_barrier,
    simulation_error,
    weight_decay,
)
from tausid.training.windows import Windows

# Points along the trajectories of a batch at which the contraction penalty looks.
CONTRACTION_POINTS = 128
BARRIERS = {"hinge": negative_definite_barrier, "sigmoid": sigmoid_barrier}


@dataclass(frozen=True)
class Penalties:
    """Weights of the outputs and of the penalties; 0 leaves one out.

    Args:
        weight_decay: lambda_W.
        dae: lambda_D.
        barrier: lambda_N.
        barrier_form: `hinge` or `sigmoid`.
        nonlinear_decay: weight decay of the nonlinear parts alone.
        contraction: lambda_C.
        outputs: weight of each output's squared error, with a mean of one; None is equally.
    """

    weight_decay: float = 0.0
    dae: float = 0.0
    barrier: float = 0.0
    barrier_form: str = "hinge"
    nonlinear_decay: float = 0.0
    contraction: float = 0.0
    outputs: tuple[float, ...] | None = None


def objective(
    model: StateSpace, windows: Windows, penalties: Penalties, integrator: FixedStep, engine: Engine
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`error + lambda_W ||theta||^2 + lambda_D d^2 + lambda_N barrier(A) + lambda_C contraction`, and the error."""
    x0 = model.initial(windows.past_u, windows.past_y, windows.record, windows.lag)
    x = rollout(model.field, x0, windows.u, windows.dt, integrator, engine)
    along = jnp.concatenate([x, windows.u], axis=-1)  # (J, B, nx + nu)
    y_hat = evaluate(model.g, along if model.feedthrough else x, engine)
    y_hat = model.limit(model.with_known_output(y_hat, x, windows.u))
    error = simulation_error(y_hat, windows.y, windows.measured, penalties.outputs)
    total = error + penalties.weight_decay * weight_decay(decayed_weights(model))
    if model.dae is not None:
        total = total + penalties.dae * dae_penalty(model.dae(along))
    if penalties.barrier > 0:
        total = total + penalties.barrier * BARRIERS[penalties.barrier_form](model.A)
    if penalties.nonlinear_decay > 0:
        total = total + penalties.nonlinear_decay * weight_decay(nonlinear_weights(model))
    if penalties.contraction > 0:
        total = total + penalties.contraction * contraction_penalty(state_jacobians(model, along))
    return total, error


def state_jacobians(model: StateSpace, along: Float[Array, "J B n"]) -> Float[Array, "points nx nx"]:
    """`df/dx`, normalized, at points spread evenly over trajectories."""
    flat = along.reshape(-1, along.shape[-1])
    chosen = np.linspace(0, len(flat) - 1, min(len(flat), CONTRACTION_POINTS)).round().astype(np.int32)
    x, u = flat[chosen, : model.nx], flat[chosen, model.nx :]
    return jax.vmap(jax.jacfwd(model.derivative))(x, u) * jnp.mean(model.tau.seconds)


def nonlinear_weights(model: StateSpace) -> PyTree[Array]:
    """The arrays that `nonlinear_decay` acts on: the nonlinear parts of f, g and the encoder."""
    encoder = nonlinear_part(model.initial.network) if isinstance(model.initial, Encoder) else None
    return nonlinear_part(model.f), nonlinear_part(model.g), encoder


def decayed_weights(model: StateSpace) -> PyTree[Array]:
    """The arrays that weight decay acts on: all networks, but neither tau nor free initial states."""
    initial = None if isinstance(model.initial, FreeState) else model.initial
    return (model.f, model.g, initial, model.dae)


def trainable(model: StateSpace) -> PyTree[bool]:
    """Which leaves of the model training may change: all arrays, of tau its factor where it is trainable, of
    known equations their parameters where these are.
    """
    arrays = jax.tree.map(eqx.is_inexact_array, model)
    arrays = eqx.tree_at(lambda m: (m.tau.factor, m.tau.start), arrays, (model.tau.trainable, False))
    if model.physics is None:
        return arrays
    fixed = jax.tree.map(lambda _: False, arrays.physics.units)
    return eqx.tree_at(lambda m: (m.physics.free, m.physics.units), arrays, (model.physics.trainable, fixed))
