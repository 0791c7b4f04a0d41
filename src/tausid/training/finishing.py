"""Second order at the end: the full simulation error in double precision, by Levenberg-Marquardt or L-BFGS."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from tausid.config import FULL
from tausid.models import StateSpace
from tausid.rollout import FixedStep, rollout_scan
from tausid.training.loop import Problem, RunState, score
from tausid.training.objective import Penalties, decayed_weights, nonlinear_weights, trainable
from tausid.training.optimiser import OptimiserState, StepSettings
from tausid.training.result import HistoryRow
from tausid.windows import Windows, WindowSource

# Iterations without a better validation score after which the finish ends.
FINISH_PATIENCE = 10
# Entries of the largest Jacobian that is computed as a matrix (some 250 MB); beyond, conjugate gradients do without.
LARGEST_JACOBIAN = 3e7
CONJUGATE_STEPS = 50
TOLERANCE = 1e-8


def finish(
    problem: Problem, run: RunState, *, report: Callable[[RunState, RunState], None], interrupted: threading.Event
) -> RunState:
    """Go on from the best weights with second-order steps on the full simulation error (eq. 3), in double precision.

    The weight decays stay in the objective; other penalties, and the noise of random windows, are gone.

    Args:
        problem: what is trained on what.
        run: where the first-order training ended.
        report: called with the state before and after each iteration.
        interrupted: ends the iterations when it is set.

    Returns:
        Where training is now: the best weights by validation, or the last ones without; `finished` is True.
    """
    kind = jax.tree.map(lambda w: w.dtype, run.best_weights)
    first = run.step
    steps = _iterate(problem, run.best_weights)
    for number in range(1, problem.config.finish_steps + 1):
        began = time.perf_counter()
        weights, loss, done = next(steps)
        single = jax.tree.map(lambda w, dtype: jnp.asarray(np.asarray(w), dtype), weights, kind)
        before, run = run, _validated(problem, run, single, loss, first + number, began)
        report(before, run)
        waited = run.step - max(run.best_step, first)
        if done or not np.isfinite(loss) or (problem.split.validation and waited >= FINISH_PATIENCE):
            break
        if interrupted.is_set():
            return dataclasses.replace(run, status="interrupted")
    return dataclasses.replace(run, finished=True)


def _validated(
    problem: Problem, run: RunState, weights: PyTree[Array], loss: float, step: int, began: float
) -> RunState:
    model = problem.model_with(weights)
    now = score(problem, model)
    finite = bool(np.isfinite(loss))
    better = finite and (now < run.best_score or not problem.split.validation)
    seconds = run.seconds + time.perf_counter() - began
    row = HistoryRow(step, loss, now, float("nan"), model.tau, seconds)
    return dataclasses.replace(
        run,
        optimiser=OptimiserState.start(weights if finite else run.best_weights, step=step),
        best_weights=weights if better else run.best_weights,
        best_score=now if better else run.best_score,
        best_step=step if better else run.best_step,
        history=(*run.history, row),
        seconds=seconds,
    )


def _iterate(problem: Problem, weights: PyTree[Array]) -> Iterator[tuple[PyTree[Array], float, bool]]:
    """Weights in double precision, mean squared error and whether that was all, iteration by iteration."""
    with jax.enable_x64(True):
        model = _doubled(problem.initial_model.state_space)
        fixed = eqx.partition(model, trainable(model))[1]
        source = WindowSource.from_records(
            problem.split.train,
            problem.initial_model.scaling,
            horizon=FULL,
            n_past=model.initial.n_past,
            longest=problem.initial_model.longest_step,
            hold=problem.config.hold,
            ts=None if problem.initial_model.past_span is None else problem.initial_model.ts,
        )
        windows = source.gather(jnp.arange(source.count))
        settings = StepSettings.from_config(problem.config)
        aim = Aim(windows, settings.penalties, problem.initial_model.integrator)
        start = _lm if problem.config.finish == "lm" else _lbfgs
        step, state = start(aim, _doubled(weights), fixed)
    while True:
        with jax.enable_x64(True):
            state, weights, loss, done = step(state)
            found = weights, float(loss), bool(done)
        yield found


class Aim(eqx.Module):
    """What the finish minimizes: the sum of squares of `residuals`.

    Args:
        windows: whole records.
        penalties: weights of the outputs and of the weight decays.
        integrator: how to integrate.
    """

    windows: Windows
    penalties: Penalties = eqx.field(static=True)
    integrator: FixedStep = eqx.field(static=True)

    def residuals(
        self, weights: PyTree[Array], fixed: PyTree[Array]
    ) -> tuple[tuple[Float[Array, "J B ny"], PyTree[Array]], Float[Array, ""]]:
        """Errors of the outputs, and the decayed weights, scaled so that their squares sum to N times the objective.

        Args:
            weights: trained arrays.
            fixed: the model's other leaves.

        Returns:
            The residuals, and the mean squared error of the outputs.
        """
        model: StateSpace = eqx.combine(weights, fixed)
        w, pen = self.windows, self.penalties
        x0 = model.initial(w.past_u, w.past_y, w.record, w.lag)
        x = rollout_scan(model.field, x0, w.u, w.dt, self.integrator)
        errors = jnp.where(w.measured, model.output(x, w.u) - w.y, 0.0)
        if pen.outputs is not None:
            errors = errors * jnp.sqrt(jnp.asarray(pen.outputs, errors.dtype))
        count = jnp.maximum(jnp.sum(w.measured), 1)
        decays = ((pen.weight_decay, decayed_weights(model)), (pen.nonlinear_decay, nonlinear_weights(model)))
        drawn = [
            [jnp.sqrt(decay * count) * leaf for leaf in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array))]
            for decay, part in decays
            if decay > 0
        ]
        return (errors, drawn), jnp.sum(errors**2) / count

    def objective(self, weights: PyTree[Array], fixed: PyTree[Array]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Half the sum of the squared residuals, and the mean squared error of the outputs.

        Args:
            weights: trained arrays.
            fixed: the model's other leaves.

        Returns:
            Both.
        """
        residuals, error = self.residuals(weights, fixed)
        squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(residuals)]
        return 0.5 * jnp.sum(jnp.stack(squares)), error


