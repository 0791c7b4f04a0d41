"""Levenberg-Marquardt on the full simulation error (eq. 3), in double precision.

Training sees the initial state of each record as free. What finds those of new records, an encoder or least squares
with an expectation, is fitted to the states that come out, so that it never bends them.
"""

from __future__ import annotations

import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int, PyTree

from tausid.model.initial import SEEN_STATES, FreeState
from tausid.model.state_space import StateSpace
from tausid.shapes import Array
from tausid.training.normal_equations import (
    Errors,
    FullError,
    Normal,
    Penalties,
    damped,
    normal_equations,
    states_along,
)
from tausid.training.parts import FULL, LevenbergMarquardt
from tausid.training.problem import Problem, mean_one, validation_score
from tausid.training.result import HistoryRow
from tausid.training.run_state import RunState, Status
from tausid.training.start import past_of, start_encoder
from tausid.training.windows import WindowSource

# Damping, relative to the diagonal of J'J: at the start, and its factors after a good and a bad step.
FIRST_DAMPING, LESS, MORE = 1e-2, 0.2, 4.0
LEAST_DAMPING = 1e-9
# Most steps of the initial states alone, before the first iteration.
INITIAL_STEPS = 5
# Steps tried with more and more damping before the search gives up.
TRIALS = 12
# Relative decrease of the objective that counts as converged.
TOLERANCE = 1e-5
# Deviation below which a state counts as at rest, and share of the others' below which a direction among them does.
LEAST_SPREAD = 1e-3
# Normalized states beyond this have run away.
LARGEST_STATE = 1e6


class Point(eqx.Module):
    """Where the search is.

    Args:
        weights: trained arrays, in double precision.
        x0: initial states.
        errors: the errors there.
        damping: of the next step.
        converged: whether nothing is left to gain.
    """

    weights: PyTree[Array]
    x0: Float[Array, "B nx"]
    errors: Errors
    damping: float = FIRST_DAMPING
    converged: bool = False


def init(problem: Problem, weights: PyTree[Array] | None = None) -> RunState:
    """The state before the first iteration, from the untrained model on, or from other weights."""
    start = problem.first_weights if weights is None else weights
    first = _score(problem, start)
    began = time.perf_counter()
    with jax.enable_x64(True):
        inner = begin(objective(problem), *first_guess(problem, start))
    return RunState(
        inner=inner,
        weights=start,
        step=0,
        best_weights=start,
        best_score=first if np.isfinite(first) else np.inf,
        best_step=0,
        history=(),
        seconds=time.perf_counter() - began,
        status=Status.RUNNING,
    )


def step(problem: Problem, run: RunState) -> RunState:
    """One iteration, a validation, and whether training ends."""
    began = time.perf_counter()
    search = _search(problem)
    with jax.enable_x64(True):
        point = iterate(objective(problem), run.inner)
    weights = problem.weights_of(search.model(point))
    model, validated = problem.model_with(weights), bool(problem.split.validation)
    now = _score(problem, weights)
    better = now < run.best_score or not validated
    number, seconds = run.step + 1, run.seconds + time.perf_counter() - began
    row = HistoryRow(number, float(point.errors.outputs), now, float("nan"), model.tau, seconds)
    run = dataclasses.replace(
        run,
        inner=point,
        weights=weights,
        step=number,
        best_weights=weights if better else run.best_weights,
        best_score=now if better else run.best_score,
        best_step=number if better else run.best_step,
        history=(*run.history, row),
        seconds=seconds,
    )
    tired = validated and number - run.best_step >= _trainer(problem).patience
    if not (point.converged or tired or number >= problem.stop):
        return run
    # Without a finite start there is no better point; without a finite score none that can be told to be good.
    simulates = np.isfinite(row.loss) and (not validated or np.isfinite(run.best_score))
    return dataclasses.replace(run, status=Status.COMPLETED if simulates else Status.DIVERGED)


def objective(problem: Problem) -> FullError:
    """What is minimized."""
    return _search(problem).error


def first_guess(problem: Problem, weights: PyTree[Array]) -> tuple[PyTree[Array], Float[Array, "B nx"]]:
    """Trained arrays in double precision, and initial states to go with them. To be called in double precision."""
    model = _doubled(problem.model_with(weights).state_space)
    moving = eqx.filter(dataclasses.replace(model, limits=None), _moving(problem))
    return moving, _first_states(problem, model)


