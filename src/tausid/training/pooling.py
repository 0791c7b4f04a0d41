"""The errors of all folds of a candidate together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tausid.shapes import Float
from tausid.training.result import FoldCurve, FoldCurves

# Errors below this share of the deviation are as good as none: what is left to choose by is rounding.
NEGLIGIBLE = 1e-4


def pool(curves: Sequence[FoldCurve]) -> FoldCurves:
    """Curves together, at all steps that one of them has; between and after its steps one stays at its last error."""
    steps = sorted({step for curve in curves for step in curve.steps})
    scores = np.array([[value_at(curve.errors, curve, step) for step in steps] for curve in curves])
    scores = np.where(np.isfinite(scores), scores, np.inf)
    weights = [curve.scored for curve in curves]
    pooled = geometric_mean(scores, weights)
    # The first of those that are as good.
    chosen = steps[int(np.argmin(geometric_mean(np.maximum(scores, NEGLIGIBLE), weights)))]
    return FoldCurves(tuple(steps), tuple(map(tuple, scores.tolist())), tuple(pooled.tolist()), chosen)


def geometric_mean(scores: Float[np.ndarray, "folds steps"], weights: Sequence[int]) -> Float[np.ndarray, "steps"]:
    """Weighted geometric means over the folds: what counts is by how much each of them gets better."""
    return np.exp(np.average(np.log(np.maximum(scores, np.finfo(float).tiny)), axis=0, weights=weights))


def value_at(values: Sequence[float], curve: FoldCurve, step: int) -> float:
    """What a fold had after so many steps, of values at those that its curve has."""
    return values[int(np.searchsorted(curve.steps, step, side="right")) - 1]
