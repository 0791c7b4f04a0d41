"""Adam on windows (eq. 14): many steps in one compiled call, then a validation and a decision."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree

from tausid.engine.choice import Engine
from tausid.engine.engines import evaluate, rollout
from tausid.engine.integrators import FixedStep
from tausid.model.initial import FreeState
from tausid.model.model import Model
from tausid.model.state_space import StateSpace
from tausid.shapes import Array
from tausid.training.losses import simulation_error, weight_decay
from tausid.training.paper import BARRIERS, dae_penalty, dae_values
from tausid.training.parts import FULL, Adam
from tausid.training.problem import Problem, mean_one, validation_score
from tausid.training.result import HistoryRow
from tausid.training.run_state import RunState, Status
from tausid.training.trainable import trainable
from tausid.training.windows import Windows, WindowSource, make_windows

FORGETTING = 0.9  # Adam's b1
MOST_VALIDATED = 512  # windows in one validation
ADAM = optax.scale_by_adam(b1=FORGETTING)
# After a step that is not finite the learning rate is multiplied by this.
RECOVERY_FACTOR = 0.3


class Moments(eqx.Module):
    """What Adam carries on beside the weights.

    Args:
        moments: Adam's moments.
        rate_scale: factor on the learning rate, lowered after a failure.
    """

    moments: PyTree[Array]
    rate_scale: Float[Array, ""]

    @classmethod
    def start(cls, weights: PyTree[Array], rate_scale: float = 1.0) -> Moments:
        """Fresh moments at these weights."""
        return cls(ADAM.init(weights), jnp.asarray(rate_scale))

    @property
    def gradient_norm(self) -> float:
        """Norm of Adam's running mean of the gradient, its bias towards the zeros it began with taken out."""
        mean, count = self.moments.mu, int(self.moments.count)
        squares = sum(float(np.sum(np.square(np.asarray(leaf, float)))) for leaf in jax.tree.leaves(mean))
        return float(np.sqrt(squares)) / (1.0 - FORGETTING**count) if count else float("nan")


def init(problem: Problem, weights: StateSpace | None = None) -> RunState:
    """The state before the first step, from the untrained model on, or from other weights."""
    weights = problem.first_weights if weights is None else weights
    _training_windows(problem)  # records that are too short say so first
    first = _score(problem, problem.model_with(weights))
    return RunState(
        inner=Moments.start(_trained(weights)[0]),
        weights=weights,
        step=0,
        best_weights=weights,
        best_score=first if np.isfinite(first) else np.inf,
        best_step=0,
        history=(),
        seconds=0.0,
        status=Status.RUNNING,
        first_score=first if np.isfinite(first) else np.inf,
    )


def step(problem: Problem, run: RunState) -> RunState:
    """A chunk of steps, up to the next validation; then the validation, and whether training ends."""
    began = time.perf_counter()
    trainer, model = _trainer(problem), problem.initial_model
    trained, fixed = _trained(run.weights)
    trained, inner, loss, good = run_steps(
        trained,
        run.inner,
        fixed,
        _training_windows(problem),
        jnp.asarray(run.step, jnp.int32),
        jnp.asarray(min(trainer.validate_every, problem.stop - run.step), jnp.int32),
        jax.random.key(problem.seed),
        _compiled_part(trainer),
        model.integrator,
        _engine(model),
    )
    finite = bool(good)  # waits for the steps to be done
    taken = int(inner.moments.count) - int(run.inner.moments.count)
    weights = jax.tree.map(np.asarray, eqx.combine(trained, fixed))
    run = dataclasses.replace(
        run, weights=weights, inner=inner, step=run.step + taken, seconds=run.seconds + time.perf_counter() - began
    )
    return _decide(_validate(problem, run, float(loss)) if finite else _recover(run, trainer), problem)


def _trained(model: StateSpace) -> tuple[PyTree[Array], PyTree[Array]]:
    """The arrays that are trained, and everything else."""
    return eqx.partition(model, trainable(model))


def _trainer(problem: Problem) -> Adam:
    trainer = problem.recipe.trainer
    assert isinstance(trainer, Adam)
    return trainer


