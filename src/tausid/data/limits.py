"""The one rule for limits that a channel runs into: where a sensor or a tank ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tausid.shapes import Bool, Float

# A channel with at most this many different values is a switch or a staircase: it has no limits to run into.
FEW_LEVELS = 16
# A limit is taken by at least this share of the samples: no two samples of a noisy signal agree by chance.
LIMIT_SHARE = 0.005
# Times that records must run into a limit and leave it again: one at rest before its experiment begins, or after it has
# ended, stays at one value, too.
LEAST_VISITS = 2
# How many times more often than the next value a limit is taken: a quantized sine is at its extreme 2.4 times as often.
STANDS_OUT = 5.0


def find_limits(records: Sequence[Float[np.ndarray, "_"]]) -> tuple[float | None, float | None]:
    """Lower and upper limit of a channel: a share of its samples is exactly at its extreme, far more than next to it.

    It gets there and leaves again at least twice.
    """
    known = [y[~np.isnan(y)] for y in records]
    values, counts = np.unique(np.concatenate(known), return_counts=True)
    if len(values) <= FEW_LEVELS:
        return None, None
    ends = ((values[0], counts[0], counts[1]), (values[-1], counts[-1], counts[-2]))
    low, high = (
        float(value)
        if count >= max(LIMIT_SHARE * counts.sum(), STANDS_OUT * beside)
        and sum(_visits(y == value) for y in known) >= LEAST_VISITS
        else None
        for value, count, beside in ends
    )
    return low, high


def _visits(there: Bool[np.ndarray, "N"]) -> int:
    """How often a record gets to a value and leaves it again."""
    arrives = np.flatnonzero(there[1:] & ~there[:-1])
    return len(arrives) - int(bool(len(arrives)) and bool(there[-1]))
