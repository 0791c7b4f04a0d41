"""What training knows of the initial state of a new record, before and after a look at its first samples.

States along the training records lie on curves rather than all through an ellipsoid. Where the first samples hardly
show the state, a state on such a curve that explains them is a better guess than the mean of a normal distribution. So
there are three distributions: that of all states, one around the states on the curves that explain the samples, by
their likelihoods, and one around the most likely of them. The estimate is made with the one of the largest evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tausid.model.initial import FreeState
from tausid.shapes import Bool, Float, Int

# Deviation of a state from the curves of the states seen, relative to that of all states. Training records of
# benchmarks come back to within 0.02 to 0.3 of where they were.
OFF_CURVE = 0.1
# Samples that all states seen are compared with, and how many pieces of curves are compared with all samples then.
FIRST_LOOK, LIKELY = 4, 8
# States seen that a search begins from where it need not end near them.
TRIED_SEEN = 2
# Added to the curvature where nothing depends on a state, relative to what is known of all states.
FLAT = 1e-6

Residuals = Callable[[Float[np.ndarray, "n nx"], int], Float[np.ndarray, "n R"]]


@dataclass(frozen=True, eq=False)
class Priors:
    """Normal distributions of an initial state: `|tightness (x0 - center)|^2` counts like squared errors of outputs.

    Args:
        start: where the search for each begins.
        center: their means.
        tightness: how closely states lie around them, for the noise of the outputs.
        volume: logarithm of the volume of each, relative to the first.
        noise: variance of the outputs' errors; infinite where it is not known.
        flat: added to the curvature, so that a state that nothing depends on says nothing.
    """

    start: Float[np.ndarray, "n nx"]
    center: Float[np.ndarray, "n nx"]
    tightness: Float[np.ndarray, "n nx nx"]
    volume: Float[np.ndarray, "n"]
    noise: float
    flat: Float[np.ndarray, "nx nx"]

    @cached_property
    def precision(self) -> Float[np.ndarray, "n nx nx"]:
        """`tightness' tightness`: inverse covariances times the variance of the outputs' errors."""
        return np.swapaxes(self.tightness, 1, 2) @ self.tightness

    def slope(self, states: Float[np.ndarray, "n nx"]) -> Float[np.ndarray, "n nx"]:
        """Half the gradient of the squares, at one state for each distribution."""
        return (self.precision @ (states - self.center)[..., None])[..., 0]

    def squares(self, states: Float[np.ndarray, "n nx"]) -> Float[np.ndarray, "n"]:
        """`|tightness (x0 - center)|^2` of one state for each distribution."""
        away = (self.tightness @ (states - self.center)[..., None])[..., 0]
        return np.einsum("ni,ni->n", away, away)

    def rows(self, which: Int[np.ndarray, "m"]) -> Priors:
        """Some of them."""
        start, center, tightness = self.start[which], self.center[which], self.tightness[which]
        return Priors(start, center, tightness, self.volume[which], self.noise, self.flat)

    def log_evidence(
        self, errors: Float[np.ndarray, "n"], curvature: Float[np.ndarray, "n nx nx"]
    ) -> Float[np.ndarray, "n"]:
        """How likely the samples are with each distribution, by Laplace's approximation at the minimum of each.

        `-error / (2 noise) - log(volume) - log(det(curvature)) / 2`, with `curvature` the J'J there, that of the
        distribution included.
        """
        return -errors / (2 * self.noise) - self.volume - np.linalg.slogdet(curvature + self.flat)[1] / 2


def priors(known: FreeState, residuals: Residuals, samples: int, first_look: int = FIRST_LOOK) -> Priors:
    """The distributions for a record of so many samples; only that of all states where no state was seen, or where new
    records need not begin near those: then the states seen are other starts of the search.

    `residuals(states, count)` are the errors of simulations from these states over the first `count` samples.
    """
    seen, expected, tightness = (np.asarray(array, float) for array in (known.seen, known.expected, known.tightness))
    flat = FLAT * np.mean(tightness**2) * np.eye(len(expected))
    of_all = Priors(expected[None], expected[None], tightness[None], np.zeros(1), np.inf, flat)
    noise = _noise(seen, expected, tightness)
    if not noise > 0:
        return of_all
    states, errors = _explain(seen, _goes_on(known), residuals, samples, first_look)
    if not len(errors):
        return of_all
    if not known.near_seen:  # where to begin, and no more
        starts = np.concatenate([expected[None], states[np.argsort(errors, kind="stable")[:TRIED_SEEN]]])
        n = len(starts)
        center, tightness = expected[None].repeat(n, axis=0), tightness[None].repeat(n, axis=0)
        return Priors(starts, center, tightness, np.zeros(n), noise, flat)
    likely, root = _conditional(states, np.exp((errors.min() - errors) / (2 * noise)), tightness, noise)
    starts = np.stack([expected, likely, states[np.argmin(errors)]])
    return Priors(
        starts,
        starts,
        np.stack([tightness, np.linalg.solve(root, tightness), tightness / OFF_CURVE]),
        np.array([0.0, np.log(np.diag(root)).sum(), len(root) * np.log(OFF_CURVE)]),
        noise,
        flat,
    )


