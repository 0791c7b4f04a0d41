"""The normal equations of the full simulation error, in double precision, with sensitivities carried along the states.

The Jacobian of a simulation is not differentiated as a whole. Those of single steps, `dx_{k+1}/dx_k` and
`dx_{k+1}/dtheta`, are computed side by side for a chunk of samples; `S_{k+1} = A_k S_k + B_k` then carries the
sensitivity `S_k = dx_k/d(theta, x0)` along. Only `J'J` and `J'r` are kept, so that memory does not grow with records.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, PyTree

from tausid.engine.integrators import FixedStep
from tausid.engine.networks import Network
from tausid.engine.scan import make_step, rollout_scan
from tausid.model.initial import Encoder, FreeState
from tausid.model.state_space import StateSpace
from tausid.shapes import Array
from tausid.training.losses import weight_decay
from tausid.training.windows import Windows

# Added to the diagonal of J'J, so that parameters that nothing depends on stay where they are.
FLOOR = 1e-8
# Numbers in the sensitivities of one chunk (some 30 MB).
CHUNK = 2**22


class Penalties(eqx.Module):
    """Weights of the outputs and of the weight decays.

    Args:
        weight_decay: of all networks.
        nonlinear_decay: of their nonlinear parts, on top of it.
        outputs: weight of each output's squared error, with a mean of one; None is equally.
    """

    weight_decay: float = eqx.field(static=True, default=0.0)
    nonlinear_decay: float = eqx.field(static=True, default=0.0)
    outputs: tuple[float, ...] | None = eqx.field(static=True, default=None)


class FullError(eqx.Module):
    """What is minimized: the mean squared simulation error of whole records plus the weight decays.

    Args:
        windows: whole records, one window each; the measured outputs count.
        fixed: the model's leaves that are not trained; its limits are those below.
        limits: lowest and highest values of the outputs, an array and so no reason to compile anew; None without.
        penalties: weights of the outputs and of the weight decays.
        integrator: how to integrate.
    """

    windows: Windows
    fixed: StateSpace
    limits: Float[Array, "2 ny"] | None
    penalties: Penalties
    integrator: FixedStep = eqx.field(static=True)

    def model(self, weights: PyTree[Array]) -> StateSpace:
        """The model with these trained arrays."""
        return eqx.combine(weights, self.fixed)

    def limit(self, y: Float[Array, "*B ny"]) -> Float[Array, "*B ny"]:
        """Outputs within their limits."""
        return y if self.limits is None else jnp.clip(y, *self.limits)

    def states(self, weights: PyTree[Array], x0: Float[Array, "B nx"]) -> Float[Array, "J B nx"]:
        """States along the records."""
        return rollout_scan(self.model(weights).field, x0, self.windows.u, self.windows.dt, self.integrator)

    def __call__(self, weights: PyTree[Array], x0: Float[Array, "B nx"]) -> Errors:
        """The objective and its parts."""
        y_hat = self.limit(self.model(weights).output(self.states(weights, x0), self.windows.u))
        squares = self.output_weights * (y_hat - self.windows.y) ** 2
        theta = ravel_pytree(weights)[0]
        error = jnp.mean(squares, where=self.windows.measured)
        return Errors(error + jnp.sum(self.decay(weights) * theta**2), error)

    @property
    def output_weights(self) -> Float[Array, "ny"]:
        """How much the squares of each output count, with a mean of one."""
        ny = self.windows.y.shape[-1]
        return jnp.asarray(self.penalties.outputs or (1.0,) * ny, self.windows.y.dtype)

    def decay(self, weights: PyTree[Array]) -> Float[Array, "P"]:
        """The factor of each trained number's square in the weight decays."""

        def decays(ones: PyTree[Array]) -> Array:
            model, p = self.model(ones), self.penalties
            parts = ((p.weight_decay, _networks(model)), (p.nonlinear_decay, _nonlinear_parts(model)))
            return sum((factor * weight_decay(part) for factor, part in parts), start=jnp.zeros(()))

        ones = jax.tree.map(jnp.ones_like, weights)
        return ravel_pytree(jax.grad(decays)(ones))[0] / 2  # each square has the derivative 2 at one


