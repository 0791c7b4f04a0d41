"""What a simulated plant declares: equations, parameters with units, channels, and how it is excited and measured."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar

from tausid.data.plants._excitation import AbstractExcitation
from tausid.data.plants._integrate import Channels, State


class AbstractPlant(abc.ABC):
    """A plant, dx/dt = f(x, u), y = g(x), and how it is measured.

    A subclass is a frozen dataclass whose fields are the plant's parameters, each a `parameter`. Beside its two methods
    it sets:

    - `name` and `summary`: what to call it, and one sentence on it;
    - `inputs`, `outputs` and `states`: name and unit of each;
    - `ts` and `max_step`: sampling time, and longest step of the integration, in seconds;
    - `samples`: length of the training record; a test record is as long;
    - `train` and `tests`: what excites it in the training record, and in each test record; each input has a realization
      of its own, cut to `u_range`;
    - `settle`: seconds of excitation before the first sample of a record, so that each begins in a state of its own;
    - `dead_time`: seconds between an input and its effect;
    - `noise`: standard deviation of each sensor's white noise, in the output's unit;
    - `drift`: standard deviation of each sensor's slow drift over a record, in the output's unit.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    inputs: ClassVar[Channels]
    outputs: ClassVar[Channels]
    states: ClassVar[Channels]
    ts: ClassVar[float]
    max_step: ClassVar[float]
    samples: ClassVar[int] = 2000
    train: ClassVar[AbstractExcitation]
    tests: ClassVar[tuple[AbstractExcitation, ...]]
    u_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    settle: ClassVar[float]
    dead_time = 0.0
    noise: ClassVar[tuple[float, ...]]
    drift: ClassVar[float] = 0.0

    @abc.abstractmethod
    def derivative(self, x: State, u: State) -> State:
        """The state equation, f(x, u), per second."""

    @abc.abstractmethod
    def output(self, x: State) -> State:
        """The output equation, g(x), without noise."""


def parameter(value: float, unit: str, meaning: str) -> Any:
    """A field of a plant: a number with its unit and what it is."""
    return dataclasses.field(default=value, metadata={"unit": unit, "meaning": meaning})


def parameter_units(plant: type) -> dict[str, str]:
    """The unit of each parameter of a plant, by its name."""
    return {field.name: field.metadata["unit"] for field in dataclasses.fields(plant)}


def tanh(x: Any) -> Any:
    """The hyperbolic tangent of a number, or of arrays of any kind: for equations that a grey box knows, too."""
    return math.tanh(x) if isinstance(x, float) else x.__array_namespace__().tanh(x)
