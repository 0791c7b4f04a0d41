"""Kalman filters on a model: states from measurements, one sample at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from tausid.control.moments import gain, spread
from tausid.data.records import UNIFORM_TOLERANCE, Record
from tausid.errors import ConfigError, DataError
from tausid.export.delays import DelayLine
from tausid.export.description import Description, describe, step_function
from tausid.export.interpreter import evaluate, jacobian, step
from tausid.export.operations import Function
from tausid.model.course import Simulation
from tausid.model.ensembles import AnyModel
from tausid.shapes import ArrayLike, Float


@dataclass(frozen=True, eq=False)
class Noise:
    """How uncertain a model and the measurements are.

    Args:
        process: covariance that the states gain per second, normalized, shape (nx, nx).
        measurement: covariance of the outputs' noise in physical units, shape (ny, ny).
        source: where the levels come from, in words.
    """

    process: Float[np.ndarray, "nx nx"]
    measurement: Float[np.ndarray, "ny ny"]
    source: str = "given"


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an observer knows after a sample.

    Args:
        t: time of the sample in seconds.
        x: the state, normalized.
        P: its covariance.
        y: the outputs in that state, physical units.
        innovation: measured minus predicted outputs; NaN where none was measured.
        S: covariance of the innovations.
        predicted: the state before the sample was taken.
        P_predicted: its covariance.
        F: its derivative with respect to the state after the sample before.
        C: derivative of the outputs with respect to it.
    """

    t: float
    x: Float[np.ndarray, "nx"]
    P: Float[np.ndarray, "nx nx"]
    y: Float[np.ndarray, "ny"]
    innovation: Float[np.ndarray, "ny"]
    S: Float[np.ndarray, "ny ny"]
    predicted: Float[np.ndarray, "nx"]
    P_predicted: Float[np.ndarray, "nx nx"]
    F: Float[np.ndarray, "nx nx"]
    C: Float[np.ndarray, "ny nx"]


