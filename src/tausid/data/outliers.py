"""The one rule for samples that are no measurements: marks for "nothing", and single samples far from all others."""

from __future__ import annotations

import numpy as np

from tausid.data.limits import FEW_LEVELS
from tausid.shapes import Float, Int

# Numbers that loggers write where they have none.
MARKS = (-999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 32767.0, -32768.0, 65535.0, 1e20, 1e30, -1e30)
# A mark lies this many ranges of the other samples away from them.
FAR_MARK, FAR = 0.5, 3.0
# An outlier leaves the median of its neighbours, itself among them, by this many times what 98 % of all samples do,
# and by this share of the range of the medians.
NEIGHBOURS, LEAVES, RANGE_SHARE = 7, 8.0, 0.5
# More outliers than this share of the samples are none.
MOST = 0.01


def find_marks(values: Float[np.ndarray, " N"]) -> list[float]:
    """Values that stand for "nothing": an extreme that comes up again, or a known one, far from all other samples."""
    levels, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    found: list[float] = []
    while len(levels) > 2:
        low, high = levels[1] - levels[0], levels[-1] - levels[-2]
        end = 0 if low > high else -1
        rest = np.delete(levels, end)
        known = bool(np.isclose(MARKS, levels[end], rtol=1e-6).any())
        far = max(low, high) > (FAR_MARK if known else FAR) * (rest[-1] - rest[0])
        if not far or not (known or (counts[end] > 1 and len(rest) > FEW_LEVELS)):
            break
        found.append(float(levels[end]))
        levels, counts = rest, np.delete(counts, end)
    return found


def find_outliers(values: Float[np.ndarray, " N"]) -> Int[np.ndarray, " n"]:
    """Where single samples are, or a few in a row, that are far from their neighbours and beyond the other samples."""
    from scipy.ndimage import median_filter  # late: it takes a while to import

    known = np.flatnonzero(np.isfinite(values))
    measured = values[known]
    if len(np.unique(measured[:10_000])) <= FEW_LEVELS:
        return known[:0]
    medians = median_filter(measured, NEIGHBOURS, mode="nearest")
    away, low, high = np.abs(measured - medians), medians.min(), medians.max()
    least = max(LEAVES * np.quantile(away, 0.98), RANGE_SHARE * (high - low))
    found = known[(away > least) & ((measured < low) | (measured > high))]
    return found if len(found) <= MOST * len(known) else known[:0]
