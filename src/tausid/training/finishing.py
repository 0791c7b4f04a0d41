"""Second order: from the best weights on, Levenberg-Marquardt on the full simulation error in double precision.

Training sees the initial state of each record as free. The encoder is fitted to the states that come out, so that it
never bends them. Folds hold out stretches of outputs, simulate across them, and choose the number of iterations.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from tausid.config import AUTO, FULL, Config
from tausid.errors import ConfigError, DataError
from tausid.free_run import estimated_samples
from tausid.models import FreeState, StateSpace, nonlinear_part
from tausid.records import Record
from tausid.training.loop import Problem, RunState, score
from tausid.training.objective import trainable
from tausid.training.optimiser import OptimiserState, StepSettings
from tausid.training.result import FoldCurve, FoldCurves, HistoryRow
from tausid.training.second_order import FullError, Point, levenberg_marquardt, states_along
from tausid.training.starting import past_of, start_encoder
from tausid.windows import WindowSource

# Iterations without a better validation score after which the finish ends.
FINISH_PATIENCE = 10


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

    Args:
        problem: what is trained on what.
        run: where the first-order training ended.
        most: most iterations.
        parts: whose nonlinear parts are trained, `f` or `both`.
        report: called with the state before and after each iteration.
        interrupted: ends the iterations when it is set.

    Returns:
        Where training is now: the best weights by validation, or the last ones without; `finished` is True.
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
    simulates = np.isfinite(run.history[-1].loss)  # without a finite start there is no better point
    return dataclasses.replace(run, status=run.status if simulates else "diverged", finished=True)


@dataclass(frozen=True)
class FoldPoint:
    """Where a fold is.

    Args:
        fold: which one, from 0.
        iteration: iterations taken.
        trained: mean squared error of the outputs that it is trained on, normalized.
        held_out: root mean squared error of those held out after each iteration so far, normalized.
        seconds: time that the last iteration took.
    """

    fold: int
    iteration: int
    trained: float
    held_out: tuple[float, ...]
    seconds: float


def choose_iterations(
    problem: Problem,
    make_fold: Callable[[Sequence[Record]], Problem],
    *,
    known: Sequence[FoldCurve] = (),
    keep: Callable[[Sequence[FoldCurve]], None] = lambda curves: None,
    report: Callable[[FoldPoint], None],
    interrupted: threading.Event,
) -> FoldCurves:
    """How many iterations give the lowest error on held-out stretches of the training records, and of which parts.

    Fold k is trained without the outputs of the k-th stretch of each record, for which it is simulated all the same:
    the inputs are known. Its scaling and its start are its own.

    Args:
        problem: what is trained on what.
        make_fold: the problem on records some of whose outputs are missing.
        known: what the first folds said before an interruption.
        keep: called with what all folds said so far after each of them.
        report: called after each iteration.
        interrupted: ends the folds when it is set; `chosen` is then 0.

    Returns:
        The folds' curves, for the parts with the lowest pooled error.
    """
    config, curves, choices = problem.config, list(known), choices_of_parts(problem.config)
    make_stretch = functools.lru_cache(maxsize=1)(functools.partial(_make_fold, problem, make_fold))
    for k in range(len(curves), rounds(config)):
        began = time.perf_counter()
        stretch, which = divmod(k, len(choices))
        fold = make_stretch(stretch)
        search = Search.over(fold, fold.initial_model.state_space, choices[which], problem.split.train)
        errors, scored = _train_fold(search, k, report, interrupted)
        curve = FoldCurve(errors, scored, time.perf_counter() - began)
        if interrupted.is_set():
            return FoldCurves((), (), (), 0, sum(done.seconds for done in (*curves, curve)))
        curves.append(curve)
        keep(curves)
    pooled = [
        dataclasses.replace(pool_iterations(curves[i :: len(choices)], config.finish_steps), parts=parts)
        for i, parts in enumerate(choices)
    ]
    best = min(pooled, key=lambda curves: min(curves.pooled))
    return dataclasses.replace(best, seconds=sum(curves.seconds for curves in pooled))


def choices_of_parts(config: Config) -> tuple[str, ...]:
    """Whose nonlinear parts may be trained, the simpler choice first.

    Args:
        config: the settings.

    Returns:
        One choice, or several for folds to choose from.
    """
    return ("f", "both") if config.finish_parts == AUTO else (config.finish_parts,)


def rounds(config: Config) -> int:
    """How many folds are trained: all of them for each choice.

    Args:
        config: the settings.

    Returns:
        Their number.
    """
    return config.folds * len(choices_of_parts(config))


def _make_fold(problem: Problem, make_fold: Callable[[Sequence[Record]], Problem], stretch: int) -> Problem:
    config, kept = problem.config, estimated_samples(problem.config)
    try:
        return make_fold([without_stretch(record, stretch, config.folds, kept) for record in problem.split.train])
    except DataError as error:
        raise DataError(
            f"each of {config.folds} folds must be able to train without its stretch; fold {stretch + 1} is not: "
            f"{error} Use fewer folds, or folds=0 with validation records."
        ) from None


def _train_fold(
    search: Search, k: int, report: Callable[[FoldPoint], None], interrupted: threading.Event
) -> tuple[tuple[float, ...], int]:
    """The held-out error after each iteration, and how many outputs it is over."""
    errors: tuple[float, ...] = ()
    last = time.perf_counter()
    for number, point in zip(range(1, search.problem.config.finish_steps + 1), search.points(), strict=False):
        errors = (*errors, float(point.errors.held_out) ** 0.5)
        spent, last = time.perf_counter() - last, time.perf_counter()
        report(FoldPoint(k, number, float(point.errors.trained), errors, spent))
        if point.converged or interrupted.is_set():
            break
    return errors, int(jnp.sum(search.error.windows.measured & ~search.error.trained))


def pool_iterations(curves: Sequence[FoldCurve], most: int) -> FoldCurves:
    """The folds' curves together; one that has converged stays at its last error.

    Args:
        curves: one per fold.
        most: most iterations.

    Returns:
        The curves; `chosen` is 0 where no pooled error is finite.

    Raises:
        ConfigError: no fold holds out any measured output.
    """
    scores = np.array([(*curve.errors, *curve.errors[-1:] * (most - len(curve.errors))) for curve in curves])
    scores = np.where(np.isfinite(scores), scores, np.inf)
    counts = np.array([curve.scored for curve in curves])
    if not counts.any():
        raise ConfigError(
            f"`folds` must hold out measured outputs; none of {len(curves)} folds does. Use folds=0, or longer records."
        )
    pooled = np.sqrt(np.average(scores[counts > 0] ** 2, axis=0, weights=counts[counts > 0]))
    steps = tuple(range(1, most + 1))
    chosen = steps[int(np.argmin(pooled))] if np.isfinite(pooled).any() else 0
    spent = sum(curve.seconds for curve in curves)
    return FoldCurves(steps, tuple(map(tuple, scores.tolist())), tuple(pooled.tolist()), chosen, spent)


def without_stretch(record: Record, k: int, folds: int, kept: int) -> Record:
    """The record without the outputs of its k-th stretch.

    Args:
        record: the record.
        k: which stretch, from 0.
        folds: how many stretches of equal length there are.
        kept: leading samples of the record that stay, at most half a stretch: without them nothing would be known of
            its initial state.

    Returns:
        The record; NaN where outputs are left out.
    """
    start, stop = (round(len(record) * i / folds) for i in (k, k + 1))
    y = np.array(record.y, float)
    y[max(start, min(kept, len(record) // (2 * folds))) : stop] = np.nan
    return dataclasses.replace(record, y=y)


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
    def over(cls, problem: Problem, start: StateSpace, parts: str, records: Sequence[Record] | None = None) -> Search:
        """A search from a model.

        Args:
            problem: what is trained on what.
            start: the model in single precision.
            parts: whose nonlinear parts are trained, `f` or `both`.
            records: the training records with held-out outputs, too; None where nothing is held out.

        Returns:
            The search.
        """
        with jax.enable_x64(True):
            model = _doubled(start)
            trained = _whole_windows(problem, problem.split.train)
            source = trained if records is None else _whole_windows(problem, records)
            windows = source.gather(jnp.arange(source.count))
            counted = trained.gather(jnp.arange(trained.count)).measured
            bare = dataclasses.replace(model, limits=None)
            weights, fixed = eqx.partition(bare, _moving(bare, parts))
            penalties = StepSettings.from_config(problem.config).penalties
            limits = None if model.limits is None else jnp.asarray(model.limits).T
            error = FullError(windows, counted, fixed, limits, penalties, problem.initial_model.integrator)
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
        """The model at a point in single precision, with an encoder for its states.

        Args:
            point: where the search is.

        Returns:
            The model.
        """
        with jax.enable_x64(True):
            states = np.asarray(states_along(self.error, point.weights, point.x0), float)
            double = self.error.model(point.weights)
        start = self.problem.initial_model.state_space
        double = dataclasses.replace(double, limits=start.limits)
        model = jax.tree.map(lambda new, old: np.asarray(new).astype(old.dtype), *_arrays(double, start))
        model = eqx.combine(jax.tree.map(jnp.asarray, model), start)
        if isinstance(model.initial, FreeState):
            x0 = np.asarray(point.x0).astype(model.initial.x0.dtype)
            return eqx.tree_at(lambda m: m.initial.x0, model, jnp.asarray(x0))
        return start_encoder(model, self.problem.source, self._at_samples(states), bend=True)

    def _at_samples(self, states: Float[np.ndarray, "J B nx"]) -> Callable[[np.ndarray], np.ndarray]:
        """States by sample, counted through all records; NaN where nothing was simulated."""
        stops = np.asarray(self.source.stops)
        by_row = np.full((stops[-1], states.shape[-1]), np.nan)
        first = np.asarray(self.source.starts(jnp.arange(self.source.count)))
        rows = np.arange(len(by_row)) if self.source.rows is None else np.asarray(self.source.rows)
        for row, column in zip(rows[first], np.swapaxes(states, 0, 1), strict=True):
            stop = min(stops[np.searchsorted(stops, row, side="right")], row + len(column))
            by_row[row:stop] = column[: stop - row]
        return lambda samples: by_row[rows[samples]]


def _validated(problem: Problem, run: RunState, search: Search, point: Point, step: int, began: float) -> RunState:
    state_space = search.model(point)
    weights = eqx.filter(state_space, trainable(state_space))
    model = problem.model_with(weights)
    now = score(problem, model)
    better = now < run.best_score or not problem.split.validation
    seconds = run.seconds + time.perf_counter() - began
    row = HistoryRow(step, float(point.errors.trained), now, float("nan"), model.tau, seconds)
    return dataclasses.replace(
        run,
        optimiser=OptimiserState.start(weights, step=step),
        best_weights=weights if better else run.best_weights,
        best_score=now if better else run.best_score,
        best_step=step if better else run.best_step,
        history=(*run.history, row),
        seconds=seconds,
    )


def _whole_windows(problem: Problem, records: Sequence[Record]) -> WindowSource:
    """Each record as one window from its first sample on."""
    model = problem.initial_model
    return WindowSource.from_records(
        records, model.scaling, horizon=FULL, n_past=0, longest=model.longest_step, hold=problem.config.hold
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
