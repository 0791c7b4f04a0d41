"""Transport delays of the inputs, from linear models of past inputs and outputs (ARX)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tausid.data.clocks import has_one_clock
from tausid.data.records import Record, Records, as_records
from tausid.shapes import Float

# Past outputs and inputs of each model; past ones of a model without delays that explains as much, so that a few more
# states do as well.
ORDER, LARGER_ORDER = 4, 8
# Longest delay that is looked for: in samples, and as a share of the record.
LONGEST, SHARE = 200, 0.1
# Shorter delays than this are left to the states.
SHORTEST = 3
# Samples that are looked at, and rounds over all inputs.
MOST_SAMPLES, ROUNDS = 20_000, 2
# How much more likely the data must be with a delay (difference of log likelihoods), and how much less likely they may
# be for the longest of several delays that explain about the same.
LIKELIER, AS_LIKELY = 20.0, 4.0
# Errors below this share of the deviation are rounding.
ROUNDING = 1e-6


def estimate_delays(records: Records) -> tuple[float, ...]:
    """Estimate the transport delay of each input, in seconds.

    Of linear models that predict an output from its past and from the inputs of some samples, `nk` to `nk + 3` ago, the
    one with the longest `nk` that is about as likely as the best one says the delay. It must be much more likely than a
    model of twice the order without delays: a few more states would do as well. One sample less is given back: states
    can learn to wait a little longer, and not to be earlier.

    Args:
        records: one record or several; without one clock for all there are no delays.

    Returns:
        The delays, in whole samples; zero where the data do not say otherwise.

    Example:
        >>> from scipy.signal import lfilter
        >>> from tausid import Record
        >>> u = np.random.default_rng(0).normal(size=400)
        >>> y = lfilter([0.0] * 13 + [0.1], [1.0, -0.9], u)  # 12 samples and the one that a step takes
        >>> estimate_delays(Record.from_arrays(u, y, ts=0.5))
        (5.5,)
    """
    several = as_records(records)
    nu, length = several[0].nu, max(len(record) for record in several)
    longest = min(LONGEST, int(SHARE * length))
    if not nu or not has_one_clock(several) or longest < SHORTEST:
        return (0.0,) * nu
    delays = np.zeros(nu, int)
    for _ in range(ROUNDS):
        for channel in range(nu):
            delays[channel] = _best_delay(several, delays, channel, longest)
    delays -= 1
    delays[delays < SHORTEST] = 0
    if not delays.any():
        return (0.0,) * nu
    with_delays, without = _loss(several, delays, ORDER), _loss(several, np.zeros(nu, int), LARGER_ORDER)
    if _count(several) * np.log(without / with_delays) / 2 < LIKELIER:
        return (0.0,) * nu
    return tuple((delays * several[0].ts).tolist())


def _best_delay(records: Sequence[Record], delays: np.ndarray, channel: int, longest: int) -> int:
    """The longest delay of one channel, the others as they are, with which the data are about as likely as can be."""
    losses = []
    for delay in range(longest + 1):
        trial = delays.copy()
        trial[channel] = delay
        losses.append(_loss(records, trial, ORDER))
    likely = _count(records) * np.log(np.array(losses) / min(losses)) / 2 <= AS_LIKELY
    return int(np.flatnonzero(likely)[-1])


def _count(records: Sequence[Record]) -> int:
    return sum(min(len(record), MOST_SAMPLES) * record.ny for record in records)


def _loss(records: Sequence[Record], delays: np.ndarray, order: int) -> float:
    """The geometric mean over outputs of the mean squared prediction errors."""
    losses = [_loss_of_output(records, delays, order, output) for output in range(records[0].ny)]
    return float(np.exp(np.mean(np.log(losses))))


def _loss_of_output(records: Sequence[Record], delays: np.ndarray, order: int, output: int) -> float:
    rows = np.concatenate([_regression(record, delays, order, output) for record in records])
    # What the other columns do not explain of the last one is in the last place.
    triangle = np.asarray(np.linalg.qr(rows, mode="r"))
    least = ROUNDING**2 * rows[:, -1].var() + np.finfo(float).tiny
    return max(float(triangle[-1, -1] ** 2 / len(rows)), least)


def _regression(record: Record, delays: np.ndarray, order: int, output: int) -> Float[np.ndarray, "rows columns"]:
    """Past outputs and delayed inputs, 1, and the output, from where all of them are there."""
    count = min(len(record), MOST_SAMPLES)
    known = np.flatnonzero(~np.isnan(record.y[:count, output]))
    y = np.interp(np.arange(count), known, record.y[known, output]) if len(known) else np.zeros(count)
    # The same rows for all delays, so that they can be compared.
    first = min(LONGEST, int(SHARE * len(record))) + LARGER_ORDER
    past = [y[first - k : count - k] for k in range(1, order + 1)]
    inputs = [
        record.u[first - k - delay : count - k - delay, channel]
        for channel, delay in enumerate(delays.tolist())
        for k in range(1, order + 1)
    ]
    return np.column_stack([*past, *inputs, np.ones(max(count - first, 0)), y[first:]])
