"""The arrays of a model by name, as its file holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tausid.data.scaling import Scaling

SCALING_FIELDS = ("u_mean", "u_std", "y_mean", "y_std")


def named_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """All arrays of a tree by their path, such as `f.mlp.weights[0]`."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))[0]
    return {_path_name(path): np.asarray(leaf) for path, leaf in leaves}


def fill_arrays(tree: PyTree, arrays: Mapping[str, np.ndarray]) -> PyTree:
    """The tree with its arrays replaced by those of the same names."""

    def replace(path: Any, leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        name = _path_name(path)
        new = arrays[name]
        if new.shape != leaf.shape:
            raise TypeError(f"{name} has shape {new.shape} instead of {leaf.shape}")
        return new if isinstance(leaf, np.ndarray) else jnp.asarray(new)

    return jax.tree_util.tree_map_with_path(replace, tree)


def _path_name(path: Any) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def scaling_arrays(scaling: Scaling) -> dict[str, np.ndarray]:
    """Means and deviations by name."""
    return {f"scaling.{name}": getattr(scaling, name) for name in SCALING_FIELDS}
