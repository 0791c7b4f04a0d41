"""What is left in the residuals of a simulation: correlation with themselves and with the inputs, and in words.

Reference: L. Ljung, "System Identification: Theory for the User", 2nd ed., Prentice Hall 1999, section 16.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import ndtri

from tausid import display
from tausid.data import clocks
from tausid.data.records import Record
from tausid.errors import ConfigError, DataError
from tausid.model.course import Simulation
from tausid.shapes import Bool, Float

# Lags that are looked at, at most: a tenth of this is too short to see slow dynamics, more is hard to read.
MAX_LAG = 50
# Fewer scored samples than this say nothing about correlations.
FEWEST = 40
INTERPOLATED = "The record's steps vary: for this test the residuals were interpolated onto a clock of {:.4g} s."


@dataclass(frozen=True, eq=False)
class ResidualTest:
    """Correlations of a simulation's residuals, with the band that unrelated signals stay in.

    The band holds at all lags at once: with unrelated signals, the whole curve stays inside with probability
    `confidence`.

    Args:
        lags: lags in seconds, from zero; the input is so much earlier than the residual.
        auto: correlation of each residual with itself, one at lag zero.
        auto_bound: half width of the band for white residuals, by lag.
        cross: correlation of each residual with each earlier input.
        cross_bound: half width of the band for residuals that are independent of the input, whatever their colour.
        confidence: probability that a curve of unrelated signals stays inside its band.
        n_scored: samples with a residual.
        input_names: one name per input.
        output_names: one name per output.
        record: name of the record.
        interpolated: whether the residuals were interpolated onto a uniform clock, as the record has none.
    """

    lags: Float[np.ndarray, "L"]
    auto: Float[np.ndarray, "L ny"]
    auto_bound: Float[np.ndarray, "L ny"]
    cross: Float[np.ndarray, "L ny nu"]
    cross_bound: Float[np.ndarray, "L ny nu"]
    confidence: float
    n_scored: int
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    record: str
    interpolated: bool = False

    @property
    def correlated(self) -> Bool[np.ndarray, "ny nu"]:
        """Whether a residual is correlated with an input at any lag: the model then misses dynamics."""
        return (np.abs(self.cross) > self.cross_bound).any(axis=0)

    @property
    def white(self) -> Bool[np.ndarray, "ny"]:
        """Whether a residual is uncorrelated with itself at all lags but zero."""
        return (np.abs(self.auto[1:]) <= self.auto_bound[1:]).all(axis=0)

    def _repr_html_(self) -> str:
        title = f"Residuals over {self.record}: {self.n_scored} samples"
        return display.html_table(title, [(sentence,) for sentence in self.describe()])

    def describe(self) -> list[str]:
        """What the correlations say, in sentences.

        Returns:
            One sentence per output and input, and one per output on the residuals themselves.
        """
        said = [sentence for output in range(len(self.output_names)) for sentence in self._sentences(output)]
        return [*said, INTERPOLATED.format(self.lags[1])] if self.interpolated else said

    def missed_dynamics(self) -> list[str]:
        """Where residuals are correlated with inputs, in sentences.

        Returns:
            One sentence per such output and input.
        """
        return [self._on_input(int(output), int(channel)) for output, channel in np.argwhere(self.correlated)]

    def _on_input(self, output: int, channel: int) -> str:
        name, source = self.output_names[output], self.input_names[channel]
        curve, bound = self.cross[:, output, channel], self.cross_bound[:, output, channel]
        if self.correlated[output, channel]:
            return (
                f"Residuals of {name} are correlated with {source} at lags "
                f"{_ranges(self.lags, np.abs(curve) > bound)} (up to {np.abs(curve).max():.2f}): the model misses "
                "dynamics there."
            )
        return (
            f"Residuals of {name} are not correlated with {source} at lags 0 to {self.lags[-1]:.4g} s, as far as "
            f"this record can tell: up to {np.min(bound):.2f} may be chance."
        )

    def _sentences(self, output: int) -> Iterator[str]:
        name = self.output_names[output]
        yield from (self._on_input(output, channel) for channel in range(len(self.input_names)))
        if self.white[output]:
            yield f"Residuals of {name} are white: what is left looks like measurement noise."
        else:
            outside = np.abs(self.auto[:, output]) > self.auto_bound[:, output]
            outside[0] = False
            yield (
                f"Residuals of {name} are correlated with themselves at lags {_ranges(self.lags, outside)}: they are "
                "slow, be it noise of the plant or dynamics that the model misses."
            )


def analyse_residuals(
    simulation: Simulation,
    record: Record,
    *,
    skip: int | None = None,
    max_lag: int | None = None,
    confidence: float = 0.99,
) -> ResidualTest:
    """Correlate a simulation's residuals with themselves and with the inputs.

    With `e` the residual, means taken out, and sums over the `n_k` pairs of measured samples:
    `r_ee(k) = sum e_t e_{t-k} / (n_k var(e))`, `r_ue(k) = sum e_t u_{t-k} / (n_k sd(e) sd(u))`. White residuals give
    `r_ee` a variance of `1 / n_k`; residuals of any colour that are independent of u give `r_ue` one of
    `sum_j r_uu(j) r_ee(j) / n_k` (Bartlett 1946), here with a triangular window over a quarter of the samples.

    Args:
        simulation: from `Model.simulate` without `dt`.
        record: the measured record; residuals of one without a uniform clock are interpolated onto one.
        skip: leading samples to leave out; at least those of the initial state.
        max_lag: largest lag in samples; by default 50, or a quarter of the samples where that is less.
        confidence: probability that a whole curve of unrelated signals stays in its band.

    Returns:
        The correlations and their bands.

    Raises:
        ConfigError: `max_lag` or `confidence` is out of range.
        DataError: another length than the record's, a diverged simulation, or too few samples.
    """
    first = max(simulation.n_skipped, skip or 0)
    _check(simulation, record, first)
    left = replace(record, y=record.y - simulation.y).part(first, len(record))
    if not record.is_uniform:
        left = clocks.to_uniform(left, clocks.nominal_step(left), hold="zero")
    e, u = left.y, left.u
    lag = _check_lag(max_lag, len(e))
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"`confidence` must be between 0 and 1; got {confidence!r}. Leave it at 0.99.")
    residuals = [_Signal(column) for column in e.T]
    inputs = [_Signal(column) for column in u.T]
    shape = (lag + 1, record.ny, record.nu)
    cross, cross_bound = np.zeros(shape), np.zeros(shape)
    for i, residual in enumerate(residuals):
        for j, source in enumerate(inputs):
            cross[:, i, j], pairs = residual.correlate(source, lag)
            cross_bound[:, i, j] = _quantile(confidence, lag + 1) * np.sqrt(_colour(residual, source) / pairs)
    own = [residual.correlate(residual, lag) for residual in residuals]
    return ResidualTest(
        lags=left.ts * np.arange(lag + 1),
        auto=np.stack([values for values, _ in own], axis=1),
        auto_bound=np.stack([_quantile(confidence, lag) / np.sqrt(pairs) for _, pairs in own], axis=1),
        cross=cross,
        cross_bound=cross_bound,
        confidence=confidence,
        n_scored=int(np.isfinite(e).any(axis=1).sum()),
        input_names=record.input_names,
        output_names=record.output_names,
        record=record.name,
        interpolated=not record.is_uniform,
    )


class _Signal:
    """One channel without its mean and of unit deviation; missing samples are zero and not counted."""

    def __init__(self, values: Float[np.ndarray, "N"]) -> None:
        self.measured = np.isfinite(values)
        centred = np.where(self.measured, values - np.mean(values[self.measured]), 0.0)
        deviation = np.sqrt(np.sum(centred**2) / self.measured.sum())
        self.values = centred / deviation if deviation > 0 else centred

    def correlate(self, earlier: _Signal, lag: int) -> tuple[Float[np.ndarray, "L"], Float[np.ndarray, "L"]]:
        """Correlation with an earlier signal at lags 0 to `lag`, and how many pairs of samples each is from."""
        measured = self.measured.astype(float), earlier.measured.astype(float)
        pairs = np.maximum(np.round(_lagged_sums(*measured, lag)), 1.0)
        return _lagged_sums(self.values, earlier.values, lag) / pairs, pairs


def _lagged_sums(late: Float[np.ndarray, "N"], early: Float[np.ndarray, "N"], lag: int) -> Float[np.ndarray, "L"]:
    """`sum_t late_t early_{t-k}` for k = 0 to `lag`, by way of the Fourier transform."""
    size = next_fast_len(len(late) + lag, real=True)
    return np.fft.irfft(np.fft.rfft(late, size) * np.conj(np.fft.rfft(early, size)), size)[: lag + 1]


def _colour(residual: _Signal, source: _Signal) -> float:
    """`sum_j r_uu(j) r_ee(j)`: one where either is white, more where both are slow. Never negative: all three
    factors under the sum, the triangular window among them, are positive semidefinite sequences."""
    reach = max(1, len(residual.values) // 4)
    window = 1.0 - np.arange(1, reach + 1) / (reach + 1.0)
    own = [_lagged_sums(s.values, s.values, reach)[1:] / s.measured.sum() for s in (residual, source)]
    return float(max(1.0 + 2.0 * np.sum(window * own[0] * own[1]), 0.0))


def _quantile(confidence: float, lags: int) -> float:
    """Half width of the band in deviations, for independent normal values at so many lags (Sidak 1967)."""
    return float(ndtri(0.5 + 0.5 * confidence ** (1.0 / lags)))


def _ranges(lags: Float[np.ndarray, "L"], outside: Bool[np.ndarray, "L"]) -> str:
    """Stretches of lags in words; the longest three where there are more."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], outside.astype(int), [0]])))
    stretches = sorted(zip(edges[::2], edges[1::2] - 1, strict=True), key=lambda s: s[0] - s[1])[:3]
    words = [f"{lags[a]:.4g} s" if a == b else f"{lags[a]:.4g} to {lags[b]:.4g} s" for a, b in sorted(stretches)]
    return ", ".join(words)


def _check(simulation: Simulation, record: Record, first: int) -> None:
    if len(simulation.y) != len(record):
        raise DataError(
            f"a simulation must have the record's {len(record)} samples for its residuals; got {len(simulation.y)}. "
            "Simulate without `dt`."
        )
    if simulation.status != "ok":
        raise DataError(
            f"the simulation of {record.name!r} must stay finite for its residuals; it diverged. Train again."
        )
    scored = np.isfinite(record.y[first:]).sum(axis=0).min(initial=len(record))
    if scored < FEWEST:
        raise DataError(
            f"record {record.name!r} must have at least {FEWEST} measured samples after the {first} skipped ones for "
            f"correlations of residuals; got {scored}. Give a longer record."
        )


def _check_lag(max_lag: int | None, samples: int) -> int:
    longest = samples // 4
    if max_lag is None:
        return min(MAX_LAG, longest)
    if isinstance(max_lag, bool) or not isinstance(max_lag, int | np.integer) or not 1 <= max_lag <= longest:
        raise ConfigError(
            f"`max_lag` must be a whole number from 1 to a quarter of the samples, {longest}; got {max_lag!r}. "
            "Leave it out."
        )
    return int(max_lag)