def begin(error: FullError, weights: PyTree[Array], x0: Float[Array, "B nx"]) -> Point:
    """The first point of a search. To be called in double precision.

    The initial states move alone first: where one is wrong for long, as a position is, the weights would bend for it.
    """
    x0 = fit_initial_states(error, weights, x0)
    return Point(weights, x0, _errors(error, weights, x0))


def iterate(error: FullError, now: Point) -> Point:
    """A point with a lower objective, or the same one where nothing is left to gain. In double precision."""
    equations, damping = normal_equations(error, now.weights, now.x0), now.damping
    for _ in range(TRIALS):
        weights, x0 = _moved(now.weights, now.x0, equations, jnp.asarray(damping))
        found = _errors(error, weights, x0)
        gain = float(now.errors.objective) - float(found.objective)
        if gain > 0:  # not so where the trial is NaN or infinite
            converged = gain < TOLERANCE * float(now.errors.objective)
            return Point(weights, x0, found, max(damping * LESS, LEAST_DAMPING), converged)
        damping *= MORE
    return Point(now.weights, now.x0, now.errors, damping, converged=True)


def fit_initial_states(error: FullError, weights: PyTree[Array], x0: Float[Array, "B nx"]) -> Float[Array, "B nx"]:
    """Initial states with a lower error for the same weights, by a few Gauss-Newton steps."""
    now = float(_errors(error, weights, x0).objective)
    for _ in range(INITIAL_STEPS):
        equations = normal_equations(error, weights, x0)
        trial = x0 - jnp.linalg.solve(damped(equations.K, jnp.asarray(LEAST_DAMPING)), equations.k[..., None])[..., 0]
        found = float(_errors(error, weights, trial).objective)
        if not found < now:
            break
        x0, now = trial, found
    return x0


@dataclasses.dataclass(frozen=True, eq=False)
class _Search:
    """What is minimized, and what its points are as models.

    Args:
        problem: model, records and recipe.
        error: what is minimized.
        source: the records as whole windows.
    """

    problem: Problem
    error: FullError
    source: WindowSource

    def model(self, point: Point) -> StateSpace:
        """The model at a point, with what finds its initial states."""
        with jax.enable_x64(True):
            states = np.asarray(states_along(self.error, point.weights, point.x0), float)
            noise = float(jnp.sqrt(point.errors.outputs))
            double = self.error.model(point.weights)
        start = self.problem.initial_model.state_space
        double = dataclasses.replace(double, limits=start.limits)
        model = jax.tree.map(lambda new, old: np.asarray(new).astype(old.dtype), *_arrays(double, start))
        model = eqx.combine(model, start)
        if isinstance(model.initial, FreeState):
            by_row = self._by_row(states)
            along = by_row[~np.isnan(by_row).any(axis=1)]
            arrays = (point.x0, *expectation(along, noise), spread_out(along))
            return dataclasses.replace(model, initial=FreeState(*map(np.asarray, arrays)))
        return start_encoder(model, _pasts(self.problem), lambda i: self._by_row(states)[self._rows[i]], bend=True)

    @property
    def _rows(self) -> Int[np.ndarray, "N"]:
        """Where each sample, counted through all records, lies in the source's arrays."""
        rows = self.source.rows
        return np.arange(int(self.source.stops[-1])) if rows is None else np.asarray(rows)

    def _by_row(self, states: Float[np.ndarray, "J B nx"]) -> Float[np.ndarray, "N nx"]:
        """States in the order of the source's arrays; NaN where nothing was simulated."""
        stops = np.asarray(self.source.stops)
        by_row = np.full((stops[-1], states.shape[-1]), np.nan)
        first = np.asarray(self.source.starts(jnp.arange(self.source.count)))
        for row, column in zip(self._rows[first], np.swapaxes(states, 0, 1), strict=True):
            stop = min(stops[np.searchsorted(stops, row, side="right")], row + len(column))
            by_row[row:stop] = column[: stop - row]
        return by_row


def _search(problem: Problem) -> _Search:
    return problem.cached("search", lambda: _make_search(problem))


