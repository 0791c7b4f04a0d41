"""An untrained model from its settings: random weights, and where each part starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from tausid.engine.networks import MLP, AbstractNetwork, Polynomial, ResidualMLP, Zero
from tausid.errors import ConfigError
from tausid.model.config import Config
from tausid.model.initial import AbstractInitialState, Encoder, FreeState
from tausid.model.physics import KnownPart
from tausid.model.state_space import StateSpace, free_parameters, with_A
from tausid.model.tau import Tau


def build_state_space(
    config: Config,
    tau: Tau,
    *,
    nu: int,
    ny: int,
    n_records: int,
    rng: np.random.Generator,
    physics: KnownPart | None = None,
) -> StateSpace:
    """An untrained model with random weights."""
    nx = config.order
    if tau.factor.shape not in ((), (nx,)):
        raise ConfigError(
            f"`tau` must be one number or one per state; got {tau.factor.size} for {nx} states. "
            f"Give one number, or {nx}."
        )
    f = make_network(config, nx + nu, nx, rng)
    if config.A_start != "zero-mean":
        f = with_A(f, f.linear[:, :nx] + _stable_matrix(config, rng))
    if config.A_form == "negative-definite":
        f = with_A(f, free_parameters(np.asarray(f.linear[:, :nx])))
    g = make_network(config, nx + nu if config.feedthrough else nx, ny, rng)
    if physics is not None:
        f = Zero(nx + nu, nx) if config.correction == "none" else start_at_zero(f, physics.nx)
        g = Zero(nx + nu, ny)
    return StateSpace(
        f=f,
        g=g,
        initial=_make_initial(config, nu, ny, n_records, rng),
        tau=tau,
        dae=_make_mlp(config, nx + nu, 1, rng) if config.dae_weight > 0 else None,
        A_form=config.A_form,
        physics=physics,
    )


def make_network(config: Config, n_in: int, n_out: int, rng: np.random.Generator) -> AbstractNetwork:
    """A network of the configured kind with random weights."""
    if config.network == "polynomial":
        polynomial = Polynomial.random(rng, n_in, n_out, degree=config.degree, weight_range=config.weight_range)
        return _grown_from_zero(polynomial, config)
    network = ResidualMLP.random(
        rng,
        n_in,
        n_out,
        hidden=config.hidden,
        activation=config.activation,
        weight_range=config.weight_range,
        bias_range=config.bias_range,
    )
    return _grown_from_zero(network, config)


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


def _grown_from_zero(network: AbstractNetwork, config: Config) -> AbstractNetwork:
    """With its last nonlinear layer at zero, where that is asked for: the gradient of that layer is not zero."""
    if config.nonlinear_start != "zero":
        return network
    return eqx.tree_at(readout_of(network), network, replace_fn=jnp.zeros_like)


def _stable_matrix(config: Config, rng: np.random.Generator) -> Float[np.ndarray, "nx nx"]:
    """Where A starts, before the small random weights: -I, or -MM' with a random M."""
    nx = config.order
    if config.A_start == "-I":
        return -np.eye(nx)
    M = rng.uniform(-1.0, 1.0, (nx, nx)) / np.sqrt(nx)
    return -M @ M.T


def _make_initial(config: Config, nu: int, ny: int, n_records: int, rng: np.random.Generator) -> AbstractInitialState:
    if config.initial_state == "free":
        return FreeState.unknown(jnp.zeros((n_records, config.order)))
    sees_time = config.clock == "irregular"
    n_in = config.na * ny + config.nb * nu + sees_time * max(config.na, config.nb)
    make = _make_mlp if config.encoder == "mlp" else make_network
    return Encoder(make(config, n_in, config.order, rng), config.na, config.nb, sees_time)


def _make_mlp(config: Config, n_in: int, n_out: int, rng: np.random.Generator) -> MLP:
    return MLP.random(
        rng,
        (n_in, *config.hidden, n_out),
        activation=config.activation,
        weight_range=config.weight_range,
        output_bias=True,
        bias_range=config.bias_range,
    )
