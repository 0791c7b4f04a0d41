"""The initial state of a new record, by Levenberg-Marquardt on the simulation of its first samples."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tausid.engine.compiled import Samples, System
from tausid.model.initial import FreeState
from tausid.model.state_priors import FIRST_LOOK, Priors, priors
from tausid.shapes import Float

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
    """The squared errors of a record's samples, of several initial states that are simulated side by side.

    Args:
        system: the model's equations.
        theta: its weights.
        samples: one record.
    """

    system: System
    theta: Float[np.ndarray, "P"]
    samples: Samples
    repeated: dict[tuple[int, int], Samples] = field(default_factory=dict, init=False)

    def residuals(self, states: Float[np.ndarray, "n nx"], count: int) -> Float[np.ndarray, "n R"]:
        """`y_hat - y` of each state over the first samples; not finite where the simulation diverges."""
        side = self._repeat(len(states), count)
        errors = self.system.outputs(self.theta, states, side)
        errors -= side.y
        errors *= side.w
        return errors.reshape(len(states), -1)

    def __call__(self, states: Float[np.ndarray, "n nx"], prior: Priors) -> Float[np.ndarray, "n"]:
        """`sum (y - y_hat)^2 + |tightness (x0 - center)|^2` of each state; infinite where the simulation diverges."""
        errors = self.residuals(states, len(self.samples.u))
        squares = np.einsum("nr,nr->n", errors, errors)
        return np.where(np.isnan(squares), np.inf, squares) + prior.squares(states)

    def equations(
        self, states: Float[np.ndarray, "n nx"], prior: Priors
    ) -> tuple[Float[np.ndarray, "n nx nx"], Float[np.ndarray, "n nx"]]:
        """`J'J` and `J'r` of each state."""
        side = self._repeat(len(states), len(self.samples.u))
        found = self.system.normal(self.theta, states, side, only_states=True)
        return found.K + prior.precision, found.k + prior.slope(states)

    def _repeat(self, count: int, length: int) -> Samples:
        """The first samples of the record so many times, made once."""
        if (count, length) not in self.repeated:
            one = self.samples
            u, y, w, dt = (np.concatenate([array[:length]] * count) for array in (one.u, one.y, one.w, one.dt))
            self.repeated[count, length] = Samples(np.full(count, length, one.lengths.dtype), u, y, w, dt)
        return self.repeated[count, length]


def find_state(error: SimulationError, guess: Float[np.ndarray, "nx"], known: FreeState) -> Float[np.ndarray, "nx"]:
    """The state with the lowest error, with what is known of states: near a guess, or near states seen in training."""
    measured = np.flatnonzero(error.samples.w.any(axis=1))
    look = measured[:FIRST_LOOK][-1] + 1 if len(measured) else 1
    prior = priors(known, error.residuals, len(error.samples.u), int(look))
    starts = prior.start.copy()
    starts[0] = guess
    errors = error(starts, prior)
    finite = np.flatnonzero(np.isfinite(errors))  # there is no step from where the simulation diverges
    if not len(finite):
        return starts[0]
    prior = prior.rows(finite)
    states, errors, curvature = _minimize(error, starts[finite], errors[finite], prior)
    return states[np.argmax(prior.log_evidence(errors, curvature))]


def _minimize(
    error: SimulationError, states: Float[np.ndarray, "n nx"], errors: Float[np.ndarray, "n"], prior: Priors
) -> tuple[Float[np.ndarray, "n nx"], Float[np.ndarray, "n"], Float[np.ndarray, "n nx nx"]]:
    """The minimum nearest to each state, the error there, and J'J at the last step."""
    damping, failures, moving = np.full(len(states), FIRST_DAMPING), np.zeros(len(states), int), np.arange(len(states))
    curvature, own = np.zeros_like(prior.tightness), prior
    for _ in range(STEPS):
        if not len(moving):
            break
        K, k = error.equations(states[moving], own)
        curvature[moving] = K
        diagonal = np.einsum("nii->ni", K)  # a view
        diagonal += damping[moving, None] * (diagonal + FLOOR)
        trials = states[moving] - np.linalg.solve(K, k[..., None])[..., 0]
        found, before = error(trials, own), errors[moving]
        lower = found < before
        states[moving[lower]], errors[moving[lower]] = trials[lower], found[lower]
        failures[moving] = np.where(lower, 0, failures[moving] + 1)
        damping[moving] *= np.where(lower, LESS, MORE)
        ended = (lower & (before - found <= TOLERANCE * found)) | (failures[moving] >= TRIALS)
        if ended.any():
            moving = moving[~ended]
            own = prior.rows(moving)
    return states, errors, curvature
