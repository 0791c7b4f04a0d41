"""A model, its records and its recipe, ready to be trained, and the score that decides which model is the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from tausid.data.records import Record
from tausid.model.evaluation import free_run_errors, run_freely
from tausid.model.initial import FreeState
from tausid.model.model import Model
from tausid.model.state_space import StateSpace
from tausid.training.holdout import Split
from tausid.training.recipe import Recipe
from tausid.training.robust import clipped_to

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, its records and its recipe; constant during training.

    Args:
        recipe: what is done, with nothing left to the data.
        seed: of the windows that Adam draws.
        split: records by role.
        initial_model: the untrained model.
        last_step: where training ends, if before the trainer's own end, which the schedule goes by.
        last_loss: training error above which Levenberg-Marquardt does not end there.
        further: whether it does not end there at all, but where nothing is gained any more.
        variant: which of several random starts.
        trial: whether it is only compared with others, and not what is given back.
    """

    recipe: Recipe
    seed: int
    split: Split
    initial_model: Model
    last_step: int | None = None
    last_loss: float = float("inf")
    further: bool = False
    variant: int = 0
    trial: bool = False

    @property
    def stop(self) -> int:
        """The last step."""
        return self.recipe.trainer.most if self.last_step is None else self.last_step

    @property
    def first_weights(self) -> StateSpace:
        """The weights of the untrained model."""
        return self.initial_model.state_space

    def model_with(self, weights: StateSpace) -> Model:
        """The model with these weights."""
        return dataclasses.replace(self.initial_model, state_space=weights)

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """What a trainer prepares once for all of its steps, by its name."""
        if name not in self._prepared:
            self._prepared[name] = make()
        return self._prepared[name]

    @cached_property
    def _prepared(self) -> dict[str, Any]:
        return {}


def recipe_score(model: Model, records: Sequence[Record], recipe: Recipe) -> float:
    """`validation_score`, by the loss of a recipe's trainer."""
    trainer = recipe.trainer
    return validation_score(model, records, output_weights=trainer.output_weights, robust=trainer.robust)


def validation_score(
    model: Model,
    records: Sequence[Record],
    *,
    output_weights: tuple[float, ...] | None,
    robust: bool = False,
) -> float:
    """Root mean squared free-run error over all records and outputs, each output normalized and weighted.

    With the robust loss errors count as in training. NaN without records, infinite where a simulation diverges.
    """
    if not records:
        return float("nan")
    model = _judged(model)
    runs = [run_freely(model, record, None) for record in records]
    measured = clipped_to(runs, records) if robust else records
    errors, counts = zip(*map(free_run_errors, runs, measured), strict=True)
    weights = mean_one(output_weights)
    relative = [error / model.scaling.y_std for error in errors]
    squares = [np.mean(r**2 if weights is None else weights * r**2) for r in relative]
    return float(np.sqrt(np.average(squares, weights=counts)))


def _judged(model: Model) -> Model:
    """The model as it is judged by its own records: their states are no guess of where these records begin."""
    initial = model.state_space.initial
    if not isinstance(initial, FreeState):
        return model
    judged = dataclasses.replace(initial, near_seen=False)
    return dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, initial=judged))


def mean_one(weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Weights of outputs, scaled to a mean of one, so that they do not change how much penalties count."""
    return None if weights is None else tuple(w * len(weights) / sum(weights) for w in weights)