def _compiled_part(trainer: Adam) -> Adam:
    """The trainer with only what a step depends on, so that others share its compiled program."""
    return dataclasses.replace(
        trainer, horizon=FULL, patience=1, validate_every=1, validation_error="free-run", max_recoveries=0
    )


def _engine(model: Model) -> Engine:
    return Engine(model.integration.engine, model.integration.threads)


def _training_windows(problem: Problem) -> WindowSource:
    return problem.cached(
        "windows", lambda: make_windows(problem.initial_model, problem.split.train, horizon=_trainer(problem).horizon)
    )


def _score(problem: Problem, model: Model) -> float:
    """What decides which model is the best: the error of free runs, or of windows; NaN without validation records."""
    trainer, records = _trainer(problem), problem.split.validation
    if trainer.validation_error == "free-run" or not records:
        return validation_score(model, records, output_weights=trainer.output_weights)
    source = problem.cached("validated", lambda: make_windows(problem.initial_model, records, horizon=trainer.horizon))
    return float(np.sqrt(window_error(model.state_space, source, model.integrator, _engine(model))))


def _validate(problem: Problem, run: RunState, loss: float) -> RunState:
    began = time.perf_counter()
    model = problem.model_with(run.weights)
    now = _score(problem, model)
    seconds = run.seconds + time.perf_counter() - began
    better = now < run.best_score or not problem.split.validation
    rate = float(learning_rate(_trainer(problem))(run.step)) * float(run.inner.rate_scale)
    row = HistoryRow(run.step, loss, now, rate, model.tau, seconds, run.inner.gradient_norm)
    return dataclasses.replace(
        run,
        best_weights=run.weights if better else run.best_weights,
        best_score=now if better else run.best_score,
        best_step=run.step if better else run.best_step,
        history=(*run.history, row),
        seconds=seconds,
    )


def _recover(run: RunState, trainer: Adam) -> RunState:
    """Back to the best weights with a lower learning rate; the step counts on."""
    if run.recoveries == trainer.max_recoveries:
        return dataclasses.replace(run, status=Status.DIVERGED)
    inner = Moments.start(_trained(run.best_weights)[0], float(run.inner.rate_scale) * RECOVERY_FACTOR)
    return dataclasses.replace(
        run, weights=run.best_weights, inner=inner, step=run.step + 1, recoveries=run.recoveries + 1
    )


def _decide(run: RunState, problem: Problem) -> RunState:
    validated = bool(problem.split.validation)
    if run.status != Status.RUNNING:
        return run
    simulates = not validated or np.isfinite(run.best_score)
    if run.step >= problem.stop:
        return dataclasses.replace(run, status=Status.COMPLETED if simulates else Status.DIVERGED)
    if validated and run.step - run.best_step >= _trainer(problem).patience:
        return dataclasses.replace(run, status=Status.EARLY_STOPPED if simulates else Status.DIVERGED)
    return run


