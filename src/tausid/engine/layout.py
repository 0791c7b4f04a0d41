"""How the weights of a network lie in one vector, as the compiled library reads them."""

from __future__ import annotations

import ctypes
import dataclasses
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np

from tausid.shapes import Float

# In the library's order.
ACTIVATIONS = ("leaky_relu", "relu", "tanh", "elu", "sigmoid", "softplus")
MAX_LAYERS, MAX_DEGREE = 4, 8

Numbers = ctypes.c_void_p


class Net(ctypes.Structure):
    """The sizes of a network in the library."""

    _fields_ = [
        ("n_in", ctypes.c_int),
        ("n_out", ctypes.c_int),
        ("layers", ctypes.c_int),
        ("width", ctypes.c_int * MAX_LAYERS),
        ("activation", ctypes.c_int),
        ("monomials", ctypes.c_int),
        ("degree", ctypes.c_int),
        ("factors", Numbers),
        ("bias", ctypes.c_int),
    ]


def why_not(*networks: Any) -> str | None:
    """Why the library does not support networks, in words."""
    for network in networks:
        if len(network.biases) > MAX_LAYERS:
            return f"networks must have at most {MAX_LAYERS} hidden layers; got {len(network.biases)}"
        if network.biases and network.activation not in ACTIVATIONS:
            return f"the activation must be one of {', '.join(ACTIVATIONS)}; got {network.activation}"
        if network.coefficients is not None and network.degree > MAX_DEGREE:
            return f"polynomials must have at most degree {MAX_DEGREE}; got {network.degree}"
    return None


@dataclass(frozen=True)
class Shape:
    """The sizes of a network, which decide where its weights lie in the vector of parameters.

    For each output the row [linear, hidden, monomials, bias] of the last layer; then for each hidden layer the weights
    of each of its inputs, and its biases.

    Args:
        n_in: inputs.
        n_out: outputs.
        hidden: widths of the hidden layers.
        activation: of the hidden layers.
        degree: highest degree of the monomials; 0 for none.
        bias: whether there is a constant.
    """

    n_in: int
    n_out: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    degree: int = 0
    bias: bool = True

    @classmethod
    def of(cls, network: Any) -> Shape:
        """The sizes of a network."""
        degree = 0 if network.coefficients is None else network.degree
        hidden = tuple(len(bias) for bias in network.biases)
        n_out, n_in = network.linear.shape
        return cls(n_in, n_out, hidden, network.activation if hidden else "tanh", degree, network.bias is not None)

    @cached_property
    def factors(self) -> np.ndarray:
        """Which inputs each monomial multiplies, -1 for no further one; shape (monomials, degree)."""
        rows = [
            [*indices, *[-1] * (self.degree - d)]
            for d in range(2, self.degree + 1)
            for indices in combinations_with_replacement(range(self.n_in), d)
        ]
        return np.array(rows, np.int32).reshape(len(rows), self.degree)

    @cached_property
    def features(self) -> int:
        """What the last layer sees."""
        return self.n_in + (self.hidden[-1] if self.hidden else 0) + len(self.factors) + self.bias

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        """Where each kind of weight lies: `linear`, `bias`, `readout` (of hidden units), `coefficients`, `hidden`."""
        last = np.arange(self.n_out * self.features).reshape(self.n_out, self.features)
        ends = np.cumsum([self.n_in, self.hidden[-1] if self.hidden else 0, len(self.factors), self.bias])
        names = ("linear", "readout", "coefficients", "bias")
        parts = dict(zip(names, (part.ravel() for part in np.split(last, ends[:-1], axis=1)), strict=True))
        return {**parts, "hidden": np.arange(last.size, self.parameters)}

    @cached_property
    def parameters(self) -> int:
        """The number of weights."""
        layers = pairwise((self.n_in, *self.hidden))
        return self.n_out * self.features + sum((n_in + 1) * width for n_in, width in layers)

    def pack(self, network: Any) -> Float[np.ndarray, "P"]:
        """The weights of a network as one vector."""
        last = [network.linear]
        last += [network.weights[-1]] if self.hidden else []
        last += [network.coefficients] if self.degree else []
        last += [np.asarray(network.bias)[:, None]] if self.bias else []
        layers = zip(network.weights[:-1], network.biases, strict=True) if self.hidden else ()
        pieces = [np.concatenate([np.asarray(part, float) for part in last], axis=1).ravel()]
        pieces += [np.concatenate([np.asarray(W, float).T, np.asarray(b, float)[None]]).ravel() for W, b in layers]
        return np.concatenate(pieces)

    def unpack(self, theta: Float[np.ndarray, "P"], network: Any) -> Any:
        """The network with other weights, from one vector."""
        last = theta[: self.n_out * self.features].reshape(self.n_out, self.features)
        ends = np.cumsum([self.n_in, self.hidden[-1] if self.hidden else 0, len(self.factors)])
        linear, readout, coefficients, bias = np.split(last, ends, axis=1)
        at, weights, biases = last.size, [], []
        for n_in, width in pairwise((self.n_in, *self.hidden)):
            layer = theta[at : at + (n_in + 1) * width].reshape(n_in + 1, width)
            weights.append(layer[:-1].T.copy())
            biases.append(layer[-1].copy())
            at += layer.size
        return dataclasses.replace(
            network,
            linear=linear.copy(),
            weights=(*weights, readout.copy()) if self.hidden else (),
            biases=tuple(biases),
            bias=bias[:, 0].copy() if self.bias else None,
            coefficients=coefficients.copy() if self.degree else None,
        )

    @cached_property
    def as_struct(self) -> Net:
        """The sizes as the library sees them."""
        return Net(
            self.n_in,
            self.n_out,
            len(self.hidden),
            (ctypes.c_int * MAX_LAYERS)(*self.hidden),
            ACTIVATIONS.index(self.activation),
            len(self.factors),
            self.degree,
            pointer(self.factors),
            int(self.bias),
        )


def plain(array: Any) -> np.ndarray:
    """An array as the library reads it: contiguous, and aligned, as its vector instructions need."""
    if isinstance(array, np.ndarray) and array.ndim and array.dtype == np.float64 and array.flags.carray:
        return array
    return np.require(np.atleast_1d(array), float, ("C", "A"))


def pointer(array: np.ndarray | None) -> int | None:
    """Where the numbers of an array are."""
    return None if array is None else array.__array_interface__["data"][0]
