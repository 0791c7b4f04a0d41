"""How many samples are independent, as the autocorrelation of residuals says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import fft

from tausid.shapes import Float


def independent_samples(residuals: Sequence[Float[np.ndarray, "_ ny"]]) -> float:
    """The number of independent samples in the residuals of all records and outputs, NaN where nothing was measured.

    `n / (1 + 2 sum rho_k)` of each output, the autocorrelation rho summed up to its first zero.
    """
    return sum(_independent(output) for record in residuals for output in record.T)


def _independent(output: Float[np.ndarray, "_"]) -> float:
    measured = ~np.isnan(output)
    count, length = int(measured.sum()), len(output)
    if count < 2 or not np.nanmax(np.abs(output)) > 0:
        return float(count)
    # The mean over those pairs k samples apart that were both measured.
    correlation = _lagged(np.where(measured, output, 0.0)) / np.maximum(_lagged(measured.astype(float)), 1.0)
    half = correlation[: max(length // 2, 1)] / correlation[0]
    first_zero = int(np.argmax(half <= 0)) or len(half)
    return count / max(2 * half[:first_zero].sum() - 1, 1.0)


def _lagged(signal: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Sums of products k samples apart."""
    size = fft.next_fast_len(2 * len(signal), real=True)
    return fft.irfft(np.abs(fft.rfft(signal, size)) ** 2, size)[: len(signal)]
