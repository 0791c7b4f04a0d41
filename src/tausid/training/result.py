"""What a fit gives back."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from tausid.display import html_table
from tausid.model.ensembles import AnyModel
from tausid.training.recipe import Recipe

# Share of the outputs' deviation that fits lie apart, beyond which their median is better than one of them.
FAR_APART = 0.1


@dataclass(frozen=True)
class HistoryRow:
    """One validation during training.

    Args:
        step: steps taken.
        loss: mean squared simulation error of the windows since the last row, normalized.
        validation: root mean squared free-run error on the validation records, normalized; NaN without any. With folds
            it is their pooled error after as many steps.
        learning_rate: the rate of the next step.
        tau: the normalization constant in seconds, one number or one per state.
        seconds: time spent so far.
        gradient_norm: Euclidean norm of the loss's gradient, as Adam's running mean over the last ten steps or so has
            it.
    """

    step: int
    loss: float
    validation: float
    learning_rate: float
    tau: float | tuple[float, ...]
    seconds: float
    gradient_norm: float = float("nan")


@dataclass(frozen=True)
class FoldCurve:
    """What one fold said.

    Args:
        steps: steps after which its held-out stretches were simulated, from 0, the start, on.
        errors: their error, normalized; infinite at a start that must not be chosen.
        scored: number of held-out outputs.
        seconds: time spent.
        losses: mean squared error of the training records at these steps, normalized; NaN at the start.
    """

    steps: tuple[int, ...]
    errors: tuple[float, ...]
    scored: int
    seconds: float
    losses: tuple[float, ...] = (float("nan"),)

    @property
    def lowest(self) -> float:
        """The lowest error; NaN without held-out data."""
        return min(self.errors)


@dataclass(frozen=True)
class FoldCurves:
    """What the folds said.

    Args:
        steps: steps after which a fold was validated, from 0, the start, on.
        scores: free-run error of each fold on its held-out stretches at these steps, normalized.
        pooled: their geometric mean at these steps, weighted by what each is scored on: what counts is by how much a
            fold gets better, so that one that holds out what no other shows does not outweigh the rest.
        chosen: the step of the lowest pooled error, which the final fit takes; 0 is the start itself, and what is
            chosen where no error is finite.
    """

    steps: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    pooled: tuple[float, ...]
    chosen: int

    def at(self, step: int) -> float:
        """The pooled error after so many steps.

        Args:
            step: steps taken.

        Returns:
            The error, normalized.
        """
        return self.pooled[bisect.bisect_right(self.steps, step) - 1]

    @property
    def lowest(self) -> float:
        """The lowest pooled error; infinite where none is finite."""
        return min(self.pooled, default=float("inf"))

    @property
    def at_best(self) -> tuple[float, ...]:
        """The error of each fold at the step that is chosen."""
        return tuple(scores[self.steps.index(self.chosen)] for scores in self.scores)


@dataclass(frozen=True)
class Trust:
    """How far a model can be trusted, from training data alone.

    Args:
        held_out: simulation error on held-out data, in deviations of the outputs; None without any.
        linear: the same of the linear model that it is compared with; None where none was tried.
        members: how many models, trained independently, were compared.
        distance: how far their simulations lie apart with other inputs, in deviations of the outputs: the root mean
            square distance from their median, of the median member; None where there was one model only.
        doubt: where nonlinear models gave way to the linear one, how far they lie apart with other inputs, as a share
            of what sets them apart from it; else None.
    """

    held_out: float | None = None
    linear: float | None = None
    members: int = 1
    distance: float | None = None
    doubt: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class FitResult:
    """The outcome of a fit.

    Args:
        model: the best model by its validation score; the last one where there is no validation.
        last_model: the model of the last step.
        history: one row per validation.
        status: `completed`, `early-stopped`, `interrupted` or `diverged`.
        message: what the status means here, and what to do about it.
        steps: steps taken.
        best_step: the step of the best model.
        seconds: time spent, over all resumed parts.
        recipe: what was done, with nothing left to the data.
        seed: the seed.
        versions: versions of the programs involved.
        folds: what the folds said, where the number of steps was chosen by folds.
        members: of an ensemble, the fits of all members, the best first; history, steps and best step above are then
            those of the best one, and seconds all of them together.
        trust: how far the model can be trusted; None where the recipe does not say.
    """

    model: AnyModel
    last_model: AnyModel
    history: tuple[HistoryRow, ...]
    status: str
    message: str
    steps: int
    best_step: int
    seconds: float
    recipe: Recipe
    seed: int
    versions: Mapping[str, str]
    folds: FoldCurves | None = None
    members: tuple[FitResult, ...] = ()
    trust: Trust | None = None

    def __repr__(self) -> str:
        return f"FitResult({self.status} after {self.steps} steps, best at {self.best_step}: {self.model!r})"

    def _repr_html_(self) -> str:
        rows = [
            ("what it means", self.message),
            ("steps", f"{self.steps}, the best is {self.best_step}"),
            ("seconds", self.seconds),
            ("recipe", f"{self.recipe.name}, protocol {self.recipe.protocol}, seed {self.seed}"),
        ]
        return html_table(f"Fit: {self.status}", rows) + self.model._repr_html_()
