"""What the search tries: structures and starts next to what a linear approximation suggests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from tausid.model.structure import AUTO, Structure
from tausid.training.full_error import is_compiled
from tausid.training.parts import BY_RESIDUALS, FromLinear, LevenbergMarquardt, RandomDynamics, Search
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task

# Monomials of f beyond which polynomials are not tried.
MOST_MONOMIALS = 60
# Linear models up to so many states are tried, however few the linear approximation has.
USUAL_STATES = 4


@dataclass(frozen=True)
class Kind:
    """What is nonlinear in a candidate, and where its weights start.

    Args:
        network: kind of network; None for a linear model.
        activation: of hidden units.
        nonlinear_g: whether g is nonlinear.
        random: whether the weights start from random dynamics, not from the linear approximation.
        stretches: whether they start from short stretches of the records.
    """

    network: str | None = None
    activation: str = "leaky_relu"
    nonlinear_g: bool = False
    random: bool = False
    stretches: bool = False

    def apply(self, recipe: Recipe, nx: int | None = None) -> Recipe:
        """A recipe with this kind of network, and so many states."""
        structure: dict[str, object] = {"nx": nx or recipe.structure.nx, "activation": self.activation}
        if self.network is None:
            structure |= {"network": "mlp", "hidden": (), "nonlinear_g": False}
        else:
            structure |= {"network": self.network, "nonlinear_g": self.nonlinear_g}
        start = RandomDynamics() if self.random else recipe.start
        if self.stretches and isinstance(start, FromLinear):
            start = dataclasses.replace(start, stretches=True)
        return dataclasses.replace(recipe.with_structure(**structure), start=start)


LINEAR = Kind()
KINDS = (
    Kind("mlp", "leaky_relu"),
    Kind("mlp", "tanh"),
    Kind("mlp", "leaky_relu", True),
    Kind("mlp", "tanh", True),
    Kind("mlp", "tanh", True, random=True),
    Kind("mlp", "tanh", False, random=True),
    Kind("polynomial"),
)
STRETCHED = (Kind("mlp", "tanh", stretches=True), Kind("polynomial", stretches=True))


def is_searched(task: Task) -> bool:
    """Whether held-out data choose the structure."""
    recipe = task.problem.recipe
    return (
        isinstance(recipe.search, Search)
        and isinstance(recipe.trainer, LevenbergMarquardt)
        and isinstance(recipe.start, FromLinear)
        and task.held_out
    )


def first_candidates(task: Task, nx: int | None = None) -> list[Recipe]:
    """The recipe as it is; where there is a search, the linear model and all kinds with so many states."""
    recipe = task.problem.recipe
    if not is_searched(task):
        return [recipe]
    order = nx or recipe.structure.order
    kinds = (LINEAR, *(kind for kind in KINDS if _is_open(task, kind)))
    found = dict.fromkeys(kind.apply(recipe, order) for kind in kinds)
    return [recipe for recipe in found if _is_small(task, recipe)]


def stretched_candidates(task: Task, nx: int) -> list[Recipe]:
    """Where there is a search, kinds with so many states that start from short stretches of the records; none where JAX
    would compile a program for each length."""
    if not is_searched(task) or not is_compiled(task.problem.initial_model):
        return []
    found = [kind.apply(task.problem.recipe, nx) for kind in STRETCHED if _is_open(task, kind)]
    return [recipe for recipe in found if _is_small(task, recipe)]


def linear_candidates(task: Task, most_states: int) -> list[Recipe]:
    """The linear model with as many states as the linear approximation has, half as many, one less, one more, two more,
    as modes come in pairs, and all small numbers of states; none where they are given."""
    if not is_searched(task) or task.asked.structure.nx != AUTO:
        return []
    n = task.problem.recipe.structure.order
    sizes = {(n + 1) // 2, n - 1, n + 1, n + 2, *range(1, USUAL_STATES + 1)} - {0}
    return [LINEAR.apply(task.problem.recipe, nx) for nx in sorted({n, *(m for m in sizes if m <= most_states)})]


def resized_candidates(task: Task, best: Sequence[Recipe], most_states: int, *, unknown: bool = False) -> list[Recipe]:
    """The best kinds with fewer states, as a linear model takes some for what is nonlinear, and with as many as the
    linear approximation has; with all small numbers where that is `unknown`, as no linear model fits. And all kinds
    with one more state: which is the best one depends on how many there are."""
    if not is_searched(task) or task.asked.structure.nx != AUTO or not best:
        return []
    found = []
    for recipe in best:
        n = recipe.structure.order
        sizes = {n - 1, (n + 1) // 2, task.problem.recipe.structure.order}
        sizes |= set(range(1, USUAL_STATES)) if unknown else set()
        found += [recipe.with_structure(nx=nx) for nx in sorted(sizes - {0, n}) if nx <= max(most_states, 1)]
    more = best[0].structure.order + 1
    found += [recipe for recipe in first_candidates(task, more) if more <= most_states and not is_linear(recipe)]
    return [recipe for recipe in dict.fromkeys(found) if _is_small(task, recipe)]


def with_less_decay(task: Task, recipes: Sequence[Recipe]) -> list[Recipe]:
    """Nonlinear candidates whose residuals say how many samples are independent: they need not all be as correlated as
    the plant is slow, and then the evidence lets more be learnt."""
    trainer = task.problem.recipe.trainer
    if not is_searched(task) or not isinstance(trainer, LevenbergMarquardt):
        return []
    less = dataclasses.replace(trainer, independent=BY_RESIDUALS)
    return [dataclasses.replace(recipe, trainer=less) for recipe in recipes if not is_linear(recipe)]


def larger_candidates(task: Task, best: Recipe, most_states: int) -> list[Recipe]:
    """The best candidate with one and with two more states, as modes come in pairs, up to two more than twice those of
    the linear approximation; and with a nonlinear g."""
    if not is_searched(task):
        return []
    structure, found = best.structure, []
    if task.asked.structure.nx == AUTO:
        most = min(most_states, 2 * task.problem.recipe.structure.order + 2)
        found = [best.with_structure(nx=nx) for nx in (structure.order + 1, structure.order + 2) if nx <= most]
    if structure.network == "mlp" and structure.hidden and task.asked.structure.nonlinear_g == AUTO:
        found.append(best.with_structure(nonlinear_g=True))
    return [recipe for recipe in found if _is_small(task, recipe)]


def is_linear(recipe: Recipe) -> bool:
    """Whether nothing is nonlinear."""
    return recipe.structure.network == "mlp" and not recipe.structure.hidden


def has_one_start(recipe: Recipe) -> bool:
    """Whether all fits begin with the same weights."""
    return is_linear(recipe) or (recipe.structure.network == "polynomial" and isinstance(recipe.start, FromLinear))


def describe(structure: Structure) -> str:
    """A structure in words: states, network, and which parts are nonlinear."""
    states = f"{structure.nx} state{'s' * (structure.order > 1)}"
    if structure.network == "mlp" and not structure.hidden:
        return f"{states}, linear"
    network = structure.activation if structure.network == "mlp" else structure.network
    return f"{states}, {network}, {'f and g' if structure.nonlinear_g else 'f'} nonlinear"


def _is_open(task: Task, kind: Kind) -> bool:
    """Whether what was asked for leaves room for a kind."""
    asked = task.asked.structure
    open_activation = kind.network == "polynomial" or asked.activation in (AUTO, kind.activation)
    return asked.network in (AUTO, kind.network) and open_activation and asked.nonlinear_g in (AUTO, kind.nonlinear_g)


def _is_small(task: Task, recipe: Recipe) -> bool:
    """Whether polynomials have few monomials: those of more states take ever longer."""
    structure = recipe.structure
    n_in = structure.order + task.problem.initial_model.state_space.nu
    monomials = comb(n_in + structure.degree, structure.degree) - n_in - 1
    return structure.network != "polynomial" or monomials <= MOST_MONOMIALS