class Errors(eqx.Module):
    """Squared errors of a simulation.

    Args:
        objective: what is minimized.
        outputs: mean squared error of the outputs.
    """

    objective: Float[Array, ""]
    outputs: Float[Array, ""]


class Normal(eqx.Module):
    """The normal equations of a Gauss-Newton step in the weights theta and the initial state of each record.

    Args:
        H: `J'J` of theta.
        G: `J'J` between theta and each initial state.
        K: `J'J` of each initial state; different ones do not touch.
        h: `J'r` of theta.
        k: `J'r` of each initial state.
    """

    H: Float[Array, "P P"]
    G: Float[Array, "B P nx"]
    K: Float[Array, "B nx nx"]
    h: Float[Array, "P"]
    k: Float[Array, "B nx"]

    def solve(self, damping: Float[Array, ""]) -> tuple[Float[Array, "P"], Float[Array, "B nx"]]:
        """The damped step; the initial states are eliminated first."""
        H, K = damped(self.H, damping), damped(self.K, damping)
        along = jnp.linalg.solve(K, jnp.swapaxes(self.G, 1, 2))  # (B, nx, P)
        alone = jnp.linalg.solve(K, self.k[..., None])[..., 0]
        left = H - jnp.einsum("bpn,bnq->pq", self.G, along)
        theta = -jnp.linalg.solve(left, self.h - jnp.einsum("bpn,bn->p", self.G, alone))
        return theta, -alone - jnp.einsum("bnp,p->bn", along, theta)


@eqx.filter_jit
def normal_equations(error: FullError, weights: PyTree[Array], x0: Float[Array, "B nx"]) -> Normal:
    """The normal equations at a point."""
    theta, unravel = ravel_pytree(weights)
    (B, nx), P = x0.shape, theta.size
    chunks = _chunks(error, nx, P + nx)
    step = _step(error, unravel)
    output = _output(error, unravel)
    slopes = jax.vmap(jax.vmap(jax.jacrev(step, (0, 1)), (None, 0, 0, 0, 0)), (None, 0, 0, 0, 0))
    output_slopes = jax.vmap(jax.vmap(jax.jacrev(output, (0, 1)), (None, 0, 0)), (None, 0, 0))

    def with_x0(of_theta: Array) -> Array:  # nothing depends on the initial state but through the state
        return jnp.concatenate([of_theta, jnp.zeros((*of_theta.shape[:-1], nx), x0.dtype)], axis=-1)

    def advance(x: Array, sample: tuple[Array, ...]) -> tuple[Array, Array]:
        return jax.vmap(step, (None, 0, 0, 0, 0))(theta, x, *sample), x

    def carry_along(S: Array, slopes_here: tuple[Array, ...]) -> tuple[Array, Array]:
        A, Bt, C, Dt = slopes_here
        return A @ S + with_x0(Bt), C @ S + with_x0(Dt)

    def add_chunk(carry: tuple[Array, Array, Normal], chunk: _Chunk) -> tuple[tuple[Array, Array, Normal], None]:
        x, S, sums = carry
        x, along = jax.lax.scan(advance, x, (chunk.u, chunk.u_next, chunk.dt))
        Bt, A = slopes(theta, along, chunk.u, chunk.u_next, chunk.dt)
        Dt, C = output_slopes(theta, along, chunk.u)
        S, J = jax.lax.scan(carry_along, S, (A, Bt, C, Dt))  # J: (chunk, B, ny, P + nx)
        beyond = error.model(weights).output(along, chunk.u)
        y_hat = error.limit(beyond)
        residual = chunk.scale * (y_hat - chunk.y)
        # An output that rests at its limit does not move with what lies beyond.
        J = J * jnp.where(y_hat == beyond, chunk.scale, 0.0)[..., None]
        return (x, S, jax.tree.map(jnp.add, sums, _normal(J, residual, P))), None

    start = jnp.zeros((B, nx, P), x0.dtype)
    S0 = jnp.concatenate([start, jnp.broadcast_to(jnp.eye(nx, dtype=x0.dtype), (B, nx, nx))], axis=-1)
    nothing = _normal(jnp.zeros((1, B, 1, P + nx), x0.dtype), jnp.zeros((1, B, 1), x0.dtype), P)
    sums = jax.lax.scan(add_chunk, (x0, S0, nothing), chunks)[0][2]
    decay = error.decay(weights)
    return eqx.tree_at(lambda n: (n.H, n.h), sums, (sums.H + jnp.diag(decay), sums.h + decay * theta))


