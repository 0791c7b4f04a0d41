"""Named recipes: each is a short function that returns one."""

from __future__ import annotations

from typing import Any

from tausid.errors import ConfigError, unknown_name
from tausid.model.structure import AUTO, Structure
from tausid.training.parts import Adam, Barrier, Fixed, FromLinear, LastShare, LevenbergMarquardt, Random, Search
from tausid.training.recipe import Recipe


def default(**structure: Any) -> Recipe:
    """Small networks by Levenberg-Marquardt, from linear and random starts; held-out data and consensus choose.

    Args:
        **structure: fields of `Structure`, such as `nx=2`.

    Returns:
        The recipe.
    """
    usual = {
        "network": AUTO,
        "hidden": (16,),
        "activation": AUTO,
        "bias": True,
        "nonlinear_g": AUTO,
        "output_limits": AUTO,
    }
    return Recipe(
        structure=Structure(**{**usual, **structure}),
        start=FromLinear(),
        trainer=LevenbergMarquardt(),
        holdout=AUTO,
        search=Search(),
        name="default",
    )


def greybox(**structure: Any) -> Recipe:
    """The default recipe for known equations, which are a start of their own; they say what their outputs are.

    What corrects them is held back more than what has nothing to go by.

    Args:
        **structure: fields of `Structure`, such as `correction="network"`.

    Returns:
        The recipe.
    """
    return Recipe(
        structure=Structure(**{"hidden": (20,), **structure}),
        start=Random(weight_range=1.0, bias_range=1.0, nonlinear="zero"),
        trainer=LevenbergMarquardt(decay=1e-4),
        holdout=AUTO,
        search=Search(),
        name="default",
    )


def windows(**structure: Any) -> Recipe:
    """Deep networks on windows, by Adam.

    Args:
        **structure: fields of `Structure`, such as `nx=2`.

    Returns:
        The recipe.
    """
    # More states than the tanks' two: simpler nonlinearities suffice (state augmentation).
    usual = {"nx": 4, "initial_state": "encoder"}
    return Recipe(
        structure=Structure(**{**usual, **structure}),
        start=Random(),
        trainer=Adam(),
        holdout=LastShare(),
        search=Fixed(),
        name="windows",
    )


def paper(**structure: Any) -> Recipe:
    """Section 5 of the paper, to the letter; what it leaves open is named in docs/training.md.

    Args:
        **structure: fields of `Structure`, such as `nx=2`.

    Returns:
        The recipe.
    """
    usual = {"nx": 4, "initial_state": "encoder", "encoder": "mlp", "dae": True}
    return Recipe(
        structure=Structure(**{**usual, **structure}),
        start=Random(A="zero-mean"),
        trainer=Adam(steps=20_000, schedule="three-step", weight_decay=1e-8, dae_weight=1e3, barrier=Barrier()),
        holdout=LastShare(),
        search=Fixed(),
        name="paper",
    )


NAMES = {"default": default, "windows": windows, "paper": paper}


def find(recipe: Recipe | str, *, autonomous: bool = False, known: bool = False) -> Recipe:
    """A recipe by name; `default` gives way to what it cannot do.

    It grows out of a linear approximation, and is `windows` where there is none, without inputs; known equations are a
    start of their own.

    Args:
        recipe: a recipe, or the name of one.
        autonomous: whether the records have no inputs.
        known: whether there are known equations.

    Returns:
        The recipe.

    Raises:
        ConfigError: an unknown name.
    """
    if isinstance(recipe, Recipe):
        return recipe
    if not isinstance(recipe, str) or recipe not in NAMES:
        raise ConfigError(unknown_name("recipe", recipe, NAMES))
    if known:  # as many states as the equations have
        return greybox() if recipe == "default" else NAMES[recipe](nx=AUTO)
    return windows() if recipe == "default" and autonomous else NAMES[recipe]()