def _make_search(problem: Problem) -> _Search:
    trainer, model = _trainer(problem), problem.initial_model
    with jax.enable_x64(True):
        double = _doubled(model.state_space)
        source = WindowSource.from_records(
            problem.split.train,
            model.scaling,
            horizon=FULL,
            n_past=0,
            longest=model.longest_step,
            hold=model.integration.hold,
        )
        windows = source.gather(jnp.arange(source.count))
        fixed = eqx.partition(dataclasses.replace(double, limits=None), _moving(problem))[1]
        limits = None if double.limits is None else jnp.asarray(double.limits).T
        penalties = Penalties(trainer.weight_decay, trainer.nonlinear_decay, mean_one(trainer.output_weights))
        return _Search(problem, FullError(windows, fixed, limits, penalties, model.integrator), source)


def _trainer(problem: Problem) -> LevenbergMarquardt:
    trainer = problem.recipe.trainer
    assert isinstance(trainer, LevenbergMarquardt)
    return trainer


def _pasts(problem: Problem) -> WindowSource:
    """What an encoder sees before each sample that it can be asked about."""
    return problem.cached("pasts", lambda: problem.windows(problem.split.train, horizon=2))


def _score(problem: Problem, weights: PyTree[Array]) -> float:
    model, trainer = problem.model_with(weights), _trainer(problem)
    return validation_score(model, problem.split.validation, output_weights=trainer.output_weights)


def expectation(
    states: Float[np.ndarray, "N nx"], noise: float
) -> tuple[Float[np.ndarray, "nx"], Float[np.ndarray, "nx nx"]]:
    """What the states along the training records say of the initial state of another one.

    A normal distribution with their mean and covariance, as `FreeState` has it: `tightness' tightness` is the inverse
    covariance times the variance of the outputs' errors.
    """
    nx = states.shape[1]
    if _run_away(states):
        return np.zeros(nx), np.zeros((nx, nx))
    mean, spread = states.mean(axis=0), states.std(axis=0)
    moves = spread > LEAST_SPREAD
    scaled = (states - mean) / np.where(moves, spread, np.inf)
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    roots = noise / np.sqrt(np.maximum(values, LEAST_SPREAD**2))
    return mean, (vectors * roots).T * np.where(moves, 1.0 / np.where(moves, spread, 1.0), 0.0)


def spread_out(states: Float[np.ndarray, "N nx"]) -> Float[np.ndarray, "n_seen nx"]:
    """Some of the states along the training records, evenly in time."""
    if _run_away(states):
        return np.zeros((SEEN_STATES, states.shape[1]))
    return states[np.linspace(0, len(states) - 1, SEEN_STATES).round().astype(int)]


def _run_away(states: Float[np.ndarray, "N nx"]) -> bool:
    return not np.abs(states).max(initial=0.0) < LARGEST_STATE


def _first_states(problem: Problem, model: StateSpace) -> Float[Array, "n_records nx"]:
    """Where the search for the initial states begins: those that the start has, or what the encoder says of the first
    samples it can."""
    if isinstance(model.initial, FreeState):
        return model.initial.x0
    source, lengths = _pasts(problem), [len(record) for record in problem.split.train]
    starts = np.asarray(source.starts(jnp.arange(source.count)))
    first = jnp.asarray(np.searchsorted(starts, np.cumsum(lengths) - lengths))
    past_u, past_y, lag = past_of(source, jnp.minimum(first, source.count - 1))
    return _doubled(model.initial(past_u, past_y, first, lag))


def _moving(problem: Problem) -> PyTree[bool]:
    """Which leaves the search moves: the trained ones, but for the initial state."""
    trained = dataclasses.replace(problem.trained, limits=None)
    nothing = jax.tree.map(lambda _: False, trained.initial)
    return eqx.tree_at(lambda m: m.initial, trained, nothing)


def _arrays(*trees: PyTree) -> tuple[PyTree, ...]:
    return tuple(eqx.filter(tree, eqx.is_inexact_array) for tree in trees)


def _doubled(tree: PyTree) -> PyTree:
    """The tree with its arrays in double precision."""
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), float) if eqx.is_inexact_array(a) else a, tree)


@eqx.filter_jit
def _errors(error: FullError, weights: PyTree[Array], x0: Array) -> Errors:
    return error(weights, x0)


@eqx.filter_jit
def _moved(
    weights: PyTree[Array], x0: Array, equations: Normal, damping: Float[Array, ""]
) -> tuple[PyTree[Array], Array]:
    theta, unravel = ravel_pytree(weights)
    change, change_of_x0 = equations.solve(damping)
    return unravel(theta + change), x0 + change_of_x0
