"""Limits that the outputs of records run into: where a sensor or a tank ends, a simulation must end, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tausid.data.inspection import FEW_LEVELS
from tausid.data.records import Record
from tausid.errors import ConfigError
from tausid.model.structure import Limits
from tausid.shapes import Bool, Float

# A limit is taken by at least this share of the samples: no two samples of a noisy signal agree by chance.
LIMIT_SHARE = 0.005
# Times that records must run into a limit and leave it again: one at rest before its experiment begins, or after it has
# ended, stays at one value, too.
LEAST_VISITS = 2
# How many times more often than the next value a limit is taken: a quantized sine is at its extreme 2.4 times as often.
STANDS_OUT = 5.0


def resolve_limits(limits: Limits, records: Sequence[Record]) -> Limits:
    """Limits as they were given, one pair per output, or found in the records."""
    if limits == "none":
        return limits
    if limits == "auto":
        found = tuple(find_limits([record.y[:, i] for record in records]) for i in range(records[0].ny))
        return found if any(limit is not None for pair in found for limit in pair) else "none"
    assert isinstance(limits, tuple)
    pairs = limits if isinstance(limits[0], tuple) else (limits,)
    if len(pairs) != records[0].ny:
        raise ConfigError(
            f"`output_limits` must be one pair per output; got {len(pairs)} for {records[0].ny} outputs. "
            "Write [null, null] for an output without limits."
        )
    return pairs


def find_limits(records: Sequence[Float[np.ndarray, "_"]]) -> tuple[float | None, float | None]:
    """Where an output runs into a limit: a share of its samples is exactly at its extreme, far more than next to it.

    It gets there and leaves again at least twice.
    """
    known = [y[~np.isnan(y)] for y in records]
    values, counts = np.unique(np.concatenate(known), return_counts=True)
    if len(values) <= FEW_LEVELS:  # a switch or a staircase
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


def describe_limits(limits: Limits, names: Sequence[str], units: Sequence[str]) -> str:
    """The limits in one sentence."""
    if isinstance(limits, str):
        return ""
    parts = []
    for name, unit, (low, high) in zip(names, units, limits, strict=True):
        ends = [f"at least {low:g}"] if low is not None else []
        ends += [f"at most {high:g}"] if high is not None else []
        parts += [f"{name} is {' and '.join(ends)} {unit}".rstrip()] if ends else []
    return f"Simulated outputs are limited: {', '.join(parts)}."
