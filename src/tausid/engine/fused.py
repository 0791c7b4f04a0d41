"""The rollout of a residual network on a CPU, forward and adjoint in C++ (`csrc/`).

JAX meets the kernel through `jax.ffi` and `jax.custom_vjp`: gradients in reverse mode only, and under `vmap`
one call after the other. `1 / tau` is folded into the last layer before the call, so that the kernel knows
nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tausid.engine.field import VectorField
from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import FixedStep, Integrator
from tausid.engine.library import library, missing, pick_isa
from tausid.engine.networks import Network
from tausid.engine.steppers import Stepper, get_stepper
from tausid.errors import ConfigError

FUSED_ACTIVATIONS = ("leaky_relu", "relu", "tanh", "elu", "sigmoid")
MAX_LAYERS = 4

# The forward pass of a gradient keeps all activations up to this size, beyond it only the states at the
# samples, from which the backward pass evaluates each step once more. What does not fit the caches takes
# about as long to fetch as to evaluate again (58 to 75 GFLOP/s against 70; within the caches 85).
KEPT_BYTES = 32 * 2**20


def rollout_fused(
    field: VectorField,
    x0: Float[Array, "B nx"],
    u: Float[Array, "J B nu"],
    dt: Float[Array, "J-1 B"],
    integrator: FixedStep,
    *,
    threads: int = 1,
) -> Float[Array, "J B nx"]:
    """Integrate a batch of trajectories with a fixed step (see the contract in `tausid.engine`)."""
    refuse_fused(fused_missing() or why_not_fused(field, integrator))
    last = jnp.reshape(field.rate, (-1, 1)) * _last_matrix(field.network)
    weights = (*_hidden_weights(field.network), last)
    dtype = jnp.result_type(x0, u, dt, *weights)
    tableau = get_stepper(integrator.stepper)
    call = _RolloutCall(
        isa=pick_isa(),
        threads=threads,
        activation=FUSED_ACTIVATIONS.index(field.network.activation),
        substeps=integrator.substeps,
        a=_square(tableau),
        b=tableau.b,
        c=tableau.c,
        hold=(*hold_slopes(integrator.hold, u.shape[-1]), 0.0),  # XLA has no empty attributes
    )
    arrays = [jnp.asarray(array, dtype) for array in (x0, u, dt, *weights)]
    return _rollout(call, *arrays)


def evaluate_fused(
    network: Network, z: Float[Array, "*batch n_in"], *, threads: int = 1
) -> Float[Array, "*batch n_out"]:
    """The value of a residual network at many points, by the kernel of the rollout."""
    refuse_fused(fused_missing() or why_not_network(network))
    weights = (*_hidden_weights(network), _last_matrix(network))
    dtype = jnp.result_type(z, *weights)
    call = _NetworkCall(isa=pick_isa(), threads=threads, activation=FUSED_ACTIVATIONS.index(network.activation))
    points = jnp.asarray(z, dtype).reshape(-1, z.shape[-1])
    y = _network(call, points, *[jnp.asarray(weight, dtype) for weight in weights])
    return y.reshape(*z.shape[:-1], y.shape[-1])


def why_not_fused(field: Callable[[Array, Array], Array], integrator: Integrator) -> str | None:
    """Why the fused engine does not support a model, in words."""
    if not isinstance(field, VectorField):
        return f"the right-hand side must be a `VectorField`; got {type(field).__name__}"
    if not isinstance(integrator, FixedStep):
        return f"the integrator must take fixed steps; got {type(integrator).__name__}"
    return why_not_network(field.network)


def why_not_network(network: Network) -> str | None:
    """Why the fused engine does not support a network, in words."""
    if network.coefficients is not None or network.bias is not None:
        return "the network must have no monomials and no bias of its values"
    hidden = max(len(network.weights) - 1, 0)
    if not 1 <= hidden <= MAX_LAYERS:
        return f"the network must have 1 to {MAX_LAYERS} hidden layers; got {hidden}"
    if network.activation not in FUSED_ACTIVATIONS:
        return f"the activation must be one of {', '.join(FUSED_ACTIVATIONS)}; got {network.activation}"
    return None


def fused_missing() -> str | None:
    """Why the fused engine cannot run here, in words."""
    reason = missing()
    if reason is not None:
        return reason
    if jax.default_backend() != "cpu":
        return f"it runs on the CPU, and JAX computes on {jax.default_backend()}"
    return _why_not_registered()


@cache
def _why_not_registered() -> str | None:
    """Register the library's functions with XLA; why that is not possible, in words."""
    try:
        jax.default_backend()  # once it runs, it refuses a function at once; before, JAX would not start any more
        for name in ("rollout_forward", "rollout_backward", "network_forward", "network_backward"):
            for bits in (32, 64):
                symbol = f"tausid_{name}_f{bits}"
                jax.ffi.register_ffi_target(symbol, jax.ffi.pycapsule(getattr(library(), symbol)), platform="cpu")
    except Exception as error:  # noqa: BLE001  a library that XLA refuses is a missing one, and the reason is told
        return f"XLA cannot use its library: {error}"
    return None


