"""Function approximators: a linear map plus something nonlinear. No physics, no time."""

# No postponed annotations here: equinox reads AbstractVar from the live ones.

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tausid.errors import ConfigError, unknown_name

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "leaky_relu": jax.nn.leaky_relu,  # slope 0.01 below zero, as in the paper
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
}


def get_activation(name: str) -> Callable[[Array], Array]:
    """The activation function of that name."""
    if name not in ACTIVATIONS:
        raise ConfigError(unknown_name("activation", name, ACTIVATIONS))
    return ACTIVATIONS[name]


class AbstractNetwork(eqx.Module):
    """A function of `z` with a linear part, `h(z) = linear z + ...`, over the last axis of `z`."""

    linear: eqx.AbstractVar[Float[Array, "n_out n_in"]]

    @abstractmethod
    def __call__(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_out"]:
        """The value at `z`."""

    @property
    @abstractmethod
    def readout(self) -> Float[Array, "n_out n_features"]:
        """The last layer: `h(z) = linear z + readout features(z)`."""

    @abstractmethod
    def features(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_features"]:
        """What the last layer sees at `z`."""


class MLP(eqx.Module):
    """Hidden layers and a linear output layer, `W_n s(... s(W_1 z + b_1) ...) + b_n`.

    Args:
        weights: matrix of each layer, shape (outputs, inputs), the output layer last.
        biases: bias of each hidden layer, and of the output layer where it has one.
        activation: name of the activation function `s`.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, "_"], ...]
    activation: str = eqx.field(static=True)

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        sizes: Sequence[int],
        *,
        activation: str,
        weight_range: float,
        output_bias: bool,
        bias_range: float = 0.0,
    ) -> "MLP":
        """Weights uniform in [-weight_range, weight_range], biases in [-bias_range, bias_range]."""
        get_activation(activation)
        shapes = zip(sizes[1:], sizes[:-1], strict=True)
        weights = tuple(uniform_matrix(rng, shape, weight_range) for shape in shapes)
        biased = sizes[1:] if output_bias else sizes[1:-1]
        biases = [rng.uniform(-bias_range, bias_range, size) if bias_range > 0 else np.zeros(size) for size in biased]
        return cls(weights, tuple(map(jnp.asarray, biases)), activation)

    def __call__(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_out"]:
        """The value at `z`."""
        hidden = len(self.weights) - 1
        out = self.features(z) @ self.weights[-1].T
        return out + self.biases[hidden] if len(self.biases) > hidden else out

    def features(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_features"]:
        """What the last layer sees at `z`."""
        activate = get_activation(self.activation)
        for weight, bias in zip(self.weights[:-1], self.biases[: len(self.weights) - 1], strict=True):
            z = activate(z @ weight.T + bias)
        return z


class ResidualMLP(AbstractNetwork):
    """The paper's network: `linear z + W_n s(... s(W_1 z + b_1) ...)`, no bias on the linear part (eq. 12).

    Args:
        linear: the linear map, `[A B]` for the state network.
        mlp: the hidden layers, without an output bias.
    """

    linear: Float[Array, "n_out n_in"]
    mlp: MLP

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        n_in: int,
        n_out: int,
        *,
        hidden: Sequence[int],
        activation: str,
        weight_range: float,
        bias_range: float = 0.0,
    ) -> "ResidualMLP":
        """All weights uniform in [-weight_range, weight_range], biases in [-bias_range, bias_range]."""
        sizes = (n_in, *hidden, n_out)
        return cls(
            uniform_matrix(rng, (n_out, n_in), weight_range),
            MLP.random(
                rng, sizes, activation=activation, weight_range=weight_range, output_bias=False, bias_range=bias_range
            ),
        )

    def __call__(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_out"]:
        """The value at `z`."""
        return z @ self.linear.T + self.mlp(z)

    @property
    def readout(self) -> Float[Array, "n_out n_features"]:
        """The last layer's weights."""
        return self.mlp.weights[-1]

    def features(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_features"]:
        """The last hidden layer at `z`."""
        return self.mlp.features(z)


class Polynomial(AbstractNetwork):
    """A polynomial without a constant: `linear z + coefficients m(z)`, `m` all monomials of degree 2 to `degree`.

    Args:
        linear: the linear map.
        coefficients: one column per monomial, in the order of `monomials`.
        degree: the highest degree.
    """

    linear: Float[Array, "n_out n_in"]
    coefficients: Float[Array, "n_out n_monomials"]
    degree: int = eqx.field(static=True)

    @classmethod
    def random(
        cls, rng: np.random.Generator, n_in: int, n_out: int, *, degree: int, weight_range: float
    ) -> "Polynomial":
        """All coefficients uniform in [-weight_range, weight_range]."""
        count = monomials(jnp.zeros(n_in), degree).shape[-1]
        return cls(
            uniform_matrix(rng, (n_out, n_in), weight_range),
            uniform_matrix(rng, (n_out, count), weight_range),
            degree,
        )

    def __call__(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_out"]:
        """The value at `z`."""
        return z @ self.linear.T + self.features(z) @ self.coefficients.T

    @property
    def readout(self) -> Float[Array, "n_out n_features"]:
        """The coefficients of degree two and more."""
        return self.coefficients

    def features(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_features"]:
        """The monomials at `z`."""
        return monomials(z, self.degree)


class Zero(AbstractNetwork):
    """Nothing: zero everywhere, and nothing to train; where known equations need no correction.

    Args:
        n_in: number of inputs.
        n_out: number of outputs.
    """

    n_in: int = eqx.field(static=True)
    n_out: int = eqx.field(static=True)

    def __init__(self, n_in: int, n_out: int) -> None:
        self.n_in, self.n_out = n_in, n_out

    @property  # type: ignore[misc]
    def linear(self) -> Float[Array, "n_out n_in"]:  # type: ignore[override]
        """A matrix of zeros."""
        return jnp.zeros((self.n_out, self.n_in))

    def __call__(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_out"]:
        """Zero."""
        return jnp.zeros((*z.shape[:-1], self.n_out), z.dtype)

    @property
    def readout(self) -> Float[Array, "n_out n_features"]:
        """Nothing is read."""
        return jnp.zeros((self.n_out, 0))

    def features(self, z: Float[Array, "*batch n_in"]) -> Float[Array, "*batch n_features"]:
        """Nothing is seen."""
        return jnp.zeros((*z.shape[:-1], 0), z.dtype)


def monomials(z: Float[Array, "*batch n_in"], degree: int) -> Float[Array, "*batch n_monomials"]:
    """All products of 2 to `degree` entries of `z`, by degree and then in order of the entries' indices.

    Example:
        >>> monomials(jnp.array([2.0, 3.0]), 2)
        Array([4., 6., 9.], dtype=float32)
    """
    products = [jnp.zeros((*z.shape[:-1], 0), z.dtype)]
    for d in range(2, degree + 1):
        factors = np.array(list(combinations_with_replacement(range(z.shape[-1]), d)), int).reshape(-1, d).T
        product = z[..., factors[0]]
        for factor in factors[1:]:
            product = product * z[..., factor]
        products.append(product)
    return jnp.concatenate(products, axis=-1)


def uniform_matrix(rng: np.random.Generator, shape: tuple[int, int], weight_range: float) -> Float[Array, "_ _"]:
    """A matrix with entries uniform in [-weight_range, weight_range].

    Drawn by numpy: JAX would compile a program for every shape, which takes longer than many a training step.
    """
    return jnp.asarray(rng.uniform(-weight_range, weight_range, shape))
