"""The terms of the training objective, each a small pure function of normalized quantities."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, PyTree

from tausid.shapes import Array


def simulation_error(
    y_hat: Float[Array, "J B ny"],
    y: Float[Array, "J B ny"],
    measured: Bool[Array, "J B ny"],
    weights: tuple[float, ...] | None = None,
) -> Float[Array, ""]:
    """Mean squared simulation error, `mean (y - y_hat)^2` over all measured samples (eqs. 3 and 14).

    The paper sums where this takes the mean; the minimum is the same up to the weight of the penalties.
    """
    squares = jnp.where(measured, (y - y_hat) ** 2, 0.0)
    if weights is not None:
        squares = squares * jnp.asarray(weights, squares.dtype)
    return jnp.sum(squares) / jnp.maximum(jnp.sum(measured), 1)


def weight_decay(weights: PyTree[Array]) -> Float[Array, ""]:
    """`L_W / lambda_W = ||theta||^2`, the sum of all squared weights."""
    leaves = jax.tree.leaves(eqx.filter(weights, eqx.is_inexact_array))
    return sum((jnp.sum(leaf**2) for leaf in leaves), start=jnp.zeros(()))
