"""What only the paper's reproduction needs: the barrier on A and the penalty of the DAE network (section 5)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tausid.engine.choice import Engine
from tausid.engine.engines import evaluate
from tausid.engine.networks import MLP, Network

SHARPNESS = 0.1  # width of the smooth step of `sigmoid_barrier`, in units of a minor


def dae_values(dae: MLP, z: Float[Array, "*B n_in"], engine: Engine) -> Float[Array, "*B 1"]:
    """The DAE network's values d(x, u) along a trajectory: a network without a linear part, and a bias."""
    nothing = jnp.zeros((1, z.shape[-1]), z.dtype)
    return (
        evaluate(Network(nothing, dae.weights, dae.biases[:-1], activation=dae.activation), z, engine) + dae.biases[-1]
    )


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


BARRIERS = {"hinge": negative_definite_barrier, "sigmoid": sigmoid_barrier}
