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

from tausid.config import Config
from tausid.models import StateSpace
from tausid.rollout import Engine, FixedStep
from tausid.training.objective import Penalties, objective, trainable
from tausid.windows import WindowSource

FORGETTING = 0.9  # Adam's b1
ADAM = optax.scale_by_adam(b1=FORGETTING)


@dataclass(frozen=True)
class StepSettings:
    """What a compiled step depends on, and nothing else: runs that differ in their seed share one compilation.

    Args:
        batch: windows per step.
        penalties: weights of the penalties.
        learning_rate: the rate at the first step.
        schedule: `three-step` or `cosine`.
        max_steps: most steps, the length of the cosine.
        engine: what computes the rollout.
    """

    batch: int
    penalties: Penalties
    learning_rate: float
    schedule: str
    max_steps: int
    engine: Engine

    @classmethod
    def from_config(cls, config: Config) -> StepSettings:
        """What the steps need of all settings.

        Args:
            config: all settings.

        Returns:
            The part for the steps.
        """
        weights = mean_one(config.output_weights)
        penalties = Penalties(config.weight_decay, config.dae_weight, config.barrier_weight, weights)
        engine = Engine(config.engine, config.threads)
        return cls(config.batch, penalties, config.learning_rate, config.schedule, config.max_steps, engine)


def mean_one(weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Weights of outputs, scaled to a mean of one, so that they do not change how much penalties count.

    Args:
        weights: one per output, or None.

    Returns:
        The scaled weights, or None.
    """
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
        """Fresh moments at these weights.

        Args:
            weights: the trained arrays.
            step: steps taken so far.
            rate_scale: factor on the learning rate.

        Returns:
            The state.
        """
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

    Args:
        settings: the rate and the name of the schedule.

    Returns:
        The schedule.
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
    """Take `count` steps, or as many as give finite numbers.

    Args:
        state: where the optimisation is.
        model: the model; its trained arrays are replaced by those of `state`.
        source: the training windows.
        count: how many steps.
        key: random key; step k draws its windows with `fold_in(key, k)`.
        settings: batch size, learning rate, weights of the penalties.
        integrator: how to integrate.

    Returns:
        The state after the last good step, the mean simulation error over the steps, and whether all were good.
    """
    fixed = eqx.partition(model, trainable(model))[1]
    rate = learning_rate(settings)

    def loss(weights: PyTree[Array], step: Array) -> tuple[Array, Array]:
        windows = source.gather(draw_windows(source, step, key, settings.batch))
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


def draw_windows(source: WindowSource, step: Array, key: PRNGKeyArray, batch: int) -> Int[Array, "B"]:
    """Windows of one step: uniform, with replacement; all of them, in order, where they fit into one batch.

    Args:
        source: the training windows.
        step: the step's number.
        key: random key.
        batch: windows per step.

    Returns:
        Which windows.
    """
    count = source.count
    if count <= batch:
        return jnp.arange(count)
    return jax.random.randint(jax.random.fold_in(key, step), (batch,), 0, count)


def _all_finite(tree: PyTree[Array]) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
