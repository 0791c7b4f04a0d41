"""Parts of long records that structures are tried on: spread over them, and at the rate that the dynamics need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tausid.data.clocks import has_one_clock, median_step
from tausid.data.preparation import decimate
from tausid.data.records import Record

# Samples that a structure is trained with, and scored on, where validation records decide.
TRIED, SCORED = 4096, 8192
# Stretches of a record, and the fewest samples of one.
STRETCHES, SHORTEST = 4, 256
# An input stands still where its variance is below this share of that in the whole record.
STILL = 0.01
# Ts/tau up to which samples are left out for a trial: the dynamics hardly change from one to the next.
NEEDED = 0.03


def every_needed(records: Sequence[Record], tau: float) -> int:
    """Of how many samples one is enough to see dynamics with this tau; one of one where a clock is irregular."""
    return max(1, int(NEEDED * tau / median_step(records))) if has_one_clock(records) else 1


def cut_stretches(records: Sequence[Record], samples: int, every: int = 1, least: int = 2) -> tuple[Record, ...]:
    """About so many samples of all records, spread over them, of which every so many is taken after a low-pass.

    A stretch has at least so many samples.
    """
    every = min(every, *(len(record) // (2 * max(SHORTEST, least)) or 1 for record in records))
    slower = [record if every == 1 else decimate(record, every) for record in records]
    share = samples / sum(len(record) for record in slower)
    if share >= 1.0:
        return tuple(slower)
    return tuple(part for record in slower for part in _spread(record, max(least, round(share * len(record)))))


def _spread(record: Record, samples: int) -> list[Record]:
    """Stretches from equal parts of a record, in each where the inputs move; the record where they move nowhere."""
    count = max(1, min(STRETCHES, samples // SHORTEST))
    edges = np.linspace(0, len(record), count + 1).astype(int)
    deviation = record.u.std(axis=0)
    parts = [record.part(start, stop) for start, stop in pairwise(edges.tolist())]
    found = [_lively(part, samples // count, deviation) for part in parts]
    return [part for part in found if part is not None] or [record]


def _lively(record: Record, samples: int, deviation: np.ndarray) -> Record | None:
    """The first samples of a record; where an input stands still in them, those in which the stillest one moves most;
    None where it stands still everywhere."""
    moving = deviation > 0
    u = (record.u[:, moving] - record.u[:, moving].mean(axis=0)) / deviation[moving]
    if not moving.any() or u[:samples].var(axis=0).min() >= STILL:
        return record.part(0, samples)
    sums, squares = (np.cumsum(np.pad(v, ((1, 0), (0, 0))), axis=0) for v in (u, u**2))
    mean, power = ((s[samples:] - s[:-samples]) / samples for s in (sums, squares))
    variances = (power - mean**2).min(axis=1)
    start = int(np.argmax(variances))
    return record.part(start, start + samples) if variances[start] >= STILL else None
