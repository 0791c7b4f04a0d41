"""Function approximators: a linear map plus something nonlinear. No physics, no time.

They compute with numpy where they are given numpy's arrays, and with JAX elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np

from tausid.engine.tree import Tree, namespace, static
from tausid.errors import ConfigError, unknown_name
from tausid.shapes import Array, Float


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


# With numpy; those of jax.nn have the same names and values.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "leaky_relu": lambda z: np.where(z >= 0, z, 0.01 * z),  # the slope below zero is that of the paper
    "relu": lambda z: np.maximum(z, 0.0),
    "tanh": np.tanh,
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))),
    "gelu": lambda z: z * _sigmoid(2.0 * np.sqrt(2.0 / np.pi) * (z + 0.044715 * z**3)),
    "silu": lambda z: z * _sigmoid(z),
    "sigmoid": _sigmoid,
    "softplus": lambda z: np.logaddexp(z, 0.0),
}


MOST_MONOMIALS = 100_000


def check_activation(name: str) -> None:
    """Check that there is an activation function of that name."""
    if name not in ACTIVATIONS:
        raise ConfigError(unknown_name("activation", name, ACTIVATIONS))


def activate(name: str, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The activation function of that name."""
    check_activation(name)
    if namespace(z) is np:
        return ACTIVATIONS[name](z)
    import jax

    return getattr(jax.nn, name)(z)


