"""The squared simulation error and its normal equations by JAX: for known equations, a trained tau, and networks that
the compiled library does not have.

The Jacobian of a simulation is not differentiated as a whole. Those of single steps, `dx_{k+1}/dx_k` and
`dx_{k+1}/dtheta`, are computed side by side for a chunk of samples; `S_{k+1} = A_k S_k + B_k` then carries the
sensitivity `S_k = dx_k/d(theta, x0)` along. Only `J'J` and `J'r` are kept, so that memory does not grow with records.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from tausid.engine.compiled import Samples
from tausid.engine.integrators import FixedStep
from tausid.engine.normal_equations import Normal
from tausid.engine.scan import make_step, rollout_scan
from tausid.engine.tree import register
from tausid.model.initial import FreeState
from tausid.model.model import Model
from tausid.model.state_space import StateSpace
from tausid.training.trainable import trainable

register()

# Numbers in the sensitivities of one chunk (some 30 MB).
CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class ScanError:
    """The contract `SquaredError`, and the trained weights of a model as one vector.

    Args:
        start: a model of the same structure.
        trained: which of its leaves are parameters.
        samples: the records.
        integrator: how they are simulated.
    """

    start: StateSpace
    trained: PyTree[bool]
    samples: Samples
    integrator: FixedStep

    @classmethod
    def of(cls, model: Model, samples: Samples) -> ScanError:
        """The error of a model's trained weights, but for what finds its initial states."""
        trained = trainable(model.state_space)
        nothing = jax.tree.map(lambda _: False, trained.initial)
        return cls(model.state_space, dataclasses.replace(trained, initial=nothing), samples, model.integrator)

    def pack(self, model: StateSpace) -> Float[np.ndarray, "P"]:
        """The trained weights of a model."""
        with jax.enable_x64(True):
            return np.asarray(ravel_pytree(_doubled(eqx.filter(model, self.trained)))[0])

    def unpack(self, theta: Float[np.ndarray, "P"]) -> StateSpace:
        """The model with these weights."""
        with jax.enable_x64(True):
            weights = ravel_pytree(self._program.like)[1](jnp.asarray(theta))
        # The program has limits and initial states of its own.
        nothing = jax.tree.map(lambda _: None, self.start.initial)
        weights = dataclasses.replace(weights, limits=self.start.limits, initial=nothing)
        return jax.tree.map(np.asarray, eqx.combine(weights, eqx.partition(self.start, self.trained)[1]))

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        """Where the arrays of the networks lie; tau and the parameters of known equations are in no group."""
        leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(self.start, self.trained))[0]
        ends = np.cumsum([0, *(np.size(leaf) for _, leaf in leaves)])
        names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in leaves]
        places = {name: np.arange(a, b) for name, a, b in zip(names, ends[:-1], ends[1:], strict=True)}
        return {name: place for name, place in places.items() if name.startswith(("f.", "g."))}

    def cost(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]) -> float:
        """The sum of squares; infinite where a simulation diverges."""
        with jax.enable_x64(True):
            cost = float(_cost(self._program, *self._windows, jnp.asarray(theta), jnp.asarray(x0)))
        return cost if np.isfinite(cost) else np.inf

    def normal(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], *, only_states: bool = False
    ) -> Normal:
        """The normal equations; those of theta are empty where `only_states` are asked for."""
        with jax.enable_x64(True):
            found = _normal(self._program, *self._windows, jnp.asarray(theta), jnp.asarray(x0))
        H, G, K, h, k = (np.array(part) for part in found)
        cost = self.cost(theta, x0)
        if only_states:
            P = len(theta)
            H, G, h = H[P:, P:], G[:, P:], h[P:]
        return Normal(cost, H, G.swapaxes(1, 2), K, h, k)

    def states(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]) -> Float[np.ndarray, "N nx"]:
        """States at the points of all records, one after the other."""
        with jax.enable_x64(True):
            x = np.asarray(_states(self._program, *self._windows, jnp.asarray(theta), jnp.asarray(x0)))
        return np.concatenate([x[:n, b] for b, n in enumerate(self.samples.lengths)])

    def residuals(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]
    ) -> list[Float[np.ndarray, "_ ny"]]:
        """Simulated minus measured outputs of each record, weighted; NaN where nothing was measured."""
        model, x = self.unpack(theta), self.states(theta, x0)
        with jax.enable_x64(True):
            y = np.asarray(model.output(x, self.samples.u))
        return self.samples.residuals(y)

    def weighted(self, factors: Float[np.ndarray, "N ny"]) -> ScanError:
        """The same error with each of these residuals times a positive factor."""
        return dataclasses.replace(self, samples=self.samples.weighted(factors))

    def cut(self, length: int) -> ScanError:
        """The same error over stretches of about this length at most, each with an initial state of its own."""
        return dataclasses.replace(self, samples=self.samples.cut(length))

    @cached_property
    def _program(self) -> _Program:
        with jax.enable_x64(True):
            double = _doubled(dataclasses.replace(self.start, initial=FreeState.unknown(np.zeros((0, self.start.nx)))))
            trained = dataclasses.replace(self.trained, initial=jax.tree.map(lambda _: False, double.initial))
            weights, fixed = eqx.partition(
                dataclasses.replace(double, limits=None), dataclasses.replace(trained, limits=None)
            )
            limits = None if double.limits is None else jnp.asarray(double.limits).T
            return _Program(weights, fixed, limits, self.integrator)

    @cached_property
    def _windows(self) -> tuple[Array, Array, Array, Array]:
        """The records side by side, as long as the longest: u (J, B, nu), y and w (J, B, ny), dt (J, B)."""
        s, J = self.samples, int(self.samples.lengths.max())
        cuts = np.cumsum(s.lengths)[:-1]

        def beside(values: np.ndarray, mode: str) -> Array:
            parts = np.split(values, cuts)
            return jnp.asarray(np.stack([_fill_up(part, J, mode) for part in parts], axis=1))

        with jax.enable_x64(True):
            dt = np.array(s.dt)
            dt[np.cumsum(s.lengths) - 1] = 0.0
            return beside(s.u, "edge"), beside(s.y, "edge"), beside(s.w, "constant"), beside(dt, "constant")


