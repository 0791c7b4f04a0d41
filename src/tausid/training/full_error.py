"""The full simulation error (eq. 3) of a problem: what Levenberg-Marquardt minimizes, and its points as models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from tausid.data.clocks import held_between, split_steps
from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.engine.choice import Engine
from tausid.engine.compiled import CompiledError, Samples, System
from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import FixedStep
from tausid.engine.normal_equations import SquaredError
from tausid.model.free_run import rate_of, why_not_compiled
from tausid.model.initial import SEEN_STATES, FreeState
from tausid.model.model import Model
from tausid.model.state_space import StateSpace
from tausid.shapes import Float
from tausid.training.least_squares import Decay, Point, begin
from tausid.training.parts import BY_RESIDUALS, EVIDENCE, LevenbergMarquardt
from tausid.training.problem import Problem, mean_one
from tausid.training.robust import reweighted

# Deviation below which a state counts as at rest, and share of the others' below which a direction among them does.
LEAST_SPREAD = 1e-3
# Normalized states beyond this have run away.
LARGEST_STATE = 1e6


@runtime_checkable
class Parameters(Protocol):
    """The trained weights of a model as one vector."""

    def pack(self, model: StateSpace) -> Float[np.ndarray, "P"]:
        """The weights of a model."""

    def unpack(self, theta: Float[np.ndarray, "P"]) -> StateSpace:
        """The model with these weights."""

    @property
    def groups(self) -> dict[str, np.ndarray]:
        """Where the kinds of weights lie: linear parts first, then what is nonlinear."""


@dataclass(frozen=True, eq=False)
class FullError:
    """What is minimized, and what its points are as models.

    Args:
        squares: the squared error as a function of the parameters.
        parameters: the parameters of a model.
        decay: what holds them back.
        places: of each record, which of the simulated points are its samples.
        encoder: fits a model's encoder to the states at all samples; None where initial states are free.
        robust: whether errors that are far larger than usual count as if they were not.
    """

    squares: SquaredError
    parameters: Parameters
    decay: Decay
    places: tuple[np.ndarray, ...]
    encoder: Callable[[StateSpace, np.ndarray], StateSpace] | None = None
    robust: bool = False

    def begin(self, model: StateSpace, x0: Float[np.ndarray, "B nx"]) -> Point:
        """The first point of a search, from a model and a guess of its initial states."""
        return self.at(begin(self.squares, self.parameters.pack(model), x0, self.decay))[1]

    def at(self, point: Point) -> tuple[SquaredError, Point]:
        """What an iteration from a point lowers, and the point with its cost by that."""
        return reweighted(self.squares, point) if self.robust else (self.squares, point)

    def over(self, squares: SquaredError) -> FullError:
        """The same for another error of the same parameters."""
        return dataclasses.replace(self, squares=squares)

    def states(self, point: Point) -> Float[np.ndarray, "N nx"]:
        """States at the samples of all records, one after the other."""
        return self.squares.states(point.theta, point.x0)[np.concatenate(self.places)]

    def model(self, point: Point) -> StateSpace:
        """The model at a point, with what finds the initial states of new records."""
        model, states = self.parameters.unpack(point.theta), self.states(point)
        if self.encoder is not None:
            return self.encoder(model, states)
        ends = np.cumsum([len(place) for place in self.places])[:-1]
        parts = [part[~np.isnan(part).any(axis=1)] for part in np.split(states, ends)]
        found = FreeState(point.x0, *expectation(np.concatenate(parts), np.sqrt(point.cost)), spread_out(parts))
        return dataclasses.replace(model, initial=found)


def full_error(problem: Problem) -> FullError:
    """The full simulation error of a problem's training records; found once."""
    return problem.cached("full error", lambda: _make(problem))


def _make(problem: Problem) -> FullError:
    model, records = problem.initial_model, problem.split.train
    weights = mean_one(problem.recipe.trainer.output_weights)
    samples, places = join_records(records, model.scaling, model.longest_step, model.integrator, weights)
    parameters: Parameters
    if not is_compiled(model):
        from tausid.training.scan_error import ScanError

        parameters = ScanError.of(model, samples)
        squares: SquaredError = parameters
    else:
        parameters = NetworkWeights(model)
        squares = CompiledError(parameters.system, samples)
    encoder = None
    if not isinstance(model.state_space.initial, FreeState):
        from tausid.training.start_encoder import encoder_fit

        encoder = encoder_fit(problem)
    robust = problem.recipe.trainer.robust
    return FullError(squares, parameters, _decay(problem, parameters), places, encoder, robust)


def is_compiled(model: Model) -> bool:
    """Whether the compiled library has the error of a model; JAX compiles a program for each length of records."""
    weights = model.state_space
    return why_not_compiled(weights, Engine(model.integration.engine)) is None and not weights.tau.trainable