def _noise(
    seen: Float[np.ndarray, "n_seen nx"], expected: Float[np.ndarray, "nx"], tightness: Float[np.ndarray, "nx nx"]
) -> float:
    """Variance of the outputs' errors: `tightness` makes states with this variance of those seen."""
    moving = np.count_nonzero(np.any(tightness, axis=0))
    if not moving or not seen.any():  # zeros stand for none
        return 0.0
    return float(np.sum(((seen - expected) @ tightness.T) ** 2) / (len(seen) * moving))


def _goes_on(known: FreeState) -> Bool[np.ndarray, "n_seen"]:
    """Whether the curve goes on from a state to the next: not where another record begins."""
    seen, begins = np.asarray(known.seen, np.float32), np.asarray(known.x0, np.float32)  # as a file may have them
    first = (seen[:, None] == begins).all(axis=2).any(axis=1)
    return ~np.append(first[1:], True)


def _explain(
    seen: Float[np.ndarray, "n_seen nx"],
    goes_on: Bool[np.ndarray, "n_seen"],
    residuals: Residuals,
    samples: int,
    first_look: int,
) -> tuple[Float[np.ndarray, "n nx"], Float[np.ndarray, "n"]]:
    """The states on the curves that explain the samples best, one per piece between two states seen; their errors.

    All pieces, or, of more samples than the first look takes, those that are the most likely by it.
    """
    look = min(samples, first_look)
    pieces, after = np.arange(len(seen)), np.minimum(np.arange(len(seen)) + 1, len(seen) - 1)
    errors = residuals(seen, look)
    share, squares = _nearest(errors, errors[after], goes_on)
    if look < samples:
        pieces = np.argsort(squares, kind="stable")[:LIKELY]
        ends, places = np.unique([pieces, after[pieces]], return_inverse=True)  # pieces side by side have one together
        start, end = residuals(seen[ends], samples)[places.reshape(2, -1)]
        share, squares = _nearest(start, end, goes_on[pieces])
    finite = np.isfinite(squares)
    states = seen[pieces] + share[:, None] * (seen[after[pieces]] - seen[pieces])
    return states[finite], squares[finite]


def _nearest(
    start: Float[np.ndarray, "n R"], end: Float[np.ndarray, "n R"], goes_on: Bool[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Where between the ends of a piece the errors are least, as a share of its length, and their squares there.

    Errors are taken as linear between the ends. A piece that does not go on is its start; infinite where that diverges.
    """
    both = goes_on & np.isfinite(start).all(axis=1) & np.isfinite(end).all(axis=1)
    along = np.zeros_like(start)
    np.subtract(end, start, out=along, where=both[:, None])
    length = np.einsum("nr,nr->n", along, along)
    share = np.clip(-np.einsum("nr,nr->n", start, along) / np.where(length > 0, length, 1.0), 0.0, 1.0)
    errors = start + share[:, None] * along
    squares = np.einsum("nr,nr->n", errors, errors)
    diverged = ~np.isfinite(squares)
    return np.where(diverged, 0.0, share), np.where(diverged, np.inf, squares)


def _conditional(
    states: Float[np.ndarray, "n nx"],
    weights: Float[np.ndarray, "n"],
    tightness: Float[np.ndarray, "nx nx"],
    noise: float,
) -> tuple[Float[np.ndarray, "nx"], Float[np.ndarray, "nx nx"]]:
    """Weighted mean of states on curves, and a root of the covariance around it, relative to that of all states."""
    mean = weights @ states / weights.sum()
    away = (states - mean) @ tightness.T
    covariance = (away.T * weights) @ away / (weights.sum() * noise)
    return mean, np.linalg.cholesky(covariance + OFF_CURVE**2 * np.eye(len(mean)))
