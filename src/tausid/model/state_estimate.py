"""The initial state of a new record, by Levenberg-Marquardt on the simulation of its first samples."""

from __future__ import annotations

from dataclasses import dataclass, field

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
# Most steps, and most of them in a row without a lower error.
STEPS, TRIALS = 200, 12
# Relative decrease of the error that counts as converged.
TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class SimulationError:
    """`sum (y - y_hat)^2 + |tightness (x0 - expected)|^2` of several initial states, simulated side by side.

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
    repeated: dict[int, Samples] = field(default_factory=dict, init=False)

    def __call__(self, states: Float[np.ndarray, "n nx"]) -> Float[np.ndarray, "n"]:
        """The error of each state; infinite where the simulation diverges."""
        side = self._repeat(len(states))
        _, y_hat = self.system.simulate(self.theta, states, side)
        squares = (side.w * (y_hat - side.y) ** 2).reshape(len(states), -1).sum(axis=1)
        away = (states - self.expected) @ self.tightness.T
        return np.where(np.isnan(squares), np.inf, squares) + np.sum(away**2, axis=1)

    def equations(
        self, states: Float[np.ndarray, "n nx"]
    ) -> tuple[Float[np.ndarray, "n nx nx"], Float[np.ndarray, "n nx"]]:
        """`J'J` and `J'r` of each state."""
        found = self.system.normal(self.theta, states, self._repeat(len(states)), only_states=True)
        prior = self.tightness.T @ self.tightness
        return found.K + prior, found.k + (states - self.expected) @ prior

    def _repeat(self, count: int) -> Samples:
        """The record so many times, made once."""
        if count not in self.repeated:
            one = self.samples
            u, y, w, dt = (np.concatenate([array] * count) for array in (one.u, one.y, one.w, one.dt))
            self.repeated[count] = Samples(np.repeat(one.lengths, count), u, y, w, dt)
        return self.repeated[count]


def find_state(
    error: SimulationError, guess: Float[np.ndarray, "nx"], seen: Float[np.ndarray, "n_seen nx"]
) -> Float[np.ndarray, "nx"]:
    """The state with the lowest error near a guess, or near one of the states seen in training if much lower."""
    starts = np.asarray(guess, float)[None]
    if seen.any():  # zeros stand for none
        likely = np.argsort(error(seen), kind="stable")[:TRIED_SEEN]
        starts = np.concatenate([starts, seen[likely]])
    errors = error(starts)
    finite = np.isfinite(errors)  # there is no step from where the simulation diverges
    starts[finite], errors[finite] = _minimize(error, starts[finite], errors[finite])
    best = 0
    for other in range(1, len(starts)):
        if errors[other] < MUCH_LOWER * errors[best]:
            best = other
    return starts[best]


def _minimize(
    error: SimulationError, states: Float[np.ndarray, "n nx"], errors: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n nx"], Float[np.ndarray, "n"]]:
    """The minimum nearest to each state, and the error there."""
    damping, failures, moving = np.full(len(states), FIRST_DAMPING), np.zeros(len(states), int), np.arange(len(states))
    diagonal = np.arange(states.shape[1])
    for _ in range(STEPS):
        if not len(moving):
            break
        K, k = error.equations(states[moving])
        K[:, diagonal, diagonal] += damping[moving, None] * (K[:, diagonal, diagonal] + FLOOR)
        trials = states[moving] - np.linalg.solve(K, k[..., None])[..., 0]
        found, before = error(trials), errors[moving]
        lower = found < before
        states[moving[lower]], errors[moving[lower]] = trials[lower], found[lower]
        failures[moving] = np.where(lower, 0, failures[moving] + 1)
        damping[moving] *= np.where(lower, LESS, MORE)
        ended = (lower & (before - found <= TOLERANCE * found)) | (failures[moving] >= TRIALS)
        moving = moving[~ended]
    return states, errors
