"""The initial state of a new record, by Levenberg-Marquardt on the simulation of its first samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tausid.engine.compiled import Samples, System
from tausid.shapes import Float

# How many of the states seen in training an estimate also begins from, and by which factor their minimum must be lower
# than that from the expected state: what is about as likely would only change the estimate with chance.
TRIED_SEEN, MUCH_LOWER = 2, 0.5
# Damping, relative to the diagonal of J'J: at the start, and its factors after a good and a bad step.
FIRST_DAMPING, LESS, MORE = 1e-2, 0.2, 4.0
# Added to the diagonal, so that states that nothing depends on stay where they are.
FLOOR = 1e-8
# Most steps, and most trials of a step with more and more damping.
STEPS, TRIALS = 100, 12
# Relative decrease of the error that counts as converged.
TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class SimulationError:
    """`sum (y - y_hat)^2 + |tightness (x0 - expected)|^2` as a function of the initial state.

    Args:
        system: the model's equations.
        theta: its weights.
        samples: one record.
        expected: mean of the states along the training records.
        tightness: how closely they lie around it.
    """

    system: System
    theta: Float[np.ndarray, "P"]
    samples: Samples
    expected: Float[np.ndarray, "nx"]
    tightness: Float[np.ndarray, "nx nx"]

    def __call__(self, x0: Float[np.ndarray, "nx"]) -> float:
        """The error; infinite where the simulation diverges."""
        away = self.tightness @ (x0 - self.expected)
        return self.system.cost(self.theta, x0[None], self.samples) + float(away @ away)

    def of_each(self, states: Float[np.ndarray, "n nx"]) -> Float[np.ndarray, "n"]:
        """The error of each of several states, simulated side by side."""
        count, one = len(states), self.samples
        u, y, w, dt = (np.concatenate([array] * count) for array in (one.u, one.y, one.w, one.dt))
        _, y_hat = self.system.simulate(self.theta, states, Samples(np.repeat(one.lengths, count), u, y, w, dt))
        squares = (w * (y_hat - y) ** 2).reshape(count, -1).sum(axis=1)
        away = (states - self.expected) @ self.tightness.T
        return np.where(np.isnan(squares), np.inf, squares) + np.sum(away**2, axis=1)

    def equations(self, x0: Float[np.ndarray, "nx"]) -> tuple[Float[np.ndarray, "nx nx"], Float[np.ndarray, "nx"]]:
        """`J'J` and `J'r`."""
        found = self.system.normal(self.theta, x0[None], self.samples, only_states=True)
        prior = self.tightness.T @ self.tightness
        return found.K[0] + prior, found.k[0] + prior @ (x0 - self.expected)


def find_state(
    error: SimulationError, guess: Float[np.ndarray, "nx"], seen: Float[np.ndarray, "n_seen nx"]
) -> Float[np.ndarray, "nx"]:
    """The state with the lowest error near a guess, or near one of the states seen in training if much lower."""
    state, lowest = _minimize(error, guess)
    if seen.any():  # zeros stand for none
        for start in seen[np.argsort(error.of_each(seen), kind="stable")[:TRIED_SEEN]]:
            other, found = _minimize(error, start)
            if found < MUCH_LOWER * lowest:
                state, lowest = other, found
    return state


def _minimize(error: SimulationError, x0: Float[np.ndarray, "nx"]) -> tuple[Float[np.ndarray, "nx"], float]:
    """The nearest minimum, and the error there; the start itself where the simulation diverges from it."""
    x0, now, damping = np.asarray(x0, float), error(x0), FIRST_DAMPING
    for _ in range(STEPS):
        if not np.isfinite(now):
            break
        K, k = error.equations(x0)
        for _ in range(TRIALS):
            trial = x0 - np.linalg.solve(K + damping * np.diag(np.diag(K) + FLOOR), k)
            found = error(trial)
            if found < now:
                break
            damping *= MORE
        else:
            break
        gain, x0, now, damping = now - found, trial, found, damping * LESS
        if gain <= TOLERANCE * now:
            break
    return x0, now