def objective(
    model: StateSpace, windows: Windows, trainer: Adam, integrator: FixedStep, engine: Engine
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`error + lambda_W ||theta||^2 + lambda_D d^2 + lambda_N barrier(A)` (eq. 14), and the error alone."""
    x0 = model.initial(windows.past_u, windows.past_y, windows.record, windows.lag)
    x = rollout(model.field, x0, windows.u, windows.dt, integrator, engine)
    along = jnp.concatenate([x, windows.u], axis=-1)  # (J, B, nx + nu)
    y_hat = evaluate(model.g, along if model.feedthrough else x, engine)
    y_hat = model.limit(model.with_known_output(y_hat, x, windows.u))
    error = simulation_error(y_hat, windows.y, windows.measured, mean_one(trainer.output_weights))
    total = error + trainer.weight_decay * weight_decay(decayed_weights(model))
    if model.dae is not None:
        total = total + trainer.dae_weight * dae_penalty(dae_values(model.dae, along, engine))
    if trainer.barrier is not None:
        total = total + trainer.barrier.weight * BARRIERS[trainer.barrier.form](model.A)
    return total, error


def decayed_weights(model: StateSpace) -> PyTree[Array]:
    """The arrays that weight decay acts on: all networks, but neither tau nor free initial states."""
    initial = None if isinstance(model.initial, FreeState) else model.initial
    return (model.f, model.g, initial, model.dae)


def learning_rate(trainer: Adam) -> Callable[[Any], Any]:
    """The learning rate as a function of the step.

    `three-step`: the rate, 0.3 of it from step 1000 and 0.09 of it from step 3000, as in the paper.
    `cosine`: from the rate to a hundredth of it at the last step.
    """
    if trainer.schedule == "three-step":
        return optax.piecewise_constant_schedule(trainer.learning_rate, {1000: 0.3, 3000: 0.3})
    return optax.cosine_decay_schedule(trainer.learning_rate, trainer.steps, alpha=0.01)


@eqx.filter_jit
def run_steps(
    weights: PyTree[Array],
    inner: Moments,
    fixed: StateSpace,
    source: WindowSource,
    first: Int[Array, ""],
    count: Int[Array, ""],
    key: PRNGKeyArray,
    trainer: Adam,
    integrator: FixedStep,
    engine: Engine,
) -> tuple[PyTree[Array], Moments, Float[Array, ""], Bool[Array, ""]]:
    """Take `count` steps from step `first` on, or as many as give finite numbers.

    Step k draws its windows with `fold_in(key, k)`. Comes back with the state after the last good step, the mean
    simulation error over the steps, and whether all were good.
    """
    rate = learning_rate(trainer)

    def loss(weights: PyTree[Array], number: Array) -> tuple[Array, Array]:
        windows = source.gather(draw_windows(source, number, key, trainer))
        return objective(eqx.combine(weights, fixed), windows, trainer, integrator, engine)

    def take(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        done, weights, inner, summed, _ = carry
        number = first + done
        (_, error), gradient = jax.value_and_grad(loss, has_aux=True)(weights, number)
        updates, moments = ADAM.update(gradient, inner.moments)
        moved = jax.tree.map(lambda w, d: w - rate(number) * inner.rate_scale * d, weights, updates)
        good = jnp.isfinite(error) & _all_finite(moved)
        new = (moved, Moments(moments, inner.rate_scale))
        kept_weights, kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, (weights, inner))
        return done + 1, kept_weights, kept, summed + jnp.where(good, error, 0.0), good

    start = (jnp.zeros((), jnp.int32), weights, inner, jnp.zeros(()), jnp.asarray(True))
    done, weights, inner, summed, good = jax.lax.while_loop(lambda c: (c[0] < count) & c[4], take, start)
    return weights, inner, summed / jnp.maximum(done - ~good, 1), good


def draw_windows(source: WindowSource, number: Array, key: PRNGKeyArray, trainer: Adam) -> Int[Array, "B"]:
    """Windows of one step; all of them, in order, where they fit into one batch.

    `random`: uniform, with replacement. `epochs`: the next ones of a shuffled pass over all windows; those that do not
    fill the last batch of a pass are left out of it.
    """
    count, batch = source.count, trainer.batch
    if count <= batch:
        return jnp.arange(count)
    if trainer.window_order == "random":
        return jax.random.randint(jax.random.fold_in(key, number), (batch,), 0, count)
    epoch, place = jnp.divmod(number, count // batch)
    shuffled = jax.random.permutation(jax.random.fold_in(key, epoch), count)
    return jax.lax.dynamic_slice_in_dim(shuffled, place * batch, batch)


@eqx.filter_jit
def window_error(model: StateSpace, source: WindowSource, integrator: FixedStep, engine: Engine) -> Float[Array, ""]:
    """Mean squared simulation error of windows, evenly spread over the records and MOST_VALIDATED at most."""
    chosen = np.linspace(0, source.count - 1, min(source.count, MOST_VALIDATED)).round().astype(np.int32)
    return objective(model, source.gather(jnp.asarray(chosen)), Adam(), integrator, engine)[1]


def _all_finite(tree: PyTree[Array]) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