@eqx.filter_jit
def states_along(error: FullError, weights: PyTree[Array], x0: Float[Array, "B nx"]) -> Float[Array, "J B nx"]:
    """`FullError.states` as one compiled program."""
    return error.states(weights, x0)


class _Chunk(eqx.Module):
    """Samples that are differentiated side by side, a leading axis of chunks in front; `scale` is zero where nothing
    counts."""

    u: Array
    u_next: Array
    dt: Array
    y: Array
    scale: Array


def _chunks(error: FullError, nx: int, columns: int) -> _Chunk:
    """The records in chunks of equal length; past their end time stands still and nothing counts."""
    w = error.windows
    (J, B, _), (_, _, ny) = w.u.shape, w.y.shape
    length = int(np.clip(CHUNK // (B * (nx + ny) * columns), 8, J))
    scale = jnp.sqrt(error.output_weights / jnp.maximum(jnp.sum(w.measured), 1)) * w.measured
    u_next = jnp.concatenate([w.u[1:], w.u[-1:]])
    dt = jnp.concatenate([w.dt, jnp.zeros((1, B), w.dt.dtype)])
    missing = -J % length

    def cut(values: Array, mode: str) -> Array:
        padded = jnp.pad(values, [(0, missing)] + [(0, 0)] * (values.ndim - 1), mode=mode)
        return padded.reshape(-1, length, *values.shape[1:])

    return _Chunk(cut(w.u, "edge"), cut(u_next, "edge"), cut(dt, "constant"), cut(w.y, "edge"), cut(scale, "constant"))


def _normal(J: Float[Array, "n B ny columns"], residual: Float[Array, "n B ny"], P: int) -> Normal:
    """`J'J` and `J'r` of some samples; the first P columns are those of theta."""
    of_theta, of_x0 = J[..., :P], J[..., P:]
    flat = of_theta.reshape(residual.size, P)
    return Normal(
        H=flat.T @ flat,
        G=jnp.einsum("nbyp,nbyq->bpq", of_theta, of_x0),
        K=jnp.einsum("nbyp,nbyq->bpq", of_x0, of_x0),
        h=flat.T @ residual.reshape(-1),
        k=jnp.einsum("nbyp,nby->bp", of_x0, residual),
    )


def _step(error: FullError, unravel: Callable[[Array], PyTree[Array]]) -> Callable[..., Array]:
    def step(theta: Array, x: Array, u: Array, u_next: Array, dt: Array) -> Array:
        return make_step(error.model(unravel(theta)).field, error.integrator, u.shape[-1])(x, u, u_next, dt)

    return step


def _output(error: FullError, unravel: Callable[[Array], PyTree[Array]]) -> Callable[..., Array]:
    def output(theta: Array, x: Array, u: Array) -> Array:
        return error.model(unravel(theta)).output(x, u)

    return output


def _networks(model: StateSpace) -> PyTree[Array]:
    """What the weight decay acts on: all networks, but neither tau nor free initial states."""
    return (model.f, model.g, None if isinstance(model.initial, FreeState) else model.initial, model.dae)


def _nonlinear_parts(model: StateSpace) -> PyTree[Array]:
    encoder = model.initial.network if isinstance(model.initial, Encoder) else None
    return model.f.nonlinear, model.g.nonlinear, encoder.nonlinear if isinstance(encoder, Network) else encoder


def damped(matrix: Float[Array, "*B n n"], damping: Float[Array, ""]) -> Float[Array, "*B n n"]:
    """A matrix with its diagonal raised by a share of itself."""
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1) + FLOOR
    return matrix + damping * diagonal[..., None] * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