class _Program(eqx.Module):
    """A model as a function of theta, for JAX; compiled once for all models of one structure."""

    like: PyTree
    fixed: StateSpace
    limits: Float[Array, "2 ny"] | None
    integrator: FixedStep = eqx.field(static=True)

    def model(self, theta: Array) -> StateSpace:
        return eqx.combine(ravel_pytree(self.like)[1](theta), self.fixed)

    def limit(self, y: Array) -> Array:
        return y if self.limits is None else jnp.clip(y, *self.limits)

    def step(self, theta: Array, x: Array, u: Array, u_next: Array, dt: Array) -> Array:
        return make_step(self.model(theta).field, self.integrator, u.shape[-1])(x, u, u_next, dt)

    def output(self, theta: Array, x: Array, u: Array) -> Array:
        return self.model(theta).output(x, u)


@eqx.filter_jit
def _states(program: _Program, u: Array, y: Array, w: Array, dt: Array, theta: Array, x0: Array) -> Array:
    return rollout_scan(program.model(theta).field, x0, u, dt[:-1], program.integrator)


@eqx.filter_jit
def _cost(program: _Program, u: Array, y: Array, w: Array, dt: Array, theta: Array, x0: Array) -> Array:
    x = rollout_scan(program.model(theta).field, x0, u, dt[:-1], program.integrator)
    return jnp.sum((w * (program.limit(program.output(theta, x, u)) - y)) ** 2)


