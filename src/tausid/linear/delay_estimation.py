"""Transport delays of the inputs, from linear models of past inputs and outputs (ARX)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
MOST_SAMPLES, ROUNDS = 5_000, 2
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
    nu, longest = several[0].nu, min(LONGEST, int(SHARE * max(len(record) for record in several)))
    data = _Data(longest, tuple(_shared(several, longest)))
    if not nu or not has_one_clock(several) or longest < SHORTEST or not data.enough:
        return (0.0,) * nu
    delays = np.zeros(nu, int)
    for _ in range(ROUNDS):
        for channel in range(nu):
            delays[channel] = _best_delay(data, delays, channel)
    delays -= 1
    delays[delays < SHORTEST] = 0
    none = np.zeros(nu, int)
    if not delays.any() or data.likelier(data.loss(none, LARGER_ORDER), data.loss(delays, ORDER)) < LIKELIER:
        return (0.0,) * nu
    return tuple((delays * several[0].ts).tolist())


def _best_delay(data: _Data, delays: np.ndarray, channel: int) -> int:
    """The longest delay of one channel, the others as they are, with which the data are about as likely as can be; none
    for an input that does not matter."""
    losses = []
    for delay in range(data.longest + 1):
        trial = delays.copy()
        trial[channel] = delay
        losses.append(data.loss(trial, ORDER))
    if data.likelier(losses[0], min(losses)) < LIKELIER:
        return 0
    return max(delay for delay, loss in enumerate(losses) if data.likelier(loss, min(losses)) <= AS_LIKELY)


def _shared(records: Sequence[Record], longest: int) -> Iterator[Record]:
    """The first samples of records that are long enough, together at most `MOST_SAMPLES`."""
    for record in records:
        if len(record) > 2 * (longest + LARGER_ORDER):
            part = record.part(0, min(len(record), max(MOST_SAMPLES // len(records), 3 * (longest + LARGER_ORDER))))
            yield replace(part, y=np.stack([_filled(output) for output in part.y.T], axis=1))


def _filled(output: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """An output with a line through missing samples."""
    known = np.flatnonzero(~np.isnan(output))
    return np.interp(np.arange(len(output)), known, output[known]) if len(known) else np.zeros(len(output))


@dataclass(frozen=True, eq=False)
class _Data:
    """Records, of which all models explain the same samples, so that they can be compared.

    Args:
        longest: longest delay in samples.
        records: the records, without missing outputs.
    """

    longest: int
    records: tuple[Record, ...]

    @property
    def count(self) -> int:
        """Samples that are explained."""
        return sum(len(record) - self.longest - LARGER_ORDER for record in self.records)

    @property
    def enough(self) -> bool:
        """Whether there are many more samples than parameters."""
        return bool(self.records) and self.count > 4 * LARGER_ORDER * (1 + self.records[0].nu)

    def likelier(self, loss: float, other: float) -> float:
        """By how much the log likelihood is higher with the other loss."""
        return self.count * self.records[0].ny * float(np.log(loss / other)) / 2

    def loss(self, delays: np.ndarray, order: int) -> float:
        """The geometric mean over outputs of the mean squared prediction errors."""
        losses = [self._loss_of(output, delays, order) for output in range(self.records[0].ny)]
        return float(np.exp(np.mean(np.log(losses))))

    def _loss_of(self, output: int, delays: np.ndarray, order: int) -> float:
        rows = np.concatenate([self._regression(record, delays, order, output) for record in self.records])
        rows -= rows.mean(axis=0)
        explained, y = rows[:, :-1], rows[:, -1]
        scale = np.sqrt(np.mean(rows**2, axis=0))
        scale = np.where(scale > 0, scale, 1.0)  # a channel that stands still explains nothing
        gram = explained.T @ explained / np.outer(scale[:-1], scale[:-1])
        weights = np.linalg.lstsq(gram, explained.T @ y / scale[:-1], rcond=1e-12)[0]
        errors = y - explained @ (weights / scale[:-1])
        return float(np.mean(errors**2)) + ROUNDING**2 * float(scale[-1] ** 2) + np.finfo(float).tiny

    def _regression(self, record: Record, delays: np.ndarray, order: int, output: int) -> Float[np.ndarray, "rows c"]:
        """Past outputs and delayed inputs, and the output, from where all of them are there."""
        first, count, y = self.longest + LARGER_ORDER, len(record), record.y[:, output]
        past = [y[first - k : count - k] for k in range(1, order + 1)]
        inputs = [
            record.u[first - k - delay : count - k - delay, channel]
            for channel, delay in enumerate(delays.tolist())
            for k in range(1, order + 1)
        ]
        return np.column_stack([*past, *inputs, y[first:]])
