"""Where training starts: tau and, if asked for, the weights, from a linear approximation of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tausid.config import Config
from tausid.errors import ConfigError, DataError, unknown_name
from tausid.linear import LinearModel, estimate_bla
from tausid.models import Encoder, FreeState, StateSpace
from tausid.records import Record
from tausid.tau import Tau
from tausid.tau_estimation import LINEAR_METHODS, TauEstimate, tau_of_model
from tausid.windows import WindowSource

# Where a trained tau starts by itself: Ts/tau = 0.1, as in the paper.
TRAINED_START = 0.1
TAU_NAMES = (*LINEAR_METHODS, "trained", "bla-trained")


@dataclass(frozen=True, eq=False)
class Start:
    """Tau to start with, and the linear approximation where one was needed.

    Args:
        tau: the normalization constant.
        bla: the linear approximation of the training records, or None.
    """

    tau: Tau
    bla: LinearModel | None


def find_start(
    tau: float | Sequence[float] | str | Tau | TauEstimate, records: Sequence[Record], config: Config
) -> Start:
    """Tau as it was given, or estimated from the training records.

    Args:
        tau: seconds, one or one per state; `bla` or `spectrum` (estimated), `trained` (from Ts/tau = 0.1 on) or
            `bla-trained` (from the estimate on); an estimate; or a `Tau`.
        records: training records.
        config: number of states, hold, and whether the weights start from the linear approximation.

    Returns:
        The start.

    Raises:
        ConfigError: an unknown name, or not a positive number.
        DataError: the records cannot carry a linear approximation.
    """
    if isinstance(tau, str):
        return _named_start(tau, records, config)
    bla = approximate(records, config) if config.init == "bla" else None
    if isinstance(tau, TauEstimate):
        return Start(Tau(tau.tau, source=tau.method), bla)
    return Start(tau if isinstance(tau, Tau) else Tau(tau), bla)


def _named_start(name: str, records: Sequence[Record], config: Config) -> Start:
    if name not in TAU_NAMES:
        raise ConfigError(unknown_name("tau", name, TAU_NAMES) + " Or give seconds.")
    bla = approximate(records, config) if name != "trained" or config.init == "bla" else None
    if bla is None or name == "trained":
        return Start(Tau(records[0].ts / TRAINED_START, trainable=True, source="Ts/tau = 0.1"), bla)
    method = name.removesuffix("-trained")
    seconds, _ = tau_of_model(bla, records, method=method, x0=bla.x0)
    return Start(Tau(seconds, trainable=name != method, source=method), bla)


def approximate(records: Sequence[Record], config: Config) -> LinearModel:
    """The best linear approximation with at most as many states as the model.

    Args:
        records: training records.
        config: number of states and hold.

    Returns:
        The linear model.

    Raises:
        DataError: the records cannot carry one.
    """
    hold = "first" if set(config.hold if isinstance(config.hold, tuple) else [config.hold]) == {"first"} else "zero"
    try:
        bla = estimate_bla(records, nx="auto", hold=hold)
        return bla if bla.order <= config.nx else estimate_bla(records, nx=config.nx, hold=hold)
    except DataError as error:
        raise DataError(
            f"tau or the start of the weights cannot come from a linear approximation: {error} "
            "Or give tau in seconds, or tau='trained'."
        ) from None


def start_from_bla(model: StateSpace, bla: LinearModel, records: Sequence[Record], source: WindowSource) -> StateSpace:
    """The model with its linear parts from the linear approximation; the nonlinear parts stay as they are.

    `f: [A B] = diag(tau) [A B] of the BLA`, `g: [C D]` of the BLA, encoder: the least-squares map from past samples to
    the BLA's states. States that the BLA does not have decay with tau and touch nothing.

    Args:
        model: the model, untrained.
        bla: the linear approximation, with at most as many states.
        records: the training records, in the order of `source`.
        source: the training windows.

    Returns:
        The model.
    """
    nx, n, nu = model.nx, bla.order, model.nu
    tau = np.broadcast_to(np.asarray(model.tau.now), (nx,))
    f = np.zeros((nx, nx + nu))
    f[:, :nx] = -np.eye(nx)
    f[:n, :n], f[:n, nx:] = tau[:n, None] * bla.A, tau[:n, None] * bla.B
    g = np.zeros((model.ny, nx + nu))
    g[:, :n], g[:, nx:] = bla.C, bla.D
    model = eqx.tree_at(lambda m: (m.f.linear, m.g.linear), model, (jnp.asarray(f), jnp.asarray(g)))
    if isinstance(model.initial, FreeState):
        x0 = np.pad(bla.x0, ((0, 0), (0, nx - n)))
        return eqx.tree_at(lambda m: m.initial.x0, model, jnp.asarray(x0))
    return eqx.tree_at(
        lambda m: m.initial.network.linear, model, jnp.asarray(_encoder_map(model, bla, records, source))
    )


def _encoder_map(
    model: StateSpace, bla: LinearModel, records: Sequence[Record], source: WindowSource
) -> Float[np.ndarray, "nx n_in"]:
    assert isinstance(model.initial, Encoder)
    states = np.concatenate([bla.simulate_states(record, x0)[0] for record, x0 in zip(records, bla.x0, strict=True)])
    starts = np.asarray(source.starts)
    past_u = [np.asarray(source.u)[starts - k] for k in range(model.initial.nb, 0, -1)]
    past_y = [np.asarray(source.y)[starts - k] for k in range(model.initial.na, 0, -1)]
    seen = np.concatenate([np.zeros((len(starts), 0)), *past_u, *past_y], axis=1)
    fitted = np.linalg.lstsq(seen, states[starts], rcond=None)[0].T
    return np.pad(fitted, ((0, model.nx - bla.order), (0, 0)))