@eqx.filter_jit
def _normal(program: _Program, u: Array, y: Array, w: Array, dt: Array, theta: Array, x0: Array) -> tuple[Array, ...]:
    (B, nx), P = x0.shape, theta.size
    slopes = jax.vmap(jax.vmap(jax.jacrev(program.step, (0, 1)), (None, 0, 0, 0, 0)), (None, 0, 0, 0, 0))
    output_slopes = jax.vmap(jax.vmap(jax.jacrev(program.output, (0, 1)), (None, 0, 0)), (None, 0, 0))

    def with_x0(of_theta: Array) -> Array:  # nothing depends on the initial state but through the state
        return jnp.concatenate([of_theta, jnp.zeros((*of_theta.shape[:-1], nx), x0.dtype)], axis=-1)

    def advance(x: Array, sample: tuple[Array, ...]) -> tuple[Array, Array]:
        return jax.vmap(program.step, (None, 0, 0, 0, 0))(theta, x, *sample), x

    def carry_along(S: Array, slopes_here: tuple[Array, ...]) -> tuple[Array, Array]:
        A, Bt, C, Dt = slopes_here
        return A @ S + with_x0(Bt), C @ S + with_x0(Dt)

    def add_chunk(carry: tuple[Any, ...], chunk: tuple[Array, ...]) -> tuple[tuple[Any, ...], None]:
        x, S, sums = carry
        u, u_next, dt, y, w = chunk
        x, along = jax.lax.scan(advance, x, (u, u_next, dt))
        Bt, A = slopes(theta, along, u, u_next, dt)
        Dt, C = output_slopes(theta, along, u)
        S, J = jax.lax.scan(carry_along, S, (A, Bt, C, Dt))  # J: (chunk, B, ny, P + nx)
        beyond = program.output(theta, along, u)
        y_hat = program.limit(beyond)
        # An output that rests at its limit does not move with what lies beyond.
        J = J * jnp.where(y_hat == beyond, w, 0.0)[..., None]
        return (x, S, jax.tree.map(jnp.add, sums, _sums(J, w * (y_hat - y), P))), None

    start = jnp.zeros((B, nx, P), x0.dtype)
    S0 = jnp.concatenate([start, jnp.broadcast_to(jnp.eye(nx, dtype=x0.dtype), (B, nx, nx))], axis=-1)
    nothing = _sums(jnp.zeros((1, B, 1, P + nx), x0.dtype), jnp.zeros((1, B, 1), x0.dtype), P)
    return jax.lax.scan(add_chunk, (x0, S0, nothing), _chunks(u, y, w, dt, P + nx, nx))[0][2]


def _chunks(u: Array, y: Array, w: Array, dt: Array, columns: int, nx: int) -> tuple[Array, ...]:
    """The records in chunks of equal length; past their end time stands still and nothing counts."""
    J, B, ny = y.shape
    length = int(np.clip(CHUNK // (B * (nx + ny) * columns), 8, J))
    missing = -J % length

    def cut(values: Array, mode: str) -> Array:
        padded = jnp.pad(values, [(0, missing)] + [(0, 0)] * (values.ndim - 1), mode=mode)
        return padded.reshape(len(padded) // length, length, *values.shape[1:])

    u_next = jnp.concatenate([u[1:], u[-1:]])
    return cut(u, "edge"), cut(u_next, "edge"), cut(dt, "constant"), cut(y, "edge"), cut(w, "constant")


def _sums(J: Float[Array, "n B ny columns"], residual: Float[Array, "n B ny"], P: int) -> tuple[Array, ...]:
    """`J'J` and `J'r` of some samples; the first P columns are those of theta."""
    of_theta, of_x0 = J[..., :P], J[..., P:]
    flat = of_theta.reshape(residual.size, P)
    return (
        flat.T @ flat,
        jnp.einsum("nbyp,nbyq->bpq", of_theta, of_x0),
        jnp.einsum("nbyp,nbyq->bpq", of_x0, of_x0),
        flat.T @ residual.reshape(-1),
        jnp.einsum("nbyp,nby->bp", of_x0, residual),
    )


def _fill_up(values: np.ndarray, length: int, mode: str) -> np.ndarray:
    padding = [(0, length - len(values)), *[(0, 0)] * (values.ndim - 1)]
    return np.pad(values, padding, mode=mode)  # type: ignore[call-overload]


def _doubled(tree: PyTree) -> PyTree:
    """The tree with its arrays in double precision. To be called in double precision."""
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), float) if eqx.is_inexact_array(a) else a, tree)
