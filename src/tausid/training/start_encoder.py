"""An encoder that is fitted to known states: the linear start of Adam, and what follows Levenberg-Marquardt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from tausid.engine.networks import Network
from tausid.model.initial import Encoder
from tausid.model.state_space import StateSpace
from tausid.training.problem import Problem
from tausid.training.windows import WindowSource, make_windows

# Windows that the encoder's linear start is fitted to, at most.
ENCODER_WINDOWS = 200_000
# Ridge of the encoder's least squares, per sample of unit variance: that of single precision's rounding.
RIDGE = 1e-9


def encoder_fit(problem: Problem) -> Callable[[StateSpace, np.ndarray], StateSpace]:
    """What fits a model's encoder to the states at all samples of a problem's records."""
    source = make_windows(problem.initial_model, problem.split.train, horizon=2)
    return lambda model, states: start_encoder(model, source, lambda samples: states[samples], bend=True)


def start_encoder(
    model: StateSpace, source: WindowSource, states_at: Callable[[np.ndarray], np.ndarray], *, bend: bool = False
) -> StateSpace:
    """The model with the linear part of its encoder the least-squares map from past samples to known states."""
    initial = model.initial
    assert isinstance(initial, Encoder) and isinstance(initial.network, Network)
    every = max(1, -(-source.count // ENCODER_WINDOWS))
    index = jnp.arange(0, source.count, every)
    past_u, past_y, lag = past_of(source, index)
    n = initial.n_past
    columns = [*past_u[n - initial.nb :], *past_y[n - initial.na :], *([] if lag is None else [lag.T])]
    seen = np.concatenate([np.zeros((len(index), 0)), *map(np.asarray, columns)], axis=1)
    states = states_at(np.asarray(source.starts(index)))
    known = ~np.isnan(states).any(axis=1)
    features = initial.network.features(seen)
    count, readout = states.shape[1], np.array(initial.network.readout)
    columns_of_fit = np.concatenate([seen, features], axis=1) if bend else seen
    target = states if bend else states - features @ readout[:count].T
    fitted = _ridge(columns_of_fit[known], target[known])
    linear = np.pad(fitted[:, : seen.shape[1]], ((0, model.nx - count), (0, 0)))
    if bend:
        readout[:count] = fitted[:, seen.shape[1] :]
    network = dataclasses.replace(initial.network, linear=linear.astype(initial.network.linear.dtype)).with_readout(
        readout
    )
    return dataclasses.replace(model, initial=dataclasses.replace(initial, network=network))


@eqx.filter_jit
def past_of(source: WindowSource, index: Int[Array, "B"]) -> tuple[Array, Array, Array | None]:
    """`WindowSource.past` as one compiled program."""
    return source.past(index)


def _ridge(columns: Float[np.ndarray, "n p"], targets: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "q p"]:
    """Least squares with so little a ridge that it only tames what rounding leaves undecided."""
    p, q = columns.shape[1], targets.shape[1]
    ridge = np.sqrt(RIDGE * len(columns)) * np.eye(p)
    rows, values = np.concatenate([columns, ridge]), np.concatenate([targets, np.zeros((p, q))])
    return np.linalg.lstsq(rows, values, rcond=None)[0].T
