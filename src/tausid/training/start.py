"""Where training starts: tau and, if asked for, the weights, from a linear approximation of the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from tausid.data.clocks import median_step
from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.engine.networks import Network
from tausid.errors import ConfigError, DataError, unknown_name
from tausid.linear import LinearModel, estimate_bla
from tausid.linear.tau_estimation import LINEAR_METHODS, TauEstimate, linear_records, tau_of_model, tau_of_outputs
from tausid.model.initial import Encoder, FreeState
from tausid.model.state_space import StateSpace
from tausid.model.structure import AUTO
from tausid.model.tau import Tau
from tausid.shapes import Array
from tausid.training.parts import FromLinear
from tausid.training.recipe import Recipe
from tausid.training.windows import WindowSource

# Where a trained tau starts by itself: Ts/tau = 0.1, as in the paper.
TRAINED_START = 0.1
# Windows that the encoder's linear start is fitted to, at most.
ENCODER_WINDOWS = 200_000
# Ridge of the encoder's least squares, per sample of unit variance: that of single precision's rounding.
RIDGE = 1e-9
AnyTau = float | Sequence[float] | str | Tau | TauEstimate
FROM_TENTH = ("trained", "trained-per-state")
TAU_NAMES = (*LINEAR_METHODS, *FROM_TENTH, "bla-trained")


@dataclass(frozen=True, eq=False)
class Start:
    """Tau to start with, and the linear approximation where one was needed.

    Args:
        tau: the normalization constant.
        bla: the linear approximation of the training records, or None.
    """

    tau: Tau
    bla: LinearModel | None


def find_start(tau: AnyTau, records: Sequence[Record], recipe: Recipe, bla: LinearModel | None = None) -> Start:
    """Tau as it was given, or estimated from the training records; the linear approximation, if it is needed."""
    if isinstance(tau, str):
        return _named_start(tau, records, recipe, bla)
    if bla is None and isinstance(recipe.start, FromLinear):
        bla = approximate(records, recipe)
    return Start(as_tau(tau), bla)


def as_tau(tau: float | Sequence[float] | Tau | TauEstimate) -> Tau:
    """A given tau: seconds, one or one per state, an estimate, or a `Tau`."""
    if isinstance(tau, TauEstimate):
        return Tau(tau.tau, source=tau.method)
    return tau if isinstance(tau, Tau) else Tau(tau)


def _named_start(name: str, records: Sequence[Record], recipe: Recipe, bla: LinearModel | None) -> Start:
    if name not in TAU_NAMES:
        raise ConfigError(unknown_name("tau", name, TAU_NAMES) + " Or give seconds.")
    method, from_linear = name.removesuffix("-trained"), isinstance(recipe.start, FromLinear)
    if name not in FROM_TENTH and records[0].nu == 0 and not from_linear:
        return Start(Tau(tau_of_outputs(records), trainable=name != method, source="outputs"), None)
    if bla is None and (name not in FROM_TENTH or from_linear):
        bla = approximate(records, recipe)
    if bla is None or name in FROM_TENTH:
        shape = (recipe.structure.order,) if name == "trained-per-state" else ()
        start = np.full(shape, median_step(records) / TRAINED_START)
        return Start(Tau(start, trainable=True, source="Ts/tau = 0.1"), bla)
    seconds, _ = tau_of_model(bla, linear_records(records, hold=bla.hold), method=method, x0=bla.x0)
    return Start(Tau(seconds, trainable=name != method, source=method), bla)


def approximate(records: Sequence[Record], recipe: Recipe, order: int | None = None) -> LinearModel:
    """The best linear approximation with at most as many states as the model."""
    holds, nx = recipe.integration.hold, recipe.structure.nx
    hold = "first" if set(holds if isinstance(holds, tuple) else [holds]) == {"first"} else "zero"
    feedthrough = recipe.structure.feedthrough or hold == "first"
    Scaling.from_records(records)  # a constant channel is in the way of every model, and says so itself
    try:
        usable = linear_records(records, hold=hold)
        bla = estimate_bla(usable, nx=order or "auto", hold=hold, feedthrough=feedthrough)
        if nx == AUTO or bla.order <= int(nx):
            return bla
        return estimate_bla(usable, nx=nx, hold=hold, feedthrough=feedthrough)
    except DataError as error:
        without = "take recipe='windows' and " if isinstance(recipe.start, FromLinear) or nx == AUTO else ""
        raise DataError(
            f"tau or the start of the weights cannot come from a linear approximation: {error} "
            f"Or {without}give tau in seconds, or tau='trained'."
        ) from None


def start_from_bla(model: StateSpace, bla: LinearModel, records: Sequence[Record], source: WindowSource) -> StateSpace:
    """The model with its linear parts from the linear approximation; the nonlinear parts stay as they are.

    `f: [A B] = diag(tau) [A B] of the BLA`, `g: [C D]` of the BLA, encoder: the least-squares map from past samples to
    the BLA's states. States that the BLA does not have decay with tau and touch nothing.
    """
    nx, n, nu = model.nx, bla.order, model.nu
    tau = np.broadcast_to(np.asarray(model.tau.now), (nx,))
    f = np.zeros((nx, nx + nu))
    f[:, :nx] = -np.eye(nx)
    f[:n, :n], f[:n, nx:] = tau[:n, None] * bla.A, tau[:n, None] * bla.B
    g = np.zeros(model.g.linear.shape)
    g[:, :n] = bla.C
    if model.feedthrough:
        g[:, nx:] = bla.D
    model = dataclasses.replace(model, f=_with_linear(model.f, f), g=_with_linear(model.g, g))
    if isinstance(model.initial, FreeState):
        x0 = np.pad(bla.x0, ((0, 0), (0, nx - n))).astype(model.initial.x0.dtype)
        return dataclasses.replace(model, initial=dataclasses.replace(model.initial, x0=x0))
    return start_encoder(model, source, lambda samples: _states_at(bla, records, samples))


def _with_linear(network: Network, linear: Float[np.ndarray, "n_out n_in"]) -> Network:
    return dataclasses.replace(network, linear=linear.astype(network.linear.dtype))


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
    network = _with_linear(initial.network, linear).with_readout(readout)
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


def _states_at(
    bla: LinearModel, records: Sequence[Record], samples: Int[np.ndarray, "n"]
) -> Float[np.ndarray, "n order"]:
    """The linear model's states at samples, counted through all records; NaN where it was not simulated."""
    stops = np.cumsum([len(record) for record in records])
    states = np.full((len(samples), bla.order), np.nan)
    for record, usable, x0, stop in zip(records, linear_records(records, hold=bla.hold), bla.x0, stops, strict=True):
        here = np.flatnonzero((samples >= stop - len(record)) & (samples < stop))
        t = record.t[samples[here] - (stop - len(record))]
        x = bla.simulate_states(usable, x0)[0]
        columns = [np.interp(t, usable.t, column, right=np.nan) for column in x.T]
        states[here] = np.stack(columns, axis=1)
    return states
