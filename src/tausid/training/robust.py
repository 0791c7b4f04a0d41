"""The robust loss: errors that are far larger than usual count as if they were not.

An error e counts as `clip(e, -c, c)`, with `c = 4 s` and s the usual error of its output, `1.48 median |e|`: the
standard deviation of normal errors, whatever a few others are. In training s and the factors `min(1, c / |e|)` are
those of the point at hand, and constant during an iteration (iteratively reweighted least squares).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tausid.data.records import Record
from tausid.engine.normal_equations import SquaredError
from tausid.model.course import Simulation
from tausid.shapes import Float
from tausid.training.least_squares import Point

# Errors count up to so many usual ones: next to none of normal errors are larger.
MOST = 4.0
# The standard deviation of normal errors over the median of their absolute values.
DEVIATION = 1.4826


def reweighted(error: SquaredError, point: Point) -> tuple[SquaredError, Point]:
    """The squared error with factors from its residuals at a point, and the point with its cost by them."""
    residuals = np.concatenate(error.residuals(point.theta, point.x0))
    factors = clip_factors(residuals)
    if not np.isfinite(point.cost) or factors.min() == 1.0:
        return error, dataclasses.replace(point, cost=error.cost(point.theta, point.x0))
    return error.weighted(factors), dataclasses.replace(point, cost=float(np.nansum((factors * residuals) ** 2)))


def clip_factors(errors: Float[np.ndarray, "N ny"]) -> Float[np.ndarray, "N ny"]:
    """What each error is multiplied by, so that none is larger than `MOST` usual ones; NaN and infinite ones by one.

    Errors of exactly zero, as of an output that rests at its limit, say nothing of what is usual.
    """
    sizes = np.abs(errors)
    known = np.isfinite(sizes) & (sizes > 0)
    factors = np.ones_like(sizes)
    for i, here in enumerate(known.T):
        if here.any():
            largest = MOST * DEVIATION * np.median(sizes[here, i])
            factors[here, i] = np.minimum(1.0, largest / sizes[here, i])
    return factors


def clipped_to(simulations: Sequence[Simulation], records: Sequence[Record]) -> list[Record]:
    """Records whose outputs are no further from the simulated ones than the robust loss counts."""
    errors = [record.y - run.y for run, record in zip(simulations, records, strict=True)]
    for error, run in zip(errors, simulations, strict=True):
        error[: run.n_skipped] = np.nan  # not scored
    factors = np.split(clip_factors(np.concatenate(errors)), np.cumsum([len(error) for error in errors])[:-1])
    moved = [run.y + f * (record.y - run.y) for run, record, f in zip(simulations, records, factors, strict=True)]
    return [dataclasses.replace(record, y=y) for record, y in zip(records, moved, strict=True)]
