"""Levenberg-Marquardt on the full simulation error (eq. 3), in double precision.

The initial state of each record is free and eliminated from each step. How much each group of weights is held back
(weight decay) comes from the data: MacKay's evidence, from the `J'J` that is there anyway.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from tausid.engine.normal_equations import Normal, SquaredError
from tausid.shapes import Float
from tausid.training.correlation import independent_samples

# Damping, relative to the diagonal of J'J: at the start; its factors after a step that gained all that was expected,
# after one that gained next to nothing, and after one that gained nothing; and its least value.
FIRST_DAMPING, LESS, KEPT, MORE, LEAST_DAMPING = 1e-2, 0.2, 1.2, 4.0, 1e-9
# Added to the diagonal of J'J, so that what nothing depends on stays where it is.
FLOOR = 1e-8
# Most steps of the initial states alone, before the first iteration.
INITIAL_STEPS = 5
# Steps tried with more and more damping before the search gives up.
TRIALS = 12
# Relative decrease of the objective that counts as small, and how many small ones in a row count as converged: one
# may come from a damping that is still too large.
TOLERANCE, SMALL_GAINS = 1e-4, 3
# Weight decay of what is in no group; of the groups before the evidence says more, and its bounds.
LEAST_DECAY, FIRST_DECAY, DECAYS = 1e-8, 1e-6, (1e-9, 1e-1)
# Iterations at which the evidence is looked at: not at first, then often, then ever less.
EVIDENCE_AT = frozenset({*range(5, 32, 2), *(round(35 * 1.12**i) for i in range(40))})


@dataclass(frozen=True, eq=False)
class Decay:
    """What holds the weights back.

    Args:
        groups: which weights share a decay; those in no group have next to none.
        samples: how many independent samples there are; None where the decay stays as it is.
        by_residuals: whether the residuals say it instead, as they are at each point.
        start: the decay of the groups at the start.
    """

    groups: tuple[np.ndarray, ...] = ()
    samples: float | None = None
    by_residuals: bool = False
    start: float = FIRST_DECAY

    def first(self, count: int) -> Float[np.ndarray, "P"]:
        """The decay of each weight at the start."""
        decay = np.full(count, LEAST_DECAY)
        for group in self.groups:
            decay[group] = self.start
        return decay

    def next(self, point: Point, H: Float[np.ndarray, "P P"], error: SquaredError) -> Float[np.ndarray, "P"]:
        """The decay that makes the data most likely, half the way there (MacKay 1992).

        Of a group with gamma well-determined weights it is `gamma s^2 / (n |theta|^2)`, with s^2 the variance of the
        errors and n the number of independent samples.
        """
        if self.samples is None or not self.groups or point.iterations not in EVIDENCE_AT:
            return point.decay
        variance = _inverse_diagonal(_raised(H, point.decay + FLOOR * np.diag(H).mean()))
        if variance is None:
            return point.decay
        samples = self.samples
        if self.by_residuals:
            samples = independent_samples(error.residuals(point.theta, point.x0))
        determined = [len(group) - np.sum(point.decay[group] * variance[group]) for group in self.groups]
        noise = point.cost / max(1.0 - sum(determined) / samples, 0.05)
        decay = point.decay.copy()
        for gamma, group in zip(determined, self.groups, strict=True):
            size = max(float(np.sum(point.theta[group] ** 2)), 1e-9)
            wanted = np.clip(max(gamma, 0.01) * noise / (samples * size), *DECAYS)
            decay[group] = np.sqrt(decay[group] * wanted)
        return decay


@dataclass(frozen=True, eq=False)
class Point:
    """Where the search is.

    Args:
        theta: parameters.
        x0: initial states.
        cost: mean squared error.
        decay: factor of the square of each parameter in the objective.
        damping: of the next step.
        iterations: taken so far.
        small_gains: how many of the last ones gained next to nothing.
        converged: whether nothing is left to gain.
    """

    theta: Float[np.ndarray, "P"]
    x0: Float[np.ndarray, "B nx"]
    cost: float
    decay: Float[np.ndarray, "P"]
    damping: float = FIRST_DAMPING
    iterations: int = 0
    small_gains: int = 0
    converged: bool = False


def begin(error: SquaredError, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], decay: Decay) -> Point:
    """The first point of a search.

    The initial states move alone first: where one is wrong for long, as a position is, the weights would bend for it.
    """
    x0 = fit_initial_states(error, theta, x0)
    return Point(theta, x0, error.cost(theta, x0), decay.first(len(theta)))


def iterate(error: SquaredError, now: Point, decay: Decay) -> Point:
    """A point with a lower objective, or the same one where nothing is left to gain."""
    normal = error.normal(now.theta, now.x0)
    now = dataclasses.replace(now, decay=decay.next(now, normal.H, error), iterations=now.iterations + 1)
    normal = _with_decay(normal, now)
    objective, damping = _objective(now.cost, now.theta, now.decay), now.damping
    for _ in range(TRIALS):
        step = solve(normal, damping)
        if step is not None:
            theta, x0 = now.theta + step[0], now.x0 + step[1]
            cost = error.cost(theta, x0)
            gain = objective - _objective(cost, theta, now.decay)
            if gain > 0:  # not so where the trial is NaN or infinite
                small = now.small_gains + 1 if gain < TOLERANCE * objective else 0
                damping = max(damping * _less_or_more(gain / expected_gain(normal, step, damping)), LEAST_DAMPING)
                return Point(theta, x0, cost, now.decay, damping, now.iterations, small, small >= SMALL_GAINS)
        damping *= MORE
    return dataclasses.replace(now, damping=damping, converged=True)


def _less_or_more(ratio: float) -> float:
    """The factor of the damping after a step that gained this share of what was expected."""
    return min(max(KEPT - 1.6 * ratio, LESS), KEPT)


def expected_gain(
    normal: Normal, step: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "B nx"]], damping: float
) -> float:
    """By how much a damped step d lowers the linearized objective: `-d'h + damping d'D d`."""
    theta, x0 = step
    along = -float(normal.h @ theta) - float((normal.k * x0).sum())
    held = ((_diagonal(normal.H) + FLOOR) * theta**2).sum()
    return along + damping * float(held + ((_diagonal(normal.K) + FLOOR) * x0**2).sum())


@np.errstate(over="ignore", invalid="ignore")  # where a trajectory runs away: there is no step then
def solve(normal: Normal, damping: float) -> tuple[Float[np.ndarray, "P"], Float[np.ndarray, "B nx"]] | None:
    """The damped step; the initial states are eliminated first. None where rounding leaves no minimum."""
    P, states = len(normal.h), normal.k.size
    along = np.linalg.solve(damped(normal.K, damping), np.concatenate([normal.G, normal.k[..., None]], axis=2))
    across = normal.G.reshape(states, P).T @ along.reshape(states, P + 1)  # sum over records of G' K^-1 (G, k)
    right = normal.h - across[:, -1]
    if P == 0:  # initial states alone
        return right, -along[..., -1]
    reduced, diagonal = normal.H - across[:, :-1], _diagonal(normal.H)
    _diagonal(reduced)[:] = diagonal + damping * (diagonal + FLOOR) - _diagonal(across[:, :-1])
    factor, failed = lapack.dpotrf(reduced.T, lower=1, clean=0, overwrite_a=1)  # symmetric, and in LAPACK's order
    if failed:
        return None
    theta = -lapack.dpotrs(factor, right, lower=1)[0]
    return theta, -along[..., -1] - along[..., :-1] @ theta


def fit_initial_states(
    error: SquaredError, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]
) -> Float[np.ndarray, "B nx"]:
    """Initial states with a lower error for the same parameters, by a few Gauss-Newton steps."""
    for _ in range(INITIAL_STEPS):
        normal = error.normal(theta, x0, only_states=True)
        if not np.isfinite(normal.cost):
            break
        trial = x0 - np.linalg.solve(damped(normal.K, LEAST_DAMPING), normal.k[..., None])[..., 0]
        if not error.cost(theta, trial) < normal.cost:
            break
        x0 = trial
    return x0


def damped(matrix: Float[np.ndarray, "*B n n"], damping: float) -> Float[np.ndarray, "*B n n"]:
    """A matrix with its diagonal raised by a share of itself."""
    return _raised(matrix, damping * (_diagonal(matrix) + FLOOR))


def _with_decay(normal: Normal, point: Point) -> Normal:
    return dataclasses.replace(normal, H=_raised(normal.H, point.decay), h=normal.h + point.decay * point.theta)


def _raised(matrix: Float[np.ndarray, "*B n n"], by: Float[np.ndarray, "*B n"]) -> Float[np.ndarray, "*B n n"]:
    """A matrix with something added to its diagonal."""
    raised = matrix.copy()
    diagonal = _diagonal(raised)
    diagonal += by
    return raised


def _diagonal(matrix: Float[np.ndarray, "*B n n"]) -> Float[np.ndarray, "*B n"]:
    """The diagonal as a view, which can be written to."""
    return np.einsum("...ii->...i", matrix)


def _objective(cost: float, theta: np.ndarray, decay: np.ndarray) -> float:
    return cost + float((decay * theta**2).sum())


def _inverse_diagonal(matrix: np.ndarray) -> np.ndarray | None:
    """The diagonal of the inverse of a positive definite matrix, which is overwritten; None where rounding says it is
    not."""
    factor, failed = lapack.dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    if failed:
        return None
    inverse, failed = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    return None if failed else np.square(inverse, out=inverse).sum(axis=0)
