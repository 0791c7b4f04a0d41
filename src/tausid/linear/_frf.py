"""Nonparametric best linear approximation from periodic excitation (the robust method).

Reference: R. Pintelon and J. Schoukens, "System Identification: A Frequency Domain Approach", 2nd ed., Wiley
2012, section 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tausid.checks import check_whole
from tausid.data.records import Record, Records, as_records, check_same_channels
from tausid.errors import ConfigError, DataError
from tausid.linear._model import check_clock
from tausid.shapes import Complex, Float, Int

# Lines whose input is below this share of the strongest one count as not excited.
EXCITED = 1e-3
# Lines below this share of all of the input, its mean included, are rounding errors.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class FrequencyResponse:
    """Response at the excited frequencies, with its noise and nonlinear-distortion levels; physical units.

    Args:
        freq_hz: excited frequencies in hertz, shape (F,).
        response: the best linear approximation G, shape (F, ny).
        noise_std: deviation of `response` due to noise, from the scatter over periods; NaN with one period.
        total_std: deviation of `response` due to noise and nonlinearity, from the scatter over records; NaN
            with one record.
        distortion_std: stochastic nonlinear distortion of the response in one record,
            `sqrt(records (total_std^2 - noise_std^2))`, zero where noise explains all scatter.
        periods: periods used, over all records.
        realizations: records used.
    """

    freq_hz: Float[np.ndarray, "F"]
    response: Complex[np.ndarray, "F ny"]
    noise_std: Float[np.ndarray, "F ny"]
    total_std: Float[np.ndarray, "F ny"]
    distortion_std: Float[np.ndarray, "F ny"]
    periods: int
    realizations: int


def estimate_frf(
    records: Records, *, period: int, skip_periods: int = 0, excited: float = EXCITED
) -> FrequencyResponse:
    """Estimate the frequency response from records of a periodic input (one random-phase realization each).

    `G = mean over records of mean over periods of Y / U`. The scatter over the periods of a record is noise;
    the scatter over records, whose inputs share the amplitudes but not the phases, also shows nonlinearity.

    Args:
        records: one record or several, of one input; each starts at the beginning of a period.
        period: samples per period.
        skip_periods: leading periods of each record to leave out, for the transient to die away.
        excited: lines whose input amplitude is below this share of the largest, in any record or period, are
            left out; from 0 to below 1.

    Raises:
        ConfigError: `period`, `skip_periods` or `excited` is out of range.
        DataError: several inputs, missing outputs, unequal clocks, no whole period left, or no excited line.
    """
    several = as_records(records)
    _check(several, period, skip_periods, excited)
    spectra = [_spectra(record, period, skip_periods) for record in several]
    lines = _excited_lines(several, [u for u, _ in spectra], excited)
    ratios = [y[:, lines] / u[:, lines, None] for u, y in spectra]  # (periods, F, ny) each
    means = np.stack([g.mean(axis=0) for g in ratios])
    noise = np.mean([_variance_of_mean(g) for g in ratios], axis=0) / len(ratios)
    total = _variance_of_mean(means)
    distortion = np.sqrt(np.maximum(len(ratios) * (total - noise), 0.0))
    freq_hz = lines / (period * several[0].ts)
    return FrequencyResponse(
        freq_hz,
        means.mean(axis=0),
        np.sqrt(noise),
        np.sqrt(total),
        distortion,
        sum(map(len, ratios)),
        len(ratios),
    )


def _check(records: tuple[Record, ...], period: int, skip_periods: int, excited: float) -> None:
    check_whole("period", period, 2)
    check_whole("skip_periods", skip_periods, 0)
    if not 0.0 <= excited < 1.0:
        raise ConfigError(f"`excited` must be a share from 0 to below 1; got {excited!r}. Leave it at {EXCITED:g}.")
    check_same_channels(records)
    if records[0].nu != 1:
        raise DataError(
            f"estimate_frf needs records of exactly one input; got {records[0].nu}. "
            "Excite one input at a time, or use estimate_bla."
        )
    for record in records:
        check_clock(record, records[0].ts)
        if np.isnan(record.y).any():
            raise DataError(
                f"outputs of {record.name!r} must be complete for a frequency response; "
                f"{np.isnan(record.y).sum()} are missing. Cut out the periods concerned, or use estimate_bla."
            )
        if len(record) < (skip_periods + 1) * period:
            raise DataError(
                f"record {record.name!r} must hold a whole period of {period} samples after {skip_periods} "
                f"skipped ones; got {len(record)} samples. Measure longer, or skip fewer."
            )


def _spectra(
    record: Record, period: int, skip_periods: int
) -> tuple[Complex[np.ndarray, "P F"], Complex[np.ndarray, "P F ny"]]:
    """DFT of each whole period that is not skipped; a last, incomplete one is left out."""
    whole = slice(skip_periods * period, len(record) // period * period)
    u = np.fft.rfft(record.u[whole, 0].reshape(-1, period), axis=1)
    y = np.fft.rfft(record.y[whole].reshape(-1, period, record.ny), axis=1)
    return u, y


def _excited_lines(
    records: tuple[Record, ...], spectra: list[Complex[np.ndarray, "P F"]], excited: float
) -> Int[np.ndarray, "L"]:
    """Lines that are excited in every period of every record; the mean is none."""
    common = np.ones(spectra[0].shape[1] - 1, dtype=bool)
    for record, u in zip(records, spectra, strict=True):
        weakest = np.abs(u[:, 1:]).min(axis=0)
        common &= weakest > max(excited * weakest.max(), ROUNDING * np.abs(u).max())
        if not common.any():
            raise DataError(
                f"input {record.input_names[0]!r} must excite at least one frequency in every period of all records; "
                f"in {record.name!r} none is left. Excite it periodically, and check `period` and `skip_periods`."
            )
    return np.flatnonzero(common) + 1


def _variance_of_mean(values: Complex[np.ndarray, "n *rest"]) -> Float[np.ndarray, "*rest"]:
    """Variance of the mean over the first axis, from the scatter; NaN for a single value."""
    if len(values) == 1:
        return np.full(values.shape[1:], np.nan)
    return np.var(values, axis=0, ddof=1) / len(values)
