"""Immutable dataclasses of arrays, which JAX sees as pytrees where it is imported."""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, dataclass_transform

import numpy as np

_unknown_to_jax: list[type[Tree]] = []


def static(*, default: Any = MISSING) -> Any:
    """A field that is no array, on which compiled programs depend."""
    return field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field, static))
class Tree:
    """A base whose subclasses are frozen dataclasses of arrays, tuples of arrays and other trees."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)
        _unknown_to_jax.append(cls)
        if "jax" in sys.modules:
            register()


def register() -> None:
    """Tell JAX of all trees that it does not know; called by every module that gives trees to JAX."""
    while _unknown_to_jax:
        _register(_unknown_to_jax.pop())


def _register(cls: type[Tree]) -> None:
    from jax.tree_util import GetAttrKey, register_pytree_with_keys

    own = fields(cls)  # type: ignore[arg-type]
    names = {kind: [f.name for f in own if f.metadata.get("static", False) is kind] for kind in (False, True)}

    def values(tree: Tree, kind: bool) -> tuple[Any, ...]:
        return tuple(getattr(tree, name) for name in names[kind])

    def flatten(tree: Tree) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return values(tree, False), values(tree, True)

    def flatten_with_keys(tree: Tree) -> tuple[Any, tuple[Any, ...]]:
        return tuple(zip(map(GetAttrKey, names[False]), values(tree, False), strict=True)), values(tree, True)

    def unflatten(constants: tuple[Any, ...], children: Any) -> Tree:
        return made_of(cls, dict(zip((*names[False], *names[True]), (*children, *constants), strict=True)))

    register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def made_of(cls: type[Any], values: dict[str, Any]) -> Any:
    """An object with these fields, whatever they hold, without a call of `__init__`."""
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def namespace(*arrays: Any) -> Any:
    """What computes with these arrays: numpy where all of them are numpy's, else jax.numpy."""
    if all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return np
    import jax.numpy

    return jax.numpy