@dataclass(frozen=True, eq=False)
class NetworkWeights:
    """The weights of f and g as one vector, as the compiled library has them.

    Args:
        start: a model of the same structure.
    """

    start: Model

    @cached_property
    def system(self) -> System:
        """The equations for any weights."""
        model = self.start.state_space
        return System.of(model.f, model.g, rate_of(model), model.limits, self.start.integrator)

    def pack(self, model: StateSpace) -> Float[np.ndarray, "P"]:
        """The weights of a model."""
        return self.system.pack(model.f, model.g)

    def unpack(self, theta: Float[np.ndarray, "P"]) -> StateSpace:
        """The model with these weights."""
        model = self.start.state_space
        f, g = self.system.unpack(theta, model.f, model.g)
        return dataclasses.replace(model, f=f, g=g)

    @property
    def groups(self) -> dict[str, np.ndarray]:
        """Where the kinds of weights of f and of g lie."""
        f, g = self.system.f, self.system.g
        places = {f"f.{name}": place for name, place in f.groups.items()}
        return {**places, **{f"g.{name}": place + f.parameters for name, place in g.groups.items()}}


def join_records(
    records: Sequence[Record],
    scaling: Scaling,
    longest_step: float,
    integrator: FixedStep,
    output_weights: tuple[float, ...] | None = None,
) -> tuple[Samples, tuple[np.ndarray, ...]]:
    """Records in normalized units, long steps split, so that the cost is a mean; and where their samples lie."""
    u, y, dt, places, before = [], [], [], [], 0
    slopes = hold_slopes(integrator.hold, records[0].nu)
    for record in records:
        t, place = split_steps(record.t, longest_step)
        outputs = np.full((len(t), record.ny), np.nan)
        outputs[place] = scaling.normalize_y(record.y)
        u.append(scaling.normalize_u(held_between(record.u, place, slopes)))
        y.append(outputs)
        dt.append(np.diff(t))
        places.append(place + before)
        before += len(t)
    samples = Samples.join(u, y, dt)
    weights = np.ones(records[0].ny) if output_weights is None else np.asarray(output_weights)
    scale = np.sqrt(weights / max(int(np.count_nonzero(samples.w)), 1))
    return dataclasses.replace(samples, w=samples.w * scale), tuple(places)


def _decay(problem: Problem, parameters: Parameters) -> Decay:
    """What holds the nonlinear parts back: the evidence, or a weight decay that was given."""
    trainer = problem.recipe.trainer
    assert isinstance(trainer, LevenbergMarquardt)
    decay = trainer.decay
    nonlinear = [place for name, place in parameters.groups.items() if not name.endswith(("linear", "bias"))]
    groups = tuple(place for place in nonlinear if len(place))
    if decay == EVIDENCE:
        return Decay(groups, samples_per_tau(problem), trainer.independent == BY_RESIDUALS)
    return Decay(groups, start=float(decay))


def samples_per_tau(problem: Problem) -> float:
    """How many measured samples are independent: those within one tau say much the same of the plant."""
    model = problem.initial_model
    measured = sum(int((~np.isnan(record.y)).sum()) for record in problem.split.train)
    return measured / max(1.0, float(np.max(model.tau)) / model.ts)


def expectation(
    states: Float[np.ndarray, "N nx"], noise: float
) -> tuple[Float[np.ndarray, "nx"], Float[np.ndarray, "nx nx"]]:
    """What the states along the training records say of the initial state of another one.

    A normal distribution with their mean and covariance, as `FreeState` has it: `tightness' tightness` is the inverse
    covariance times the variance of the outputs' errors.
    """
    nx = states.shape[1]
    if _run_away(states) or not np.isfinite(noise):
        return np.zeros(nx), np.zeros((nx, nx))
    mean, spread = states.mean(axis=0), states.std(axis=0)
    moves = spread > LEAST_SPREAD
    scaled = (states - mean) / np.where(moves, spread, np.inf)
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    roots = noise / np.sqrt(np.maximum(values, LEAST_SPREAD**2))
    return mean, (vectors * roots).T * np.where(moves, 1.0 / np.where(moves, spread, 1.0), 0.0)


def spread_out(records: Sequence[Float[np.ndarray, "_ nx"]]) -> Float[np.ndarray, "n_seen nx"]:
    """Some of the states along the training records, evenly in time, the first of each record among them."""
    states = np.concatenate(records)
    if _run_away(states):
        return np.zeros((SEEN_STATES, states.shape[1]))
    rows = np.linspace(0, len(states) - 1, SEEN_STATES).round().astype(int)
    for first in np.cumsum([0, *(len(part) for part in records)])[:-1]:
        rows[np.argmin(np.abs(rows - first))] = min(first, len(states) - 1)
    return states[rows]


def _run_away(states: Float[np.ndarray, "N nx"]) -> bool:
    return not len(states) or not np.abs(states).max(initial=0.0) < LARGEST_STATE