class Network(Tree):
    """`h(z) = linear z + bias + W_n s(... s(W_1 z + b_1) ...) + coefficients m(z)`, over the last axis of `z`.

    Hidden layers, monomials and the bias are there or not; with hidden layers alone it is the paper's network (eq. 12).

    Args:
        linear: the linear map, `[A B]` for the state network.
        weights: matrices of the hidden layers, shape (outputs, inputs), and of the layer that reads the last of them;
            none without hidden layers.
        biases: bias of each hidden layer.
        bias: what is added to each value, or None.
        coefficients: one column per monomial, in the order of `monomials`; None for no monomials.
        activation: name of the activation function `s`.
        degree: highest degree of the monomials `m`, whose lowest one is 2.
    """

    linear: Float[Array, "n_out n_in"]
    weights: tuple[Float[Array, "_ _"], ...] = ()
    biases: tuple[Float[Array, "_"], ...] = ()
    bias: Float[Array, "n_out"] | None = None
    coefficients: Float[Array, "n_out n_monomials"] | None = None
    activation: str = static(default="leaky_relu")
    degree: int = static(default=1)

    @classmethod
    def random(
        cls,
        rng: np.random.Generator | None,
        n_in: int,
        n_out: int,
        *,
        hidden: Sequence[int] = (),
        activation: str = "leaky_relu",
        degree: int = 1,
        bias: bool = False,
        weight_range: float,
        bias_range: float = 0.0,
        dtype: type = np.float64,
    ) -> Network:
        """All weights uniform in [-weight_range, weight_range], biases in [-bias_range, bias_range]; `bias` is zero."""
        check_activation(activation)
        linear = uniform(rng, (n_out, n_in), weight_range, dtype)
        sizes = (n_in, *hidden, n_out)
        layers = random_layers(rng, sizes, sizes[1:-1], weight_range, bias_range, dtype) if hidden else ((), ())
        count = comb(n_in + degree, degree) - n_in - 1
        if count > MOST_MONOMIALS:
            raise ConfigError(
                f"a polynomial must have at most {MOST_MONOMIALS} terms; one of degree {degree} in {n_in} states and "
                f"inputs has {count}. Lower the degree, or take fewer states."
            )
        return cls(
            linear,
            *layers,
            np.zeros(n_out, dtype) if bias else None,
            uniform(rng, (n_out, count), weight_range, dtype) if degree > 1 else None,
            activation,
            degree,
        )

    def __call__(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_out"]:
        """The value at `z`."""
        value = z @ self.linear.T
        if self.weights:
            value = value + self._last_hidden(z) @ self.weights[-1].T
        if self.coefficients is not None:
            value = value + monomials(z, self.degree) @ self.coefficients.T
        return value if self.bias is None else value + self.bias

    @property
    def nonlinear(self) -> tuple[Any, ...]:
        """All arrays of the nonlinear parts."""
        return self.weights, self.biases, self.coefficients

    def features(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_features"]:
        """What is read: `h(z) = linear z + bias + readout features(z)`."""
        parts = [z[..., :0]]
        if self.weights:
            parts.append(self._last_hidden(z))
        if self.coefficients is not None:
            parts.append(monomials(z, self.degree))
        return namespace(*parts).concatenate(parts, axis=-1)

    @property
    def readout(self) -> Float[Array, "n_out n_features"]:
        """How the last hidden layer and the monomials are read."""
        parts = [self.linear[:, :0], *self.weights[-1:], *([] if self.coefficients is None else [self.coefficients])]
        return namespace(*parts).concatenate(parts, axis=-1)

    def with_readout(self, readout: Float[Array, "n_out n_features"]) -> Network:
        """The network with another readout."""
        width = self.weights[-1].shape[1] if self.weights else 0
        weights = (*self.weights[:-1], readout[:, :width]) if self.weights else ()
        coefficients = None if self.coefficients is None else readout[:, width:]
        return replace(self, weights=weights, coefficients=coefficients)

    def _last_hidden(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch _"]:
        return hidden_layers(self.activation, self.weights[:-1], self.biases, z)


class MLP(Tree):
    """Hidden layers and an output layer with a bias, `W_n s(... s(W_1 z + b_1) ...) + b_n`, without a linear part.

    Args:
        weights: matrix of each layer, shape (outputs, inputs), the output layer last.
        biases: bias of each layer.
        activation: name of the activation function `s`.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, "_"], ...]
    activation: str = static(default="leaky_relu")

    @classmethod
    def random(
        cls,
        rng: np.random.Generator | None,
        sizes: Sequence[int],
        *,
        activation: str,
        weight_range: float,
        bias_range: float = 0.0,
        dtype: type = np.float64,
    ) -> MLP:
        """Weights uniform in [-weight_range, weight_range], biases in [-bias_range, bias_range]."""
        check_activation(activation)
        return cls(*random_layers(rng, sizes, sizes[1:], weight_range, bias_range, dtype), activation)

    def __call__(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_out"]:
        """The value at `z`."""
        last = hidden_layers(self.activation, self.weights[:-1], self.biases[:-1], z)
        return last @ self.weights[-1].T + self.biases[-1]


def hidden_layers(
    activation: str, weights: Sequence[Array], biases: Sequence[Array], z: Float[Array, "*batch n_in"]
) -> Float[Array, "*batch _"]:
    """The last hidden layer at `z`."""
    for weight, bias in zip(weights, biases, strict=True):
        z = activate(activation, z @ weight.T + bias)
    return z


def monomials(z: Float[Array, "*batch n_in"], degree: int) -> Float[Array, "*batch n_monomials"]:
    """All products of 2 to `degree` entries of `z`, by degree and then in order of the entries' indices.

    Example:
        >>> monomials(np.array([2.0, 3.0]), 2)
        array([4., 6., 9.])
    """
    products = [z[..., :0]]
    for d in range(2, degree + 1):
        factors = np.array(list(combinations_with_replacement(range(z.shape[-1]), d)), int).reshape(-1, d).T
        product = z[..., factors[0]]
        for factor in factors[1:]:
            product = product * z[..., factor]
        products.append(product)
    return namespace(z).concatenate(products, axis=-1)


def random_layers(
    rng: np.random.Generator | None,
    sizes: Sequence[int],
    biased: Sequence[int],
    weight_range: float,
    bias_range: float,
    dtype: type,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Matrices between layers of these sizes, and biases of these."""
    shapes = zip(sizes[1:], sizes[:-1], strict=True)
    weights = tuple(uniform(rng, shape, weight_range, dtype) for shape in shapes)
    return weights, tuple(uniform(rng, (size,), bias_range, dtype) for size in biased)


def uniform(rng: np.random.Generator | None, shape: tuple[int, ...], limit: float, dtype: type) -> np.ndarray:
    """An array with entries uniform in [-limit, limit]; where nothing draws, zeros that take no memory."""
    if rng is None:
        return np.broadcast_to(np.zeros((), dtype), shape)
    return np.zeros(shape, dtype) if limit <= 0 else rng.uniform(-limit, limit, shape).astype(dtype)
