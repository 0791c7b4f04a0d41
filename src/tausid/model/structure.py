"""What a model is made of, and how it is integrated: the part of a recipe that a model keeps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tausid.checks import check_choice, check_flag, check_number, check_whole, shortened
from tausid.errors import ConfigError

AUTO = "auto"  # left to the data
Limits = str | tuple[Any, ...]  # of outputs: `none`, `auto`, a pair, or a pair per output

# Larger models are no longer ones that can be trained here, and their arrays would not fit into memory.
MOST = {"nx": 1000, "initial_samples": 2**31 - 1, "hidden": 65_536, "layers": 16, "degree": 10, "na": 10_000,
        "nb": 10_000, "substeps": 100_000, "threads": 1024}  # fmt: skip

# Samples that an initial state is estimated from, unless told otherwise: at least so many, and so many per state.
LEAST_FOR_INITIAL_STATE, SAMPLES_PER_STATE = 20, 5

CHOICES: dict[str, tuple[str, ...]] = {
    "network": ("mlp", "polynomial", "both", AUTO),
    "correction": ("none", "network"),
    "initial_state": ("encoder", "free"),
    "encoder": ("residual", "mlp"),
    "clock": (AUTO, "regular", "irregular"),
}


@dataclass(frozen=True)
class Structure:
    """What the model is. `auto` is left to the data.

    Args:
        nx: number of states; `auto` for as many as the best linear approximation has, or held-out data prefer.
        network: function approximator of f, g and the encoder: hidden layers (`mlp`), a `polynomial`, or `both`, one
            added to the other; `auto` for what held-out data prefer.
        hidden: widths of the hidden layers.
        activation: activation function of the hidden layers; `auto` for `leaky_relu` or `tanh`, by held-out data.
        degree: degree of the polynomial.
        bias: whether f and g have a constant term; the paper's networks have none.
        nonlinear_g: whether the output network is nonlinear; `auto` for what held-out data say.
        feedthrough: whether the outputs depend on the inputs at once, y = g(x, u), or not, y = g(x).
        correction: what corrects known equations, where such are given: `none`, or a `network` in the state equation.
        initial_state: `free`, one per training record, estimated from the first samples of a new one; or `encoder`,
            from past data.
        initial_samples: leading samples of a new record that a free initial state is estimated from, and that are not
            scored; 5 nx, if that is more. `auto` for three tau, from 20 samples to an eighth of the shortest record.
        encoder: the encoder's network: `residual`, as f and g, or `mlp`, hidden layers without a linear part.
        na: past outputs that the encoder sees.
        nb: past inputs that the encoder sees.
        clock: `irregular` where the encoder sees the time stamps of its samples, too; `regular` where it does not;
            `auto` for the first where the training records have more than one time step.
        output_limits: range of the simulated outputs in physical units: `none`; [lowest, highest] for one output or one
            such pair per output, None for an open end; or `auto`, where the training records run into a limit.
        dae: whether the paper's DAE network is trained beside f and g.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    nx: int | str = AUTO
    network: str = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "leaky_relu"
    degree: int = 3
    bias: bool = False
    nonlinear_g: bool | str = True
    feedthrough: bool = True
    correction: str = "none"
    initial_state: str = "free"
    initial_samples: int | str = AUTO
    encoder: str = "residual"
    na: int = 5
    nb: int = 5
    clock: str = AUTO
    output_limits: Limits = "none"
    dae: bool = False

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            check_choice(name, getattr(self, name), known)
        for name in ("nx", "initial_samples"):
            if getattr(self, name) != AUTO:
                check_whole(name, getattr(self, name), 1, MOST[name])
        for name, least in {"degree": 1, "na": 0, "nb": 0}.items():
            check_whole(name, getattr(self, name), least, MOST[name])
        if not isinstance(self.hidden, tuple) or len(self.hidden) > MOST["layers"]:
            raise ConfigError(
                f"`hidden` must be a list of at most {MOST['layers']} widths; got {shortened(self.hidden)}. "
                "Write [64, 64]."
            )
        for width in self.hidden:
            check_whole("hidden", width, 1, MOST["hidden"])
        if self.nonlinear_g != AUTO:
            check_flag("nonlinear_g", self.nonlinear_g)
        check_flag("bias", self.bias)
        check_flag("feedthrough", self.feedthrough)
        check_flag("dae", self.dae)
        _check_limits(self.output_limits)

    @property
    def order(self) -> int:
        """The number of states, once the data have said it.

        Raises:
            ConfigError: `nx` is still `auto`.
        """
        if isinstance(self.nx, str):
            raise ConfigError(f"`nx` must be a number where there are no records; got {self.nx!r}. Give one.")
        return self.nx

    def samples_for_initial_state(self, available: int | None = None) -> int:
        """How many leading samples of a new record go into its initial state, and so not into its score.

        Args:
            available: length of the record: of a short one at most half is used for an estimate.

        Returns:
            Their number.
        """
        return self.estimated_samples(available) if self.initial_state == "free" else max(self.na, self.nb)

    def estimated_samples(self, available: int | None = None) -> int:
        """How many samples an initial state is estimated from, by least squares.

        Args:
            available: length of the record: of a short one at most half is used.

        Returns:
            Their number.
        """
        per_state = 0 if isinstance(self.nx, str) else SAMPLES_PER_STATE * self.nx
        asked = LEAST_FOR_INITIAL_STATE if isinstance(self.initial_samples, str) else self.initial_samples
        wanted = max(asked, per_state)
        if available is None:
            return wanted
        return min(wanted, max(LEAST_FOR_INITIAL_STATE, per_state, available // 2))


@dataclass(frozen=True)
class Integration:
    """How the model is integrated.

    Args:
        stepper: explicit Runge-Kutta method.
        substeps: integration steps per sampling interval.
        hold: inputs between samples: `zero` or `first`, for all or one per input.
        max_dt: longest integration step in seconds: longer intervals are split. None is 1.5 times the median
            sampling interval over `substeps`, so that jitter costs nothing and a lost sample one step more.
        max_gap: longest sampling interval in seconds that is no gap; no simulation crosses a gap. None is ten times the
            median one of each record.
        engine: what computes the rollout: `fused` (C++), `scan` (JAX), or `auto`, the first if available.
        threads: threads of the fused engine; one, because one process per core is faster for models this small.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    stepper: str = "rk4"
    substeps: int = 1
    hold: str | tuple[str, ...] = "zero"
    max_dt: float | None = None
    max_gap: float | None = None
    engine: str = AUTO
    threads: int = 1

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, (AUTO, "fused", "scan"))
        for name in ("substeps", "threads"):
            check_whole(name, getattr(self, name), 1, MOST[name])
        for name in ("max_dt", "max_gap"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), positive=True)
        names = self.hold if isinstance(self.hold, tuple) else (self.hold,)
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"`hold` must be 'zero' or 'first', or one of these per input; got {self.hold!r}.")


def as_plain(settings: Any) -> dict[str, Any]:
    """The fields of a frozen dataclass as plain JSON values: tuples become lists."""
    return {field.name: _listed(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


def as_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values as settings: lists become tuples, and numpy's numbers Python's."""
    return {name: _plain(value) for name, value in values.items()}


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value


def _check_limits(limits: object) -> None:
    if limits in ("none", "auto"):
        return
    pairs = limits if isinstance(limits, tuple) and all(isinstance(pair, tuple) for pair in limits) else (limits,)
    if not pairs or not all(_is_range(pair) for pair in pairs):
        raise ConfigError(
            "`output_limits` must be 'none', 'auto', [lowest, highest], or one such pair per output; "
            f"got {shortened(limits)}. Write, for instance, [0, 10], or [null, 10] for an open end."
        )


def _is_range(pair: object) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    ends = [end for end in pair if end is not None]
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end) for end in ends)
    return numbers and (len(ends) < 2 or ends[0] < ends[1])
