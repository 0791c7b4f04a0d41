"""A model that is stepped from outside, one sample at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tausid.data.records import UNIFORM_TOLERANCE
from tausid.data.scaling import Scaling
from tausid.engine.choice import Engine
from tausid.engine.compiled import OneStep
from tausid.errors import DataError, DivergenceError
from tausid.export.delays import DelayLine
from tausid.export.description import Description, describe
from tausid.export.interpreter import evaluate, step
from tausid.model.ensembles import AnyModel, EnsembleModel, trimmed_mean
from tausid.model.free_run import one_step
from tausid.shapes import ArrayLike, Float

# States and outputs `dt` seconds later, from states, inputs as they act now and then, and dt.
Step: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]]


class Simulator:
    """A plant for a loop of one's own: it keeps the state `x`, the time `t` in seconds and the outputs `y`.

    A step is computed by the compiled library, in microseconds; with known equations, which it has not, by numpy.

    Args:
        model: the model, or an ensemble.
        x0: the state to begin from; by default the mean of those seen in training.
        u0: the inputs before the first step, in physical units, on which `y` depends at the start; by default the
            means of training.
    """

    def __init__(self, model: AnyModel, *, x0: ArrayLike | None = None, u0: ArrayLike | None = None) -> None:
        self.description = d = describe(model)
        self.x: Float[np.ndarray, "nx"] = d.x0.copy() if x0 is None else np.asarray(x0, float)
        self.t = 0.0
        self._line = DelayLine(d) if d.delays.any() else None
        self._compiled = _compiled_step(model, d)
        u = d.u_mean if u0 is None else np.atleast_1d(np.asarray(u0, float))
        self.y: Float[np.ndarray, "ny"] = evaluate(d.g, self.x, u)

    def step(self, u: ArrayLike, dt: float, u_next: ArrayLike | None = None) -> Float[np.ndarray, "ny"]:
        """Let `dt` seconds pass.

        Args:
            u: the inputs now, in physical units; they are held, unless `u_next` says where they go.
            dt: seconds, any at each step.
            u_next: the inputs then, for those with first-order hold.

        Returns:
            The outputs then.

        Raises:
            DataError: another number of inputs than the model's, or no time that passes.
            DivergenceError: the model diverged.
        """
        if not 0.0 < dt < math.inf:
            raise DataError(f"`dt` must be a positive number of seconds; got {dt}. Give the time that passes.")
        now = self._inputs(u)
        then = now if u_next is None else self._inputs(u_next)
        if self._line is not None:
            given, now = now, self._line.acting(now)
            self._line.remember(given, dt)
            then = self._line.acting(then)
        if self._compiled is None:
            self.x = step(self.description, self.x, now, then, dt)
            self.y = evaluate(self.description.g, self.x, then)
        else:
            self.x, self.y = self._compiled(self.x, now, then, dt)
        self.t += dt
        if not all(map(math.isfinite, self.x.tolist())):
            raise DivergenceError(
                f"the simulator must stay finite; it diverged at {self.t:g} s. Check inputs and units."
            )
        return self.y

    def _inputs(self, u: ArrayLike) -> np.ndarray:
        inputs = np.array(u, float, ndmin=1)
        if inputs.shape != self.description.u_mean.shape:
            raise DataError(
                f"`u` must have the model's {self.description.nu} inputs; got shape {inputs.shape}. Give a number each."
            )
        return inputs


def _compiled_step(model: AnyModel, d: Description) -> Step | None:
    """Steps by the library; None where it does not simulate the model."""
    found = []
    for member in model.members if isinstance(model, EnsembleModel) else (model,):
        one = one_step(member.state_space, member.integrator, Engine(member.integration.engine))
        if one is None:
            return None
        found.append(_CompiledStep(one, member.scaling, d))
    return found[0] if len(found) == 1 else _together(found)


class _CompiledStep:
    """A step by the compiled library in physical units; a long one in parts."""

    def __init__(self, one: OneStep, scaling: Scaling, d: Description) -> None:
        self.one, self.scaling, self.hold, self.longest = one, scaling, d.hold, d.longest_step
        self.rows = *one.x, *one.u, one.y[1]

    def __call__(self, x: np.ndarray, u: np.ndarray, u_next: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
        one, scaling, (x0, x1, u0, u1, y) = self.one, self.scaling, self.rows
        x0[:], u0[:] = x, (u - scaling.u_mean) / scaling.u_std
        parts = math.ceil(dt / self.longest - UNIFORM_TOLERANCE) if dt > self.longest else 1
        one.dt[0] = dt / parts
        if parts > 1:
            now, rise = u0.copy(), self.hold * (u_next - u) / scaling.u_std
            for i in range(1, parts):
                u1[:] = now + i / parts * rise
                one()
                x0[:], u0[:] = x1, u1
        u1[:] = u0 if u_next is u else (u_next - scaling.u_mean) / scaling.u_std
        one()
        return x1.copy(), y * scaling.y_std + scaling.y_mean


def _together(steps: list[_CompiledStep]) -> Step:
    """The members of an ensemble side by side."""
    ends = np.cumsum([len(own.one.x[0]) for own in steps])[:-1]

    def take(x: np.ndarray, u: np.ndarray, u_next: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
        found = [own(part, u, u_next, dt) for own, part in zip(steps, np.split(x, ends), strict=True)]
        return np.concatenate([x for x, _ in found]), trimmed_mean(np.array([y for _, y in found]))

    return take
