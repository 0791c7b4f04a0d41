"""An untrained model from its settings: random weights, and where each part starts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tausid.engine.networks import MLP, Network, uniform
from tausid.errors import ConfigError
from tausid.model.initial import Encoder, FreeState, InitialState
from tausid.model.physics import KnownPart
from tausid.model.state_space import StateSpace
from tausid.model.structure import Structure
from tausid.model.tau import Tau
from tausid.shapes import Float


@dataclass(frozen=True)
class Weights:
    """How random weights are drawn.

    Args:
        weight_range: weights are uniform in [-weight_range, weight_range].
        bias_range: biases are uniform in [-bias_range, bias_range].
        A: what is added to the random A: `zero-mean` for nothing, `-I`, or `-MM'` with M uniform in [-1, 1] / sqrt(nx).
        nonlinear: output layers of the nonlinear parts: `random`, or `zero`.
        dtype: precision of all arrays.
    """

    weight_range: float = 0.01
    bias_range: float = 0.0
    A: str = "-I"
    nonlinear: str = "random"
    dtype: type = np.float64


def build_state_space(
    structure: Structure,
    tau: Tau,
    weights: Weights,
    *,
    nu: int,
    ny: int,
    n_records: int,
    rng: np.random.Generator | None,
    physics: KnownPart | None = None,
) -> StateSpace:
    """An untrained model with random weights; a network that corrects known equations starts at zero.

    Without a generator nothing is drawn and next to nothing allocated: a skeleton, which the arrays of a file fill.
    """
    nx = structure.order
    if tau.factor.shape not in ((), (nx,)):
        raise ConfigError(
            f"`tau` must be one number or one per state; got {tau.factor.size} for {nx} states. "
            f"Give one number, or {nx}."
        )
    f = _make_network(structure, weights, nx + nu, nx, rng, bias=structure.bias)
    if weights.A != "zero-mean":
        f = _with_stable_A(f, weights.A, rng)
    n_seen = nx + nu if structure.feedthrough else nx
    g = _make_network(
        structure, weights, n_seen, ny, rng, bias=structure.bias, linear_only=structure.nonlinear_g is False
    )
    if physics is not None:
        f = zero_network(nx + nu, nx) if structure.correction == "none" else _start_at_zero(f, physics.nx, rng)
        g = zero_network(nx + nu, ny)
    return StateSpace(
        f=f,
        g=g,
        initial=_make_initial(structure, weights, nu, ny, n_records, rng),
        tau=tau,
        dae=_make_mlp(structure, weights, nx + nu, 1, rng) if structure.dae else None,
        physics=physics,
    )


def zero_network(n_in: int, n_out: int) -> Network:
    """Zero everywhere: where known equations need no correction."""
    return Network(np.zeros((n_out, n_in)))


def _make_network(
    structure: Structure,
    weights: Weights,
    n_in: int,
    n_out: int,
    rng: np.random.Generator | None,
    *,
    bias: bool = False,
    linear_only: bool = False,
) -> Network:
    """A network of the structure's kind with random weights."""
    network = Network.random(
        rng,
        n_in,
        n_out,
        hidden=() if linear_only or structure.network == "polynomial" else structure.hidden,
        activation=structure.activation,
        degree=1 if linear_only or structure.network == "mlp" else structure.degree,
        bias=bias,
        weight_range=weights.weight_range,
        bias_range=weights.bias_range,
        dtype=weights.dtype,
    )
    return network.with_readout(np.zeros_like(network.readout)) if weights.nonlinear == "zero" else network


def _with_stable_A(f: Network, kind: str, rng: np.random.Generator | None) -> Network:
    """The state network with a matrix added to A, so that the untrained model settles."""
    nx = f.linear.shape[0]
    linear = f.linear.copy()
    linear[:, :nx] += _stable_matrix(kind, nx, rng).astype(linear.dtype)
    return replace(f, linear=linear)


def _stable_matrix(kind: str, nx: int, rng: np.random.Generator | None) -> Float[np.ndarray, "nx nx"]:
    if kind == "-I" or rng is None:
        return -np.eye(nx)
    M = rng.uniform(-1.0, 1.0, (nx, nx)) / np.sqrt(nx)
    return -M @ M.T


def _start_at_zero(network: Network, n_rows: int, rng: np.random.Generator | None) -> Network:
    """The network with its first values zero everywhere; the others, and what lies before the last layer, stay."""
    if rng is None:
        return network
    zero = (np.arange(len(network.linear)) < n_rows)[:, None]
    started = replace(network, linear=np.where(zero, 0.0, network.linear))
    return started.with_readout(np.where(zero, 0.0, network.readout))


def _make_initial(
    structure: Structure, weights: Weights, nu: int, ny: int, n_records: int, rng: np.random.Generator | None
) -> InitialState:
    if structure.initial_state == "free":
        return FreeState.unknown(uniform(rng, (n_records, structure.order), 0.0, weights.dtype))
    sees_time = structure.clock == "irregular"
    n_in = structure.na * ny + structure.nb * nu + sees_time * max(structure.na, structure.nb)
    make = _make_mlp if structure.encoder == "mlp" else _make_network
    return Encoder(make(structure, weights, n_in, structure.order, rng), structure.na, structure.nb, sees_time)


def _make_mlp(structure: Structure, weights: Weights, n_in: int, n_out: int, rng: np.random.Generator | None) -> MLP:
    return MLP.random(
        rng,
        (n_in, *structure.hidden, n_out),
        activation=structure.activation,
        weight_range=weights.weight_range,
        bias_range=weights.bias_range,
        dtype=weights.dtype,
    )
