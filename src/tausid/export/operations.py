"""Functions of a state and an input as short lists of operations on vectors, and how such lists are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
UNARY = ("tanh", "exp", "expm1", "log", "log1p", "sqrt", "abs", "sin", "cos")


@dataclass(frozen=True, eq=False)
class Operation:
    """One vector from others.

    Args:
        kind: `state` and `input` are what is given; `constant` is `array`; `linear` is `array @ a`; `concat` puts
            vectors one after the other; `pick` takes the entries `array` of a. All others are elementwise and bear the
            names that they have in numpy (UNARY, BINARY); an operand with one entry counts for all. `less` is 1 or 0,
            and occurs in derivatives alone.
        inputs: which operations before this one it works on.
        size: entries of the vector.
        array: numbers of a constant, the matrix of a linear map, or indices.
    """

    kind: str
    inputs: tuple[int, ...]
    size: int
    array: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Function:
    """A function of x and u: `operations[0]` is x, `operations[1]` is u, and the last one is the result."""

    operations: tuple[Operation, ...]

    @property
    def size(self) -> int:
        """Entries of the result."""
        return self.operations[-1].size

    @property
    def varying(self) -> tuple[bool, ...]:
        """Which operations depend on x or u."""
        found: list[bool] = []
        for operation in self.operations:
            found.append(operation.kind in ("state", "input") or any(found[i] for i in operation.inputs))
        return tuple(found)

    def at(self, x: Value, u: Value) -> Value:
        """The same function within another one, of values there."""
        values = [x, u]
        for operation in self.operations[2:]:
            others = [values[i] for i in operation.inputs]
            values.append(x.make(operation.kind, others, operation.size, operation.array))
        return values[-1]


class Value:
    """A vector within a function that is being written; arithmetic with it adds operations."""

    def __init__(self, operations: list[Operation], operation: Operation) -> None:
        operations.append(operation)
        self.operations, self.number, self.size = operations, len(operations) - 1, operation.size

    def make(self, kind: str, others: Sequence[Value], size: int, array: np.ndarray | None = None) -> Value:
        """Any operation on values of the same function."""
        return Value(self.operations, Operation(kind, tuple(v.number for v in others), size, array))

    def constant(self, numbers: Iterable[float] | np.ndarray | float) -> Value:
        """Numbers within the same function."""
        array = np.atleast_1d(np.asarray(numbers, float))
        return self.make("constant", (), len(array), array)

    def linear(self, matrix: np.ndarray) -> Value:
        """The matrix times this vector."""
        return self.make("linear", [self], len(matrix), np.asarray(matrix, float))

    def pick(self, indices: Sequence[int] | np.ndarray | range) -> Value:
        """Some of the entries."""
        return self.make("pick", [self], len(indices), np.asarray(indices, int))

    def unary(self, kind: str) -> Value:
        """An elementwise function, by name."""
        return self.make(kind, [self], self.size)

    def binary(self, kind: str, other: Value | np.ndarray | float) -> Value:
        """An elementwise function of two vectors, by name."""
        other = other if isinstance(other, Value) else self.constant(other)
        return self.make(kind, [self, other], max(self.size, other.size))

    def __add__(self, other: Value | np.ndarray | float) -> Value:
        return self.binary("add", other)

    def __sub__(self, other: Value | np.ndarray | float) -> Value:
        return self.binary("subtract", other)

    def __mul__(self, other: Value | np.ndarray | float) -> Value:
        return self.binary("multiply", other)

    def __truediv__(self, other: Value | np.ndarray | float) -> Value:
        return self.binary("divide", other)


def concat(values: Sequence[Value]) -> Value:
    """Vectors one after the other; empty ones are left out."""
    some = [value for value in values if value.size] or list(values[:1])
    return some[0] if len(some) == 1 else some[0].make("concat", some, sum(v.size for v in some))


def write_function(nx: int, nu: int, body: Callable[[Value, Value], Value]) -> Function:
    """The function that `body` computes from x and u, without what its result does not need."""
    operations: list[Operation] = []
    x, u = Value(operations, Operation("state", (), nx)), Value(operations, Operation("input", (), nu))
    needed = {0, 1, body(x, u).number}
    for i in range(len(operations) - 1, 1, -1):
        needed.update(operations[i].inputs if i in needed else ())
    place = {old: new for new, old in enumerate(sorted(needed))}
    kept = (operations[i] for i in sorted(needed))
    return Function(tuple(replace(op, inputs=tuple(place[i] for i in op.inputs)) for op in kept))


def _sigmoid(z: Value) -> Value:
    return ((z * 0.5).unary("tanh") + 1.0) * 0.5


def _zero_or_more(z: Value) -> Value:
    return z.binary("maximum", 0.0)


# Those of `tausid.engine.networks`, by functions that every target has.
ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "leaky_relu": lambda z: z.binary("maximum", z * 0.01),
    "relu": _zero_or_more,
    "tanh": lambda z: z.unary("tanh"),
    "elu": lambda z: _zero_or_more(z) + z.binary("minimum", 0.0).unary("expm1"),
    "gelu": lambda z: z * _sigmoid((z + z * z * z * 0.044715) * (2.0 * math.sqrt(2.0 / math.pi))),
    "silu": lambda z: z * _sigmoid(z),
    "sigmoid": _sigmoid,
    "softplus": lambda z: _zero_or_more(z) + (z.unary("abs") * -1.0).unary("exp").unary("log1p"),
}
