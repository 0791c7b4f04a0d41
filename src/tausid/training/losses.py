"""The terms of the training objective, each a small pure function of normalized quantities."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

SHARPNESS = 0.1  # width of the smooth step of `sigmoid_barrier`, in units of a minor


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


def dae_penalty(values: Float[Array, "*B 1"]) -> Float[Array, ""]:
    """`L_D / lambda_D = mean d(x, u)^2`: the DAE network's values along the trajectory are drawn to zero."""
    return jnp.mean(values**2)


def leading_minors(matrix: Float[Array, "n n"]) -> Float[Array, "n"]:
    """Determinants of the leading principal submatrices.

    Example:
        >>> leading_minors(jnp.diag(jnp.array([2.0, 3.0])))
        Array([2., 6.], dtype=float32)
    """
    n = matrix.shape[0]
    return jnp.stack([jnp.linalg.det(matrix[:i, :i]) for i in range(1, n + 1)])


def negative_definite_barrier(A: Float[Array, "n n"]) -> Float[Array, ""]:
    """`L_N / lambda_N`: 0 where A is negative definite, and 1 plus the violation elsewhere.

    By Sylvester's criterion A is negative definite just where all leading minors m_i of `-(A + A') / 2` are positive.
    The paper's barrier is the step alone, which has no gradient; the violation `sum max(0, -m_i)` gives it one.
    """
    minors = leading_minors(-(A + A.T) / 2)
    violation = jnp.sum(jnp.maximum(0.0, -minors))
    return jnp.where(jnp.all(minors > 0), 0.0, 1.0 + violation)


def sigmoid_barrier(A: Float[Array, "n n"]) -> Float[Array, ""]:
    """A smooth step in place of the paper's: `sum sigmoid(-m_i / SHARPNESS)` over the minors of `-(A + A') / 2`.

    Its gradient does not end where A becomes negative definite: it pushes the minors on, to several times SHARPNESS.
    """
    return jnp.sum(jax.nn.sigmoid(-leading_minors(-(A + A.T) / 2) / SHARPNESS))


def contraction_penalty(jacobians: Float[Array, "n nx nx"]) -> Float[Array, ""]:
    """`L_C / lambda_C = mean max(0, mu)`, with mu the largest eigenvalue of `(J + J') / 2` at each point.

    Where mu is negative, neighbouring trajectories come closer to each other: the system forgets its initial state.
    """
    symmetric = (jacobians + jnp.swapaxes(jacobians, -1, -2)) / 2
    # mu = v' S v has the derivative v' dS v: v itself need not be differentiated, which fails where eigenvalues meet.
    v = jnp.linalg.eigh(jax.lax.stop_gradient(symmetric))[1][..., -1]
    return jnp.mean(jnp.maximum(0.0, jnp.einsum("ni,nij,nj->n", v, symmetric, v)))


def weight_decay(weights: PyTree[Array]) -> Float[Array, ""]:
    """`L_W / lambda_W = ||theta||^2`, the sum of all squared weights."""
    leaves = jax.tree.leaves(eqx.filter(weights, eqx.is_inexact_array))
    return sum((jnp.sum(leaf**2) for leaf in leaves), start=jnp.zeros(()))