def refuse_fused(reason: str | None) -> None:
    """Raise where there is a reason not to take the fused engine."""
    if reason is not None:
        raise ConfigError(f"engine 'fused' is not available: {reason}. Use engine='auto' or engine='scan'.")


def _hidden_weights(network: Network) -> tuple[Array, ...]:
    hidden = zip(network.weights[:-1], network.biases, strict=True)
    return tuple(array for layer in hidden for array in layer)


def _last_matrix(network: Network) -> Array:
    return jnp.concatenate([network.weights[-1], network.linear], axis=1)


def _square(tableau: Stepper) -> tuple[float, ...]:
    """The tableau's stage weights, row by row, filled up with zeros."""
    stages = len(tableau.b)
    return tuple(weight for row in tableau.a for weight in (*row, *[0.0] * (stages - len(row))))


@dataclass(frozen=True)
class _NetworkCall:
    """What the compiled function is specialised on, as attributes of the call."""

    isa: int
    threads: int
    activation: int

    def attributes(self) -> dict[str, Any]:
        return {
            name: np.asarray(value) if isinstance(value, tuple) else np.int64(value)
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class _RolloutCall(_NetworkCall):
    substeps: int
    a: tuple[float, ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    hold: tuple[float, ...]


def _ffi(name: str, call: _NetworkCall, shapes: list[tuple[int, ...]], *arrays: Array) -> list[Array]:
    dtype = arrays[0].dtype
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    target = f"tausid_{name}_f{8 * dtype.itemsize}"
    return list(jax.ffi.ffi_call(target, results, vmap_method="sequential")(*arrays, **call.attributes()))


def _kept_size(call: _NetworkCall, count: int, rows: int, dtype: jnp.dtype) -> int:
    """How many numbers the forward pass keeps: `rows` for each of `count` lanes, in whole vectors."""
    lanes = library().tausid_lanes(call.isa, dtype.itemsize)
    size = -(-count // lanes) * lanes * rows
    return size if size * dtype.itemsize <= KEPT_BYTES else 0


def _block_rows(weights: tuple[Array, ...]) -> int:
    """Numbers that the network keeps per point: its input and all hidden layers but the first.

    An only hidden layer is kept.
    """
    widths = [bias.shape[0] for bias in weights[1::2]]
    return weights[0].shape[1] + sum(widths[1:] or widths)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rollout(call: _RolloutCall, x0: Array, u: Array, dt: Array, *weights: Array) -> Array:
    shape = (u.shape[0], *x0.shape)
    return _ffi("rollout_forward", call, [shape, (0,)], x0, u, dt, *weights)[0]


def _rollout_forward(
    call: _RolloutCall, x0: Array, u: Array, dt: Array, *weights: Array
) -> tuple[Array, tuple[Array, ...]]:
    rows = len(call.b) * (_block_rows(weights) + x0.shape[1]) * call.substeps * (u.shape[0] - 1)
    kept_size = _kept_size(call, x0.shape[0], rows, x0.dtype)
    shape = (u.shape[0], *x0.shape)
    x, kept = _ffi("rollout_forward", call, [shape, (kept_size,)], x0, u, dt, *weights)
    return x, (x0, u, dt, *weights, x, kept)


def _rollout_backward(call: _RolloutCall, kept: tuple[Array, ...], grad_x: Array) -> tuple[Array, ...]:
    shapes = [array.shape for array in kept[:-2]]
    return tuple(_ffi("rollout_backward", call, shapes, *kept, grad_x))


_rollout.defvjp(_rollout_forward, _rollout_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _network(call: _NetworkCall, z: Array, *weights: Array) -> Array:
    shape = (z.shape[0], weights[-1].shape[0])
    return _ffi("network_forward", call, [shape, (0,)], z, *weights)[0]


def _network_forward(call: _NetworkCall, z: Array, *weights: Array) -> tuple[Array, tuple[Array, ...]]:
    kept_size = _kept_size(call, z.shape[0], _block_rows(weights), z.dtype)
    shape = (z.shape[0], weights[-1].shape[0])
    y, kept = _ffi("network_forward", call, [shape, (kept_size,)], z, *weights)
    return y, (z, *weights, kept)


def _network_backward(call: _NetworkCall, kept: tuple[Array, ...], grad_y: Array) -> tuple[Array, ...]:
    shapes = [array.shape for array in kept[:-1]]
    return tuple(_ffi("network_backward", call, shapes, *kept, grad_y))


_network.defvjp(_network_forward, _network_backward)
