"""How known equations are declared: states, bounded parameters, derivative and output."""

from __future__ import annotations

import dataclasses
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from tausid.engine.networks import activate
from tausid.engine.tree import namespace
from tausid.errors import ConfigError
from tausid.schema import LARGEST, as_schema
from tausid.shapes import Array


@dataclass(frozen=True)
class Parameter:
    """A number to be fitted, kept between its bounds by a smooth transform of a free number `r`.

    With both bounds `lower + (upper - lower) / (1 + exp(-r))`, with one `bound + (start - bound) exp(r)`, with none
    `start + scale r`, scale the magnitude of the start value.

    Args:
        start: where the fit begins, in the parameter's unit.
        lower: the value lies above it; None for no bound.
        upper: the value lies below it; None for no bound.
        unit: the unit, for people.

    Raises:
        ConfigError: a number is not finite or beyond all measure, or the start value does not lie between the bounds.

    Example:
        >>> gain = Parameter(2.0, lower=0.0, upper=10.0, unit="V/mm")
        >>> float(gain.value(gain.free(2.0)))
        2.0
    """

    start: float
    lower: float | None = None
    upper: float | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        given = [value for value in (self.lower, self.start, self.upper) if value is not None]
        increasing = all(b - a >= 1 / LARGEST for a, b in itertools.pairwise(given))
        if not all(abs(value) <= LARGEST for value in given) or not increasing:  # so that every `free` is finite
            raise ConfigError(
                f"`Parameter` must have finite numbers of at most {LARGEST:g} in size with lower < start < upper, "
                f"{1 / LARGEST:g} or more apart; got lower={self.lower}, start={self.start}, upper={self.upper}. "
                "Leave a bound out for none."
            )

    def value(self, free: Any) -> Any:
        """The parameter of a free number.

        Args:
            free: any number.

        Returns:
            The value between the bounds.
        """
        free = np.asarray(free, float) if isinstance(free, int | float) else free
        if self.lower is not None and self.upper is not None:
            return self.lower + (self.upper - self.lower) * activate("sigmoid", free)
        bound = self.upper if self.lower is None else self.lower
        if bound is None:
            return self.start + self._scale * free
        return bound + (self.start - bound) * namespace(free).exp(free)

    def free(self, value: float) -> float:
        """The free number of a value, the inverse of `value`.

        Args:
            value: a value between the bounds.

        Returns:
            The free number.
        """
        if self.lower is not None and self.upper is not None:
            return math.log((value - self.lower) / (self.upper - value))
        bound = self.upper if self.lower is None else self.lower
        if bound is None:
            return (value - self.start) / self._scale
        return math.log((value - bound) / (self.start - bound))

    @property
    def _scale(self) -> float:
        return abs(self.start) or 1.0


@dataclass(frozen=True)
class State:
    """A state of known equations.

    Args:
        start: a guess of its value at the start of a record, in its unit.
        unit: the unit, for people.
    """

    start: float = 0.0
    unit: str = ""


class AbstractPhysics(ABC):
    """Known equations, `dx/dt = derivative(x, u, p)`, `y = output(x, u, p)`, in physical units and seconds.

    A plant is a frozen dataclass derived from this one. Its fields that are a `Parameter` are fitted; its other fields
    are constants: numbers, texts, or tuples of these. `states` names its states, in order. `max_dt` is the longest
    integration step in seconds that its equations stand, None for as long as a sample.

    `x`, `u` and what the functions return are sequences of arrays, one per state, input or output; `p` has every field
    by its name. Both functions must be written with `jax.numpy`, elementwise, and have finite derivatives wherever a
    simulation may come.
    """

    states: ClassVar[Mapping[str, State]]
    max_dt: ClassVar[float | None] = None

    @abstractmethod
    def derivative(self, x: Sequence[Array], u: Sequence[Array], p: Any) -> Sequence[Any]:
        """The derivative of each state per second.

        Args:
            x: one array per state, in its unit.
            u: one array per input, in its unit.
            p: all fields by name, parameters as numbers.

        Returns:
            One value per state.
        """

    @abstractmethod
    def output(self, x: Sequence[Array], u: Sequence[Array], p: Any) -> Sequence[Any]:
        """Each output.

        Args:
            x: one array per state, in its unit.
            u: one array per input, in its unit.
            p: all fields by name, parameters as numbers.

        Returns:
            One value per output, in its unit.
        """