Step = Callable[[Any], tuple[Any, PyTree[Array], Array, Array]]


def _lm(aim: Aim, weights: PyTree[Array], fixed: PyTree[Array]) -> tuple[Step, Any]:
    """Levenberg-Marquardt, one iteration per call."""
    import lineax
    import optimistix

    def residuals(y: PyTree[Array], args: tuple[Aim, PyTree[Array]]) -> tuple[PyTree[Array], Array]:
        return args[0].residuals(y, args[1])

    parameters = sum(leaf.size for leaf in jax.tree.leaves(weights))
    small = parameters * (aim.windows.y.size + 2 * parameters) <= LARGEST_JACOBIAN
    dense, sparse = lineax.Cholesky(), lineax.CG(rtol=1e-3, atol=0.0, max_steps=CONJUGATE_STEPS)
    linear_solver = lineax.Normal(dense if small else sparse)
    solver: Any = optimistix.LevenbergMarquardt(rtol=TOLERANCE, atol=TOLERANCE, linear_solver=linear_solver)
    shape, extra = eqx.filter_eval_shape(residuals, weights, (aim, fixed))
    start = solver.init(residuals, weights, (aim, fixed), {}, shape, extra, frozenset())
    arrays, other = eqx.partition(start, eqx.is_array)  # what is no array never changes: one compilation

    @eqx.filter_jit
    def take(carry: Any, args: tuple[Aim, PyTree[Array]]) -> tuple[Any, PyTree[Array], Array, Array]:
        state = eqx.combine(carry[1], other)
        y, state, _ = solver.step(residuals, carry[0], args, {}, state, frozenset())
        done = solver.terminate(residuals, y, args, {}, state, frozenset())[0]
        return (y, eqx.filter(state, eqx.is_array)), y, state.aux, done

    carry = take((weights, arrays), (aim, fixed))[0]  # the first call evaluates the start and moves nothing
    return lambda now: take(now, (aim, fixed)), carry


def _lbfgs(aim: Aim, weights: PyTree[Array], fixed: PyTree[Array]) -> tuple[Step, Any]:
    """L-BFGS with a line search, one iteration per call."""
    solver = optax.lbfgs()

    @eqx.filter_jit
    def take(carry: Any, args: tuple[Aim, PyTree[Array]]) -> tuple[Any, PyTree[Array], Array, Array]:
        def value(y: PyTree[Array]) -> Array:
            return args[0].objective(y, args[1])[0]

        y, state = carry
        before, slope = optax.value_and_grad_from_state(value)(y, state=state)
        updates, state = solver.update(slope, state, y, value=before, grad=slope, value_fn=value)
        y = optax.apply_updates(y, updates)
        after, error = args[0].objective(y, args[1])
        return (y, state), y, error, before - after <= TOLERANCE * before

    return lambda now: take(now, (aim, fixed)), (weights, solver.init(weights))


def _doubled(tree: PyTree[Array]) -> PyTree[Array]:
    """The tree with its arrays in double precision."""
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), float) if eqx.is_inexact_array(a) else a, tree)
