"""An untrained model from its settings: random weights, and where each part starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from tausid.engine.networks import MLP, AbstractNetwork, Polynomial, ResidualMLP, Zero
from tausid.errors import ConfigError
from tausid.model.initial import AbstractInitialState, Encoder, FreeState
from tausid.model.physics import KnownPart
from tausid.model.state_space import StateSpace, with_A
from tausid.model.structure import Structure
from tausid.model.tau import Tau


@dataclass(frozen=True)
class Weights:
    """How random weights are drawn.

    Args:
        weight_range: weights are uniform in [-weight_range, weight_range].
        bias_range: biases are uniform in [-bias_range, bias_range].
        A: what is added to the random A: `zero-mean` for nothing, `-I`, or `-MM'` with M uniform in [-1, 1] / sqrt(nx).
        nonlinear: output layers of the nonlinear parts: `random`, or `zero`.
    """

    weight_range: float = 0.01
    bias_range: float = 0.0
    A: str = "-I"
    nonlinear: str = "random"


def build_state_space(
    structure: Structure,
    tau: Tau,
    weights: Weights,
    *,
    nu: int,
    ny: int,
    n_records: int,
    rng: np.random.Generator,
    physics: KnownPart | None = None,
) -> StateSpace:
    """An untrained model with random weights; a network that corrects known equations starts at zero."""
    nx = structure.order
    if tau.factor.shape not in ((), (nx,)):
        raise ConfigError(
            f"`tau` must be one number or one per state; got {tau.factor.size} for {nx} states. "
            f"Give one number, or {nx}."
        )
    f = make_network(structure, weights, nx + nu, nx, rng)
    if weights.A != "zero-mean":
        f = with_A(f, f.linear[:, :nx] + _stable_matrix(weights.A, nx, rng))
    g = make_network(structure, weights, nx + nu if structure.feedthrough else nx, ny, rng)
    if structure.nonlinear_g is False:
        g = _linear_only(g)
    if physics is not None:
        f = Zero(nx + nu, nx) if structure.correction == "none" else start_at_zero(f, physics.nx)
        g = Zero(nx + nu, ny)
    return StateSpace(
        f=f,
        g=g,
        initial=_make_initial(structure, weights, nu, ny, n_records, rng),
        tau=tau,
        dae=_make_mlp(structure, weights, nx + nu, 1, rng) if structure.dae else None,
        physics=physics,
    )


def make_network(
    structure: Structure, weights: Weights, n_in: int, n_out: int, rng: np.random.Generator
) -> AbstractNetwork:
    """A network of the structure's kind with random weights."""
    network: AbstractNetwork
    if structure.network == "polynomial":
        network = Polynomial.random(rng, n_in, n_out, degree=structure.degree, weight_range=weights.weight_range)
    else:
        network = ResidualMLP.random(
            rng,
            n_in,
            n_out,
            hidden=structure.hidden,
            activation=structure.activation,
            weight_range=weights.weight_range,
            bias_range=weights.bias_range,
        )
    return _linear_only(network) if weights.nonlinear == "zero" else network


def start_at_zero(network: AbstractNetwork, n_rows: int) -> AbstractNetwork:
    """The network with its first values zero everywhere; the others, and what lies before the last layer, stay."""
    for where in (lambda n: n.linear, readout_of(network)):
        network = eqx.tree_at(where, network, where(network).at[:n_rows].set(0.0))
    return network


def nonlinear_part(network: AbstractNetwork | MLP) -> PyTree:
    """Everything of a network but its linear part."""
    if isinstance(network, Polynomial):
        return network.coefficients
    return network.mlp if isinstance(network, ResidualMLP) else network


def readout_of(network: AbstractNetwork) -> Callable[[Any], Array]:
    """Where a network keeps its `readout`, for `eqx.tree_at`."""
    return (lambda n: n.coefficients) if isinstance(network, Polynomial) else (lambda n: n.mlp.weights[-1])


def _linear_only(network: AbstractNetwork) -> AbstractNetwork:
    """With its last nonlinear layer at zero; the gradient of that layer is not zero."""
    return eqx.tree_at(readout_of(network), network, replace_fn=jnp.zeros_like)


def _stable_matrix(kind: str, nx: int, rng: np.random.Generator) -> Float[np.ndarray, "nx nx"]:
    if kind == "-I":
        return -np.eye(nx)
    M = rng.uniform(-1.0, 1.0, (nx, nx)) / np.sqrt(nx)
    return -M @ M.T


def _make_initial(
    structure: Structure, weights: Weights, nu: int, ny: int, n_records: int, rng: np.random.Generator
) -> AbstractInitialState:
    if structure.initial_state == "free":
        return FreeState.unknown(jnp.zeros((n_records, structure.order)))
    sees_time = structure.clock == "irregular"
    n_in = structure.na * ny + structure.nb * nu + sees_time * max(structure.na, structure.nb)
    make = _make_mlp if structure.encoder == "mlp" else make_network
    return Encoder(make(structure, weights, n_in, structure.order, rng), structure.na, structure.nb, sees_time)


def _make_mlp(structure: Structure, weights: Weights, n_in: int, n_out: int, rng: np.random.Generator) -> MLP:
    return MLP.random(
        rng,
        (n_in, *structure.hidden, n_out),
        activation=structure.activation,
        weight_range=weights.weight_range,
        output_bias=True,
        bias_range=weights.bias_range,
    )
