"""Where a fit with known equations starts: their parameters and states by least squares over whole records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tausid.data.clocks import median_step
from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.engine.networks import Network
from tausid.engine.normal_equations import Normal
from tausid.errors import ConfigError
from tausid.model.build import zero_network
from tausid.model.course import longest_step, make_integrator
from tausid.model.initial import FreeState
from tausid.model.model import Model
from tausid.model.physics import AbstractPhysics, KnownPart, check_physics
from tausid.model.state_space import StateSpace
from tausid.model.structure import AUTO
from tausid.model.tau import Tau
from tausid.shapes import Float
from tausid.training.full_error import join_records
from tausid.training.least_squares import Decay, Point, begin, iterate
from tausid.training.parts import Adam, FromLinear, RandomDynamics
from tausid.training.problem import mean_one
from tausid.training.recipe import Recipe
from tausid.training.robust import reweighted
from tausid.training.scan_error import ScanError
from tausid.training.start_encoder import start_encoder
from tausid.training.windows import make_windows

MOST_ITERATIONS = 200
# Directions of the parameters that move the outputs less than this share of the strongest one are lost in rounding.
UNSEEN = 1e-6


@dataclass(frozen=True, eq=False)
class KnownStart:
    """Known equations fitted to the training records, and the states that they go through there.

    Args:
        known: the equations with fitted parameters and scaled states.
        states: normalized states at the samples of each record.
    """

    known: KnownPart
    states: tuple[Float[np.ndarray, "_ nx"], ...]


def resolve_physics(recipe: Recipe, plant: AbstractPhysics, records: Sequence[Record]) -> Recipe:
    """The recipe with what known equations ask for: as many states as they have, and steps short enough."""
    structure = recipe.structure
    check_physics(plant, nu=records[0].nu, ny=records[0].ny)
    _check_parts(recipe)
    own = len(plant.states)
    nx = own if structure.nx == AUTO else int(structure.nx)
    if nx < own or (nx > own and structure.correction == "none"):
        more = "or more with structure.correction=network" if structure.correction == "none" else "or more"
        raise ConfigError(f"`nx` must be {own}, the states of {type(plant).__name__}, {more}; got {nx}. Leave it out.")
    integration = recipe.integration
    if integration.max_dt is None and plant.max_dt is not None:
        integration = dataclasses.replace(integration, max_dt=float(plant.max_dt))
    return dataclasses.replace(recipe.with_structure(nx=nx), integration=integration)


def _check_parts(recipe: Recipe) -> None:
    structure, trainer = recipe.structure, recipe.trainer
    rules = {
        "start": (
            not isinstance(recipe.start, FromLinear | RandomDynamics),
            "random",
            "as these have a start of their own",
        ),
        "barrier": (not isinstance(trainer, Adam) or trainer.barrier is None, "none", "as A corrects them"),
        "feedthrough": (structure.feedthrough, "true", "as these say what their outputs depend on"),
        "output_limits": (structure.output_limits == "none", "none", "as these say where their outputs end"),
    }
    for name, (kept, value, reason) in rules.items():
        if not kept:
            raise ConfigError(f"`{name}` must be {value} with known equations, {reason}. Set it so.")


def fit_known(
    physics: AbstractPhysics, records: Sequence[Record], recipe: Recipe, scaling: Scaling | None = None
) -> KnownStart:
    """Parameters and initial states that make the simulation of whole records fit best.

    `min over p, x0 of sum w (y - y_hat)^2` (eq. 3), each output over its deviation, by Levenberg-Marquardt in double
    precision; one initial state per record. Standard deviations of the parameters are those of linearized least squares
    with white residuals.
    """
    scaling, ts = scaling or Scaling.from_records(records), median_step(records)
    known = KnownPart.start(physics, scaling, trainable=recipe.structure.correction != "none")
    model, integrator = _bare(known, nu=records[0].nu, ny=records[0].ny), make_integrator(recipe.integration, ts)
    weights = mean_one(recipe.trainer.output_weights)
    samples, places = join_records(records, scaling, longest_step(recipe.integration, ts), integrator, weights)
    error = ScanError(model, _parameters_of(model), samples, integrator)
    point = _minimize(error, physics, robust=recipe.trainer.robust)
    states = error.states(point.theta, point.x0)
    fitted = error.unpack(point.theta).physics
    assert fitted is not None
    known = dataclasses.replace(known, free=fitted.free)
    deviation = np.full(len(known.free), np.nan) if known.trainable else _deviations(error, point, known)
    return _scaled(known, deviation, [states[place] for place in places])


def start_from_known(model: Model, start: KnownStart, records: Sequence[Record], horizon: int | str) -> StateSpace:
    """The model with its initial states those of the fitted equations: per record, or a linear map in the encoder."""
    state_space = model.state_space
    initial = state_space.initial
    if isinstance(initial, FreeState):
        x0 = np.stack([states[0] for states in start.states])
        x0 = np.pad(x0, ((0, 0), (0, state_space.nx - x0.shape[1]))).astype(initial.x0.dtype)
        return dataclasses.replace(state_space, initial=dataclasses.replace(initial, x0=x0))
    if not isinstance(initial.network, Network):
        return state_space
    states, source = np.concatenate(start.states), make_windows(model, records, horizon=horizon)
    return start_encoder(state_space, source, lambda samples: states[samples])


def _bare(known: KnownPart, *, nu: int, ny: int) -> StateSpace:
    """The equations as a model with nothing else in it."""
    nx = known.nx
    initial = FreeState.unknown(np.zeros((0, nx)))
    return StateSpace(zero_network(nx + nu, nx), zero_network(nx + nu, ny), initial, Tau(1.0), physics=known)


def _parameters_of(model: StateSpace) -> Any:
    """Which leaves of the model the fit moves."""
    return eqx.tree_at(lambda m: m.physics.free, jax.tree.map(lambda _: False, model), True)


def _minimize(error: ScanError, physics: AbstractPhysics, *, robust: bool) -> Point:
    """The parameters and initial states with the lowest error, from the start values on."""
    guess = np.array([state.start for state in physics.states.values()], float)
    x0, nothing = np.tile(guess, (len(error.samples.lengths), 1)), Decay()
    point = begin(error, error.pack(error.start), x0, nothing)
    if not np.isfinite(point.cost):  # no step leads away from there
        raise ConfigError(
            f"`physics` must simulate the training records from its start values; {type(physics).__name__} diverges. "
            "Give other start values or bounds, or a smaller max_dt."
        )
    for _ in range(MOST_ITERATIONS):
        if point.converged:
            break
        point = iterate(*(reweighted(error, point) if robust else (error, point)), nothing)
    return point


def _scaled(known: KnownPart, deviation: np.ndarray, states: Sequence[Float[np.ndarray, "_ nx"]]) -> KnownStart:
    """The fitted equations, with states scaled to zero mean and unit deviation."""
    every = np.concatenate(states)
    mean, std = every.mean(axis=0), _positive(every.std(axis=0))
    known = eqx.tree_at(lambda k: (k.units.x_mean, k.units.x_std, k.units.deviation), known, (mean, std, deviation))
    return KnownStart(known, tuple((part - mean) / std for part in states))


def _deviations(error: ScanError, point: Point, known: KnownPart) -> Float[np.ndarray, "n_parameters"]:
    """Standard deviations of the parameters; NaN for one at its bound, of which nothing is known."""
    information = _dense(error.normal(point.theta, point.x0))
    samples = int(np.count_nonzero(error.samples.w))
    variance = point.cost / max(samples - len(information), 1)
    free = free_deviations(information, variance)[: len(known.free)]
    slopes = np.abs(known.slopes())
    return np.multiply(slopes, free, where=slopes > 0, out=np.full(len(free), np.nan))


def _dense(normal: Normal) -> Float[np.ndarray, "n n"]:
    """`J'J` of the parameters and of all initial states as one matrix."""
    B, nx, P = normal.G.shape
    full = np.zeros((P + B * nx, P + B * nx))
    full[:P, :P] = normal.H
    for b in range(B):
        own = slice(P + b * nx, P + (b + 1) * nx)
        full[:P, own], full[own, :P], full[own, own] = normal.G[b].T, normal.G[b], normal.K[b]
    return full


def free_deviations(information: Float[np.ndarray, "n n"], variance: float) -> Float[np.ndarray, "n"]:
    """Standard deviations of least-squares estimates, `sqrt(diag(s^2 (J'J)^-1))`; infinite where nothing is seen."""
    size = _positive(np.sqrt(np.diag(information)))
    strength, directions = np.linalg.eigh(information / np.outer(size, size))
    seen = strength > UNSEEN**2 * strength[-1]
    spread = np.sqrt(variance * np.sum(directions[:, seen] ** 2 / strength[seen], axis=1)) / size
    unseen = np.any(np.abs(directions[:, ~seen]) > np.sqrt(UNSEEN), axis=1)
    return np.where(unseen, np.inf, spread)


def _positive(deviations: np.ndarray) -> np.ndarray:
    """Deviations to divide by: one where nothing moves."""
    return np.where(np.isfinite(deviations) & (deviations > 0), deviations, 1.0)