def parameters_of(physics: AbstractPhysics) -> dict[str, Parameter]:
    """The fitted parameters of a plant, by name."""
    return {name: value for name, value in _fields(physics).items() if isinstance(value, Parameter)}


def with_values(physics: AbstractPhysics, free: Any) -> SimpleNamespace:
    """What `derivative` and `output` get as `p`."""
    values = {name: parameter.value(free[i]) for i, (name, parameter) in enumerate(parameters_of(physics).items())}
    return SimpleNamespace(**{**_fields(physics), **values})


def check_physics(physics: object, *, nu: int, ny: int) -> AbstractPhysics:
    """Check a plant's declaration against the number of channels, by evaluating the shapes of its functions.

    Args:
        physics: the plant.
        nu: number of inputs.
        ny: number of outputs.

    Returns:
        The plant.

    Raises:
        ConfigError: it is no frozen dataclass of `AbstractPhysics`, a constant cannot be stored, a state is no
            `State`, or a function does not give one value per state or output.
    """
    made = getattr(physics, "__dataclass_params__", None)
    if not isinstance(physics, AbstractPhysics) or made is None or not made.frozen:
        raise ConfigError(
            "`physics` must be a plant: an object of a frozen dataclass derived from tausid.physics.AbstractPhysics; "
            f"got {physics!r}. Write CascadedTanks(), or your own class under @dataclass(frozen=True)."
        )
    name = type(physics).__name__
    for key, value in _fields(physics).items():
        if not isinstance(value, Parameter) and not _is_plain(value):
            raise ConfigError(
                f"field `{key}` of {name} must be a Parameter, a number, a text, or a tuple of these; got {value!r}. "
                "Only these can be stored with a model."
            )
    states = getattr(physics, "states", None)
    if not isinstance(states, Mapping) or not all(isinstance(state, State) for state in states.values()) or not states:
        raise ConfigError(
            f"`states` of {name} must name each state with a State; got {states!r}. "
            "Write states = {'level': State(0.0, 'mm')}."
        )
    x, u = [np.zeros(())] * len(physics.states), [np.zeros(())] * nu
    p = with_values(physics, [0.0] * len(parameters_of(physics)))
    for what, function, count in (("derivative", physics.derivative, len(x)), ("output", physics.output, ny)):
        _check_count(f"{name}.{what}", function, (x, u, p), count, nu)
    return physics


def describe_physics(physics: AbstractPhysics) -> dict[str, Any]:
    """A plant as plain JSON values: the name of its class, and its fields.

    Args:
        physics: the plant.

    Returns:
        What `restore_physics` takes.
    """
    fields = {
        name: dataclasses.asdict(value) if isinstance(value, Parameter) else value
        for name, value in _fields(physics).items()
    }
    return {"name": type(physics).__name__, "fields": fields}


def restore_physics(kind: type[AbstractPhysics], fields: Mapping[str, Any]) -> AbstractPhysics:
    """A plant from the `fields` that `describe_physics` gave.

    Args:
        kind: its class.
        fields: their values by name.

    Returns:
        The plant.

    Raises:
        ConfigError: the class has other fields.
        SchemaError: a parameter is none.
    """
    values = {
        name: as_schema(value, Parameter) if isinstance(value, dict) else _as_tuples(value)
        for name, value in fields.items()
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__} must have the fields it was fitted with; {error}. Restore them.") from None


def _fields(physics: AbstractPhysics) -> dict[str, Any]:
    return {field.name: getattr(physics, field.name) for field in dataclasses.fields(physics)}  # type: ignore[arg-type]


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


def _check_count(name: str, function: Any, arguments: tuple[Any, ...], count: int, nu: int) -> None:
    x, u, p = arguments
    try:
        got = len(function(x, u, p))
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise ConfigError(
            f"`{name}` must take {len(x)} states and the records' {nu} inputs, and give a sequence; it fails: {error}. "
            "Correct it, or choose the plant's inputs."
        ) from None
    if got != count:
        rule = "one value per state" if name.endswith("derivative") else "one value per output of the records"
        raise ConfigError(f"`{name}` must give {rule}, {count}; got {got}. Correct it, or choose other outputs.")