class Observer:
    """A Kalman filter: `dx/dt = f(x, u) + w`, `y = g(x, u) + v`, sampled at any times.

    The state is integrated by the model's own method. Its covariance moves with the exact Jacobian of that step, as in
    an extended Kalman filter; or, `unscented`, with points that stand for the distribution, and may lie on both sides
    of a kink.

    Args:
        model: the model, or an ensemble.
        noise: levels of w and v, from `estimate_noise` or of one's own.
        x0: the state before the first sample; by default the mean of those seen in training.
        P0: its covariance; by default the identity, as states have unit size.
        unscented: whether points are taken instead of Jacobians: for outputs such as one that has lost its sign.
    """

    def __init__(
        self,
        model: AnyModel,
        noise: Noise,
        *,
        x0: ArrayLike | None = None,
        P0: ArrayLike | None = None,
        unscented: bool = False,
    ) -> None:
        self.description = d = describe(model)
        self.noise, self.unscented = noise, unscented
        self.x = d.x0.copy() if x0 is None else np.asarray(x0, float)
        self.P = np.eye(d.nx) if P0 is None else np.asarray(P0, float)
        sizes = [self.x.shape, self.P.shape, noise.process.shape, noise.measurement.shape]
        if sizes != [(d.nx,), (d.nx, d.nx), (d.nx, d.nx), (d.ny, d.ny)]:
            raise ConfigError(
                f"an observer of {d.nx} states and {d.ny} outputs must have x0, P0, process and measurement noise of "
                f"these sizes; got {sizes}. Give the noise of this model."
            )
        self.t: float | None = None
        self._step = step_function(d)
        self._line = DelayLine(d)
        self._u = np.zeros(d.nu)

    def update(self, u: ArrayLike, y: ArrayLike | None, t: float) -> Estimate:
        """Take one sample.

        Args:
            u: the inputs from this time on, in physical units.
            y: the measured outputs; NaN, or None for all, where there is none.
            t: its time in seconds, later than the one before.

        Returns:
            The estimate after it.

        Raises:
            DataError: a time that is not later, or other channels than the model's.
        """
        d = self.description
        inputs = np.atleast_1d(np.asarray(u, float))
        measured = np.full(d.ny, np.nan) if y is None else np.atleast_1d(np.asarray(y, float))
        if inputs.shape != (d.nu,) or measured.shape != (d.ny,) or not np.isfinite(inputs).all():
            raise DataError(
                f"a sample must have {d.nu} finite inputs and {d.ny} outputs; got {inputs} and {measured}. Give None "
                "for outputs that were not measured."
            )
        return self._correct(measured, self._advance(inputs, float(t)))

    def predict(self, u: ArrayLike, t: ArrayLike) -> tuple[Float[np.ndarray, "k ny"], Float[np.ndarray, "k ny"]]:
        """Predict the outputs at later times, without taking a sample.

        Args:
            u: the inputs at these times, in physical units, shape (k, nu).
            t: the times in seconds, shape (k,).

        Returns:
            The outputs, and the standard deviation of what would be measured.

        Raises:
            DataError: a time that is not later than the one before.
        """
        ahead, found = copy.deepcopy(self), []
        for inputs, time in zip(np.asarray(u, float).reshape(-1, self.description.nu), np.atleast_1d(t), strict=True):
            ahead._advance(inputs, float(time))
            y, C, rest = ahead._outputs(ahead._line.acting(inputs))
            found.append((y, np.sqrt(np.diag(C @ ahead.P @ C.T + rest + self.noise.measurement))))
        return np.array([y for y, _ in found]), np.array([std for _, std in found])

    def __deepcopy__(self, memo: dict[int, object]) -> Observer:
        other = copy.copy(self)
        other._line = copy.deepcopy(self._line, memo)
        return other

    def _advance(self, u: np.ndarray, t: float) -> np.ndarray:
        """Move state and covariance to a time, at which the inputs become u; and the derivative of that move."""
        F = np.eye(self.description.nx)
        if self.t is not None:
            if not t > self.t:
                raise DataError(f"samples must come in the order of their times; got {t:g} s after {self.t:g} s.")
            now, dt = self._line.acting(self._u), t - self.t
            self._line.remember(self._u, dt)
            self.x, F, rest = self._moved(now, self._line.acting(u), dt)
            self.P = F @ self.P @ F.T + rest + self.noise.process * dt
        self.t, self._u = t, u
        return F

    def _correct(self, y: np.ndarray, F: np.ndarray) -> Estimate:
        acting, predicted, P, R = self._line.acting(self._u), self.x, self.P, self.noise.measurement
        expected, C, rest = self._outputs(acting)
        innovation = y - expected
        known = np.isfinite(innovation)
        if known.any():
            K, self.P = gain(P, C[known], (R + rest)[np.ix_(known, known)])
            self.x = predicted + K @ innovation[known]
        assert self.t is not None
        after = evaluate(self.description.g, self.x, acting)
        return Estimate(self.t, self.x, self.P, after, innovation, C @ P @ C.T + rest + R, predicted, P, F, C)

    def _moved(self, u: np.ndarray, u_next: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
        """The state `dt` seconds later, the derivative of that move, and the covariance that is not linear."""
        d = self.description
        if not self.unscented:
            return *transition(d, self._step, self.x, u, u_next, dt), 0.0
        return spread(lambda x: step(d, x, _for_all(u, x), _for_all(u_next, x), dt), self.x, self.P)

    def _outputs(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
        """The outputs, their derivative, and the covariance that is not linear."""
        g = self.description.g
        if not self.unscented:
            return evaluate(g, self.x, u), jacobian(g, self.x, u)[0], 0.0
        return spread(lambda x: evaluate(g, x, _for_all(u, x)), self.x, self.P)


def _for_all(u: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The same inputs for each row of states."""
    return np.broadcast_to(u, (len(x), len(u)))


def transition(
    d: Description, step: Function, x: np.ndarray, u: np.ndarray, u_next: np.ndarray, dt: float
) -> tuple[np.ndarray, np.ndarray]:
    """The state after `dt` seconds, and its derivative with respect to the one before."""
    parts = max(int(np.ceil(dt / d.longest_step - UNIFORM_TOLERANCE)), 1)
    whole = np.eye(d.nx)
    for i in range(parts):
        ends = (u + (i + k) / parts * d.hold * (u_next - u) for k in (0, 1))
        given = np.concatenate([*ends, [dt / parts]])
        whole = jacobian(step, x, given)[0] @ whole
        x = evaluate(step, x, given)
    return x, whole


def predict_ahead(observer: Observer, record: Record, *, steps: int = 1) -> Simulation:
    """Predictions of a record's outputs from the samples up to `steps` before, as a simulation that can be scored.

    Args:
        observer: the observer, which is left as it is.
        record: the record.
        steps: how many samples ahead.

    Returns:
        The predictions; the first `steps` samples have none.

    Raises:
        ConfigError: `steps` is no number from 1 on, or more than the record has.
    """
    if not 1 <= steps < len(record):
        raise ConfigError(
            f"`steps` must be from 1 to the record's {len(record) - 1}; got {steps}. Choose another number."
        )
    own = copy.deepcopy(observer)
    y = np.full(record.y.shape, np.nan)
    x = np.full((len(record), own.description.nx), np.nan)
    for k in range(len(record)):
        x[k] = own.update(record.u[k], record.y[k], record.t[k]).x
        if k + steps < len(record):
            later = slice(k + 1, k + 1 + steps)
            y[k + steps] = own.predict(record.u[later], record.t[later])[0][-1]
    return Simulation(record.t, y, x, steps, "ok", record.output_names, "given")
