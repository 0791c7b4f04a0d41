"""Second order: from the best weights on, Levenberg-Marquardt on the full simulation error in double precision.

Training sees the initial state of each record as free. What finds those of new records, an encoder or least squares
with an expectation, is fitted to the states that come out, so that it never bends them.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from tausid.model.build import nonlinear_part
from tausid.model.config import FULL
from tausid.model.initial import SEEN_STATES, FreeState
from tausid.model.state_space import StateSpace
from tausid.training.loop import Problem, RunState, score
from tausid.training.objective import trainable
from tausid.training.optimiser import OptimiserState, StepSettings
from tausid.training.result import HistoryRow
from tausid.training.second_order import FullError, Point, levenberg_marquardt, states_along
from tausid.training.starting import past_of, start_encoder
from tausid.training.windows import WindowSource

# Iterations without a better validation score after which the finish ends. Scores may rise for thirty before they fall
# to a tenth, as where friction is found at last.
FINISH_PATIENCE = 40
# Deviation below which a state counts as at rest, and share of the others' below which a direction among them does.
LEAST_SPREAD = 1e-3
# Normalized states beyond this have run away.
LARGEST_STATE = 1e6


def finish(
    problem: Problem,
    run: RunState,
    *,
    most: int,
    parts: str,
    report: Callable[[RunState, RunState], None],
    interrupted: threading.Event,
) -> RunState:
    """Go on from the best weights with second-order steps on the full simulation error (eq. 3), in double precision.

    The weight decays stay in the objective; other penalties, and the noise of random windows, are gone.
    """
    search, first = Search.over(problem, problem.model_with(run.best_weights).state_space, parts), run.step
    began = time.perf_counter()
    for number, point in zip(range(1, most + 1), search.points(), strict=False):
        before, run = run, _validated(problem, run, search, point, first + number, began)
        began = time.perf_counter()
        report(before, run)
        waited = run.step - max(run.best_step, first)
        if point.converged or (problem.split.validation and waited >= FINISH_PATIENCE):
            break
        if interrupted.is_set():
            return dataclasses.replace(run, status="interrupted")
    # Without a finite start there is no better point; without a finite score none that can be told to be good.
    simulates = np.isfinite(run.history[-1].loss) and (not problem.split.validation or np.isfinite(run.best_score))
    return dataclasses.replace(run, status=run.status if simulates else "diverged", finished=True)


@dataclass(frozen=True, eq=False)
class Search:
    """A search for lower errors of whole records, and what its points are as models.

    Args:
        problem: what is trained on what.
        error: what is minimized.
        weights: trained arrays to start from: all but those of the initial state and of the DAE network.
        x0: initial states to start from.
        source: the records as whole windows.
    """

    problem: Problem
    error: FullError
    weights: PyTree[Array]
    x0: Float[Array, "B nx"]
    source: WindowSource

    @classmethod
    def over(cls, problem: Problem, start: StateSpace, parts: str) -> Search:
        """A search from a model."""
        with jax.enable_x64(True):
            model = _doubled(start)
            source = _whole_windows(problem)
            windows = source.gather(jnp.arange(source.count))
            bare = dataclasses.replace(model, limits=None)
            weights, fixed = eqx.partition(bare, _moving(bare, parts))
            penalties = StepSettings.from_config(problem.config).penalties
            limits = None if model.limits is None else jnp.asarray(model.limits).T
            error = FullError(windows, fixed, limits, penalties, problem.initial_model.integrator)
            return cls(problem, error, weights, _first_states(problem, model), source)

    def points(self) -> Iterator[Point]:
        """The points of the search, one per iteration."""
        with jax.enable_x64(True):
            points = levenberg_marquardt(self.error, self.weights, self.x0)
        while True:
            with jax.enable_x64(True):
                point = next(points)
            yield point

    def model(self, point: Point) -> StateSpace:
        """The model at a point in single precision, with what finds its initial states."""
        with jax.enable_x64(True):
            states = np.asarray(states_along(self.error, point.weights, point.x0), float)
            noise = float(jnp.sqrt(point.errors.outputs))
            double = self.error.model(point.weights)
        start = self.problem.initial_model.state_space
        double = dataclasses.replace(double, limits=start.limits)
        model = jax.tree.map(lambda new, old: np.asarray(new).astype(old.dtype), *_arrays(double, start))
        model = eqx.combine(jax.tree.map(jnp.asarray, model), start)
        if isinstance(model.initial, FreeState):
            by_row = self._by_row(states)
            along = by_row[~np.isnan(by_row).any(axis=1)]
            arrays = (point.x0, *expectation(along, noise), spread_out(along))
            found = FreeState(*(jnp.asarray(np.asarray(a).astype(np.float32)) for a in arrays))
            return eqx.tree_at(lambda m: m.initial, model, found)
        return start_encoder(model, self.problem.source, lambda i: self._by_row(states)[self._rows[i]], bend=True)

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


def _validated(problem: Problem, run: RunState, search: Search, point: Point, step: int, began: float) -> RunState:
    state_space = search.model(point)
    weights = eqx.filter(state_space, trainable(state_space))
    model = problem.model_with(weights)
    now = score(problem, model)
    better = now < run.best_score or not problem.split.validation
    seconds = run.seconds + time.perf_counter() - began
    row = HistoryRow(step, float(point.errors.outputs), now, float("nan"), model.tau, seconds)
    return dataclasses.replace(
        run,
        optimiser=OptimiserState.start(weights, step=step),
        best_weights=weights if better else run.best_weights,
        best_score=now if better else run.best_score,
        best_step=step if better else run.best_step,
        history=(*run.history, row),
        seconds=seconds,
    )


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


def _whole_windows(problem: Problem) -> WindowSource:
    """Each training record as one window from its first sample on."""
    model = problem.initial_model
    return WindowSource.from_records(
        problem.split.train, model.scaling, horizon=FULL, n_past=0, longest=model.longest_step, hold=problem.config.hold
    )


def _first_states(problem: Problem, model: StateSpace) -> Float[Array, "n_records nx"]:
    """Where the search for the initial states begins: those that training found, or what the encoder says of the first
    samples it can."""
    if isinstance(model.initial, FreeState):
        return model.initial.x0
    source = problem.source
    stops = np.cumsum([len(record) for record in problem.split.train])
    starts = np.asarray(source.starts(jnp.arange(source.count)))
    first = jnp.asarray(np.searchsorted(starts, stops - [len(record) for record in problem.split.train]))
    past_u, past_y, lag = past_of(source, jnp.minimum(first, source.count - 1))
    return _doubled(model.initial(past_u, past_y, first, lag))


def _moving(model: StateSpace, parts: str) -> PyTree[bool]:
    """Which leaves the search moves: the trainable ones, but for the initial state, the DAE network, and perhaps the
    nonlinear part of g."""

    def still(m: StateSpace) -> tuple[PyTree[Array], ...]:
        return (m.initial, m.dae, *([nonlinear_part(m.g)] if parts == "f" else []))

    nothing = jax.tree.map(lambda _: False, still(model))
    return eqx.tree_at(still, trainable(model), nothing, is_leaf=lambda leaf: leaf is None)


def _arrays(*trees: PyTree[Array]) -> tuple[PyTree[Array], ...]:
    return tuple(eqx.filter(tree, eqx.is_inexact_array) for tree in trees)


def _doubled(tree: PyTree[Array]) -> PyTree[Array]:
    """The tree with its arrays in double precision."""
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), float) if eqx.is_inexact_array(a) else a, tree)
