"""Adam on random windows, many steps in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from tausid.engine.engines import Engine
from tausid.engine.integrators import FixedStep
from tausid.model.config import Config
from tausid.model.state_space import StateSpace
from tausid.training.objective import Penalties, objective, trainable
from tausid.training.windows import WindowSource

FORGETTING = 0.9  # Adam's b1
MOST_VALIDATED = 512  # windows in one validation
ADAM = optax.scale_by_adam(b1=FORGETTING)


@dataclass(frozen=True)
class StepSettings:
    """What a compiled step depends on, and nothing else: runs that differ in their seed share one compilation.

    Args:
        batch: windows per step.
        window_order: `random` or `epochs`.
        penalties: weights of the penalties.
        learning_rate: the rate at the first step.
        schedule: `three-step` or `cosine`.
        max_steps: most steps, the length of the cosine.
        engine: what computes the rollout.
    """

    batch: int
    window_order: str
    penalties: Penalties
    learning_rate: float
    schedule: str
    max_steps: int
    engine: Engine

    @classmethod
    def from_config(cls, config: Config) -> StepSettings:
        """What the steps need of all settings."""
        weights = mean_one(config.output_weights)
        return cls(
            batch=config.batch,
            window_order=config.window_order,
            penalties=Penalties(
                weight_decay=config.weight_decay,
                dae=config.dae_weight,
                barrier=config.barrier_weight,
                barrier_form=config.barrier_form,
                nonlinear_decay=config.nonlinear_decay,
                contraction=config.contraction_weight,
                outputs=weights,
            ),
            learning_rate=config.learning_rate,
            schedule=config.schedule,
            max_steps=config.max_steps,
            engine=Engine(config.engine, config.threads),
        )


def mean_one(weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Weights of outputs, scaled to a mean of one, so that they do not change how much penalties count."""
    return None if weights is None else tuple(w * len(weights) / sum(weights) for w in weights)


class OptimiserState(eqx.Module):
    """Where the optimisation is.

    Args:
        weights: the trained arrays; the model's other leaves are None.
        moments: Adam's moments.
        step: steps taken.
        rate_scale: factor on the learning rate, lowered after a failure.
    """

    weights: PyTree[Array]
    moments: PyTree[Array]
    step: Int[Array, ""]
    rate_scale: Float[Array, ""]

    @classmethod
    def start(cls, weights: PyTree[Array], *, step: int = 0, rate_scale: float = 1.0) -> OptimiserState:
        """Fresh moments at these weights."""
        return cls(weights, ADAM.init(weights), jnp.asarray(step, jnp.int32), jnp.asarray(rate_scale))

    @property
    def gradient_norm(self) -> float:
        """Norm of Adam's running mean of the gradient, its bias towards the zeros it began with taken out."""
        mean, count = self.moments.mu, int(self.moments.count)
        squares = sum(float(np.sum(np.square(np.asarray(leaf, float)))) for leaf in jax.tree.leaves(mean))
        return float(np.sqrt(squares)) / (1.0 - FORGETTING**count) if count else float("nan")


def learning_rate(settings: StepSettings) -> Callable[[Any], Any]:
    """The learning rate as a function of the step.

    `three-step`: the rate, 0.3 of it from step 1000 and 0.09 of it from step 3000, as in the paper.
    `cosine`: from the rate to a hundredth of it at the last step.
    """
    if settings.schedule == "three-step":
        return optax.piecewise_constant_schedule(settings.learning_rate, {1000: 0.3, 3000: 0.3})
    return optax.cosine_decay_schedule(settings.learning_rate, settings.max_steps, alpha=0.01)


@eqx.filter_jit
def run_steps(
    state: OptimiserState,
    model: StateSpace,
    source: WindowSource,
    count: Int[Array, ""],
    key: PRNGKeyArray,
    settings: StepSettings,
    integrator: FixedStep,
) -> tuple[OptimiserState, Float[Array, ""], Bool[Array, ""]]:
    """Take `count` steps, or as many as give finite numbers."""
    fixed = eqx.partition(model, trainable(model))[1]
    rate = learning_rate(settings)

    def loss(weights: PyTree[Array], step: Array) -> tuple[Array, Array]:
        windows = source.gather(draw_windows(source, step, key, settings))
        return objective(eqx.combine(weights, fixed), windows, settings.penalties, integrator, settings.engine)

    def take(carry: tuple[Array, OptimiserState, Array, Array]) -> tuple[Array, OptimiserState, Array, Array]:
        done, now, summed, _ = carry
        (_, error), gradient = jax.value_and_grad(loss, has_aux=True)(now.weights, now.step)
        updates, moments = ADAM.update(gradient, now.moments)
        weights = jax.tree.map(lambda w, d: w - rate(now.step) * now.rate_scale * d, now.weights, updates)
        good = jnp.isfinite(error) & _all_finite(weights)
        new = OptimiserState(weights, moments, now.step + 1, now.rate_scale)
        kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, now)
        return done + 1, kept, summed + jnp.where(good, error, 0.0), good

    start = (jnp.zeros((), jnp.int32), state, jnp.zeros(()), jnp.asarray(True))
    done, state, summed, good = jax.lax.while_loop(lambda c: (c[0] < count) & c[3], take, start)
    return state, summed / jnp.maximum(done - ~good, 1), good


def draw_windows(source: WindowSource, step: Array, key: PRNGKeyArray, settings: StepSettings) -> Int[Array, "B"]:
    """Windows of one step; all of them, in order, where they fit into one batch.

    `random`: uniform, with replacement. `epochs`: the next ones of a shuffled pass over all windows; those that do not
    fill the last batch of a pass are left out of it.
    """
    count, batch = source.count, settings.batch
    if count <= batch:
        return jnp.arange(count)
    if settings.window_order == "random":
        return jax.random.randint(jax.random.fold_in(key, step), (batch,), 0, count)
    epoch, number = jnp.divmod(step, count // batch)
    shuffled = jax.random.permutation(jax.random.fold_in(key, epoch), count)
    return jax.lax.dynamic_slice_in_dim(shuffled, number * batch, batch)


@eqx.filter_jit
def window_error(model: StateSpace, source: WindowSource, integrator: FixedStep, engine: Engine) -> Float[Array, ""]:
    """Mean squared simulation error of windows, evenly spread over the records and MOST_VALIDATED at most."""
    chosen = np.linspace(0, source.count - 1, min(source.count, MOST_VALIDATED)).round().astype(np.int32)
    return objective(model, source.gather(jnp.asarray(chosen)), Penalties(), integrator, engine)[1]


def _all_finite(tree: PyTree[Array]) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
