"""The search for a structure: what held-out data say of states, kind of network, and a nonlinear g.

Structures are tried one step away from the best so far, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tausid.model.structure import AUTO
from tausid.training.driver import Session
from tausid.training.parts import Folds, LevenbergMarquardt, Search
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task
from tausid.training.result import FoldCurves
from tausid.training.trials import BETTER, NEGLIGIBLE, Trials

# What is tried instead of the first choice, in this order.
OTHERS: dict[str, Any] = {"activation": "tanh", "network": "polynomial", "nonlinear_g": True}
KINDS = ("activation", "network")  # of networks
# A nonlinear g must be better by this factor: states can mostly be chosen such that outputs are linear in them, and
# what g bends at once, without any dynamics, is the first to be wrong for inputs of another kind.
BENT_G = 0.5


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen.

    Args:
        recipe: the recipe with nothing left open.
        curves: what the folds said of it; None where validation records decide when to stop.
        trials: what tried structures; None where there was no choice.
    """

    recipe: Recipe
    curves: FoldCurves | None = None
    trials: Trials | None = None

    @property
    def seconds(self) -> float:
        """Time spent on all trials."""
        return 0.0 if self.trials is None else self.trials.seconds

    @property
    def tried(self) -> int:
        """Number of trials."""
        return 0 if self.trials is None else self.trials.done


def choose(task: Task, session: Session) -> Choice:
    """The best structure of those that are open, and how many steps folds allow it; after an interruption the best so
    far."""
    start, folds = task.problem.recipe, isinstance(task.problem.recipe.holdout, Folds)
    count = count_structures(task)
    if count == 1 and not folds:
        return Choice(start)
    trials = Trials(task, session, count)
    best, curves, tried = start, trials.of(start), [start]
    for candidates in _ladders(task, trials.most_states) if count > 1 else ():
        for change in candidates:
            step = change(best)
            fewer_helped = best.structure.order < start.structure.order
            more = fewer_helped and step.structure.order > start.structure.order
            if session.interrupted.is_set() or curves.lowest < NEGLIGIBLE or more or step in tried:
                break
            tried.append(step)
            enough = BETTER if step.structure.nonlinear_g == best.structure.nonlinear_g else BENT_G
            found = trials.of(step, rival=best, enough=enough)
            if not found.lowest < enough * curves.lowest:
                break
            best, curves = step, found
    return Choice(best, curves if folds else None, trials)


def count_structures(task: Task) -> int:
    """How many structures there are to try, or one or two more or fewer, as they turn out."""
    recipe = task.problem.recipe
    held_out = bool(task.problem.split.validation) or isinstance(recipe.holdout, Folds)
    if not (held_out and isinstance(recipe.search, Search) and isinstance(recipe.trainer, LevenbergMarquardt)):
        return 1
    states = _is_open(task, "nx")
    others = sum((1 + (states and name in KINDS)) * _is_open(task, name) for name in OTHERS)
    return 1 + recipe.structure.order * states + others


def _is_open(task: Task, name: str) -> bool:
    return getattr(task.asked.structure, name) == AUTO


def _ladders(task: Task, most_states: int) -> Iterator[Iterator[Callable[[Recipe], Recipe]]]:
    """Changes to be tried one after the other, each series as long as it gets better: fewer states, more, and so on.

    A linear model takes additional states for what is nonlinear, so that much fewer may do: all of them are tried. A
    kind of network that suits the plant may do with one state less than the one that the states were chosen with.
    """
    order = task.problem.recipe.structure.order
    if _is_open(task, "nx"):
        yield from (iter([_change(nx=n)]) for n in range(1, order))
        yield (_change(nx=n) for n in range(order + 1, min(2 * order + 1, most_states) + 1))
    for name, value in OTHERS.items():
        if _is_open(task, name):
            yield iter([_change(**{name: value})])
            if _is_open(task, "nx") and name in KINDS:
                yield iter([_change(1, **{name: value})])


def _change(fewer: int = 0, **settings: Any) -> Callable[[Recipe], Recipe]:
    def apply(best: Recipe) -> Recipe:
        return best.with_structure(**{"nx": max(1, best.structure.order - fewer), **settings})

    return apply
