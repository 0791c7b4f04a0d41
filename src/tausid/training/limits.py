"""Limits of simulated outputs: given, or found in the training records."""

from __future__ import annotations

from collections.abc import Sequence

from tausid.data.limits import find_limits
from tausid.data.records import Record
from tausid.errors import ConfigError
from tausid.model.structure import Limits


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
