"""The arrays of a model by name, as its file holds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tausid.data.scaling import Scaling
from tausid.engine.tree import made_of
from tausid.schema import SchemaError

SCALING_FIELDS = ("u_mean", "u_std", "y_mean", "y_std")


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """All arrays of a tree by their path, such as `f.weights[0]`."""
    found: dict[str, np.ndarray] = {}

    def keep(name: str, array: Any) -> Any:
        found[name] = np.asarray(array)
        return array

    map_arrays(keep, tree)
    return found


def fill_arrays(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The tree with its arrays replaced by those of the same names, which must have the same shapes and kinds."""

    def replace(name: str, old: Any) -> np.ndarray:
        new = arrays.get(name)
        if new is None:
            raise SchemaError(f"array `{name}` is missing")
        if new.shape != old.shape:
            raise SchemaError(f"array `{name}` must have shape {old.shape}; it has {new.shape}")
        if new.dtype.kind != old.dtype.kind or new.dtype.itemsize < 4 <= old.dtype.itemsize:
            raise SchemaError(f"array `{name}` must hold numbers of type {old.dtype}; it has {new.dtype}")
        return new

    return map_arrays(replace, tree)


def map_arrays(change: Callable[[str, Any], Any], tree: Any, name: str = "") -> Any:
    """The tree with each array what the function makes of its name and itself; static fields stay as they are.

    A tree is made of dataclasses, named tuples, tuples and dictionaries, whatever library they are from.
    """
    if hasattr(tree, "dtype"):
        return change(name, tree)
    if dataclasses.is_dataclass(tree):
        values = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
        for field in dataclasses.fields(tree):
            if not field.metadata.get("static"):
                values[field.name] = map_arrays(change, values[field.name], _join(name, field.name))
        return made_of(type(tree), values)
    if isinstance(tree, dict):
        return {key: map_arrays(change, value, _join(name, key)) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_arrays(change, getattr(tree, key), _join(name, key)) for key in tree._fields))
    if isinstance(tree, tuple):
        return tuple(map_arrays(change, value, f"{name}[{i}]") for i, value in enumerate(tree))
    return tree


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def scaling_arrays(scaling: Scaling) -> dict[str, np.ndarray]:
    """Means and deviations by name."""
    return {f"scaling.{name}": getattr(scaling, name) for name in SCALING_FIELDS}
