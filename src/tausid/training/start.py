"""Where training starts: tau and, if asked for, the weights, from a linear approximation of the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.data.clocks import median_step
from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.engine.networks import Network
from tausid.errors import ConfigError, DataError, unknown_name
from tausid.linear import LinearModel, estimate_bla
from tausid.linear.tau_estimation import LINEAR_METHODS, TauEstimate, linear_records, tau_of_model, tau_of_outputs
from tausid.model.initial import FreeState
from tausid.model.model import Model
from tausid.model.state_space import StateSpace
from tausid.model.structure import AUTO
from tausid.model.tau import Tau
from tausid.shapes import Float, Int
from tausid.training.parts import FromLinear
from tausid.training.recipe import Recipe

# Where a trained tau starts by itself: Ts/tau = 0.1, as in the paper.
TRAINED_START = 0.1
# Decades of the rates and frequencies of random dynamics, in 1/tau.
RATES, FREQUENCIES = (-1.5, 0.7), (-1.0, 0.8)
AnyTau = float | Sequence[float] | str | Tau | TauEstimate
PER_STATE = "trained-per-state"
FROM_TENTH = ("trained", PER_STATE)
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
        shape = (recipe.structure.order,) if name == PER_STATE else ()
        start = np.full(shape, median_step(records) / TRAINED_START)
        return Start(Tau(start, trainable=True, source="Ts/tau = 0.1"), bla)
    seconds, _ = tau_of_model(bla, linear_records(records, hold=bla.hold), method=method, x0=bla.x0)
    return Start(Tau(seconds, trainable=name != method, source=method), bla)


def approximate(records: Sequence[Record], recipe: Recipe, order: int | None = None) -> LinearModel:
    """The best linear approximation with at most as many states as the model; a quick one of a given order."""
    holds, nx = recipe.integration.hold, recipe.structure.nx
    hold = "first" if set(holds if isinstance(holds, tuple) else [holds]) == {"first"} else "zero"
    feedthrough = recipe.structure.feedthrough or hold == "first"
    Scaling.from_records(records)  # a constant channel is in the way of every model, and says so itself
    try:
        usable = linear_records(records, hold=hold)
        bla = estimate_bla(usable, nx=order or "auto", hold=hold, feedthrough=feedthrough, quick=order is not None)
        if nx == AUTO or bla.order <= int(nx):
            return bla
        return estimate_bla(usable, nx=nx, hold=hold, feedthrough=feedthrough)
    except DataError as error:
        without = "take recipe='windows' and " if isinstance(recipe.start, FromLinear) or nx == AUTO else ""
        raise DataError(
            f"tau or the start of the weights cannot come from a linear approximation: {error} "
            f"Or {without}give tau in seconds, or tau='trained'."
        ) from None


def start_from_bla(model: Model, bla: LinearModel, records: Sequence[Record], horizon: int | str) -> StateSpace:
    """The model with its linear parts from the linear approximation; the nonlinear parts stay as they are.

    `f: [A B] = diag(tau) [A B] of the BLA`, `g: [C D]` of the BLA, encoder: the least-squares map from past samples to
    the BLA's states. States that the BLA does not have decay with tau and touch nothing.
    """
    start = model.state_space
    nx, n, nu = start.nx, bla.order, start.nu
    tau = np.broadcast_to(np.asarray(start.tau.now), (nx,))
    f = np.zeros((nx, nx + nu))
    f[:, :nx] = -np.eye(nx)
    f[:n, :n], f[:n, nx:] = tau[:n, None] * bla.A, tau[:n, None] * bla.B
    g = np.zeros(start.g.linear.shape)
    g[:, :n] = bla.C
    if start.feedthrough:
        g[:, nx:] = bla.D
    start = dataclasses.replace(start, f=_with_linear(start.f, f), g=_with_linear(start.g, g))
    if isinstance(start.initial, FreeState):
        x0 = np.pad(bla.x0, ((0, 0), (0, nx - n))).astype(start.initial.x0.dtype)
        return dataclasses.replace(start, initial=dataclasses.replace(start.initial, x0=x0))
    from tausid.training.start_encoder import start_encoder
    from tausid.training.windows import make_windows

    source = make_windows(model, records, horizon=horizon)
    return start_encoder(start, source, lambda samples: _states_at(bla, records, samples))


def start_random_dynamics(model: StateSpace, rng: np.random.Generator) -> StateSpace:
    """Stable linear dynamics with rates and frequencies around 1/tau; f is linear, what is nonlinear in g is small."""
    nx, nu = model.nx, model.nu
    A, i = np.zeros((nx, nx)), 0
    while i < nx:
        rate = 10 ** rng.uniform(*RATES)
        pair = i + 1 < nx and rng.random() < 0.5
        A[i, i] = -rate
        if pair:
            frequency = 10 ** rng.uniform(*FREQUENCIES)
            A[i : i + 2, i : i + 2] = [[-rate, frequency], [-frequency, -rate]]
        i += 1 + pair
    B = rng.normal(size=(nx, nu)) * np.sqrt(-np.diag(A))[:, None]
    C = 0.3 * rng.normal(size=model.g.linear.shape)
    g = _with_linear(model.g, C).with_readout(0.1 * rng.normal(size=model.g.readout.shape))
    return dataclasses.replace(model, f=_with_linear(model.f, np.hstack([A, B])), g=g)


def _with_linear(network: Network, linear: Float[np.ndarray, "n_out n_in"]) -> Network:
    return dataclasses.replace(network, linear=linear.astype(network.linear.dtype))


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
