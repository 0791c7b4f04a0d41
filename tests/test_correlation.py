"""How many samples are independent, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from tausid.training.correlation import independent_samples

N = 40_000


def first_order_noise(pole: float, seed: int = 0) -> np.ndarray:
    return lfilter([1.0], [1.0, -pole], np.random.default_rng(seed).normal(size=N))[:, None]


@pytest.mark.parametrize("pole", [0.0, 0.5, 0.9])
def test_of_first_order_noise_it_is_known(pole):
    """rho_k = pole^k, so that the share is (1 - pole) / (1 + pole); 15 % for the sum of estimates up to their zero."""
    share = independent_samples([first_order_noise(pole)]) / N
    assert share == pytest.approx((1 - pole) / (1 + pole), rel=0.15)


def test_records_and_outputs_add_up_and_scales_do_not_matter():
    one, two = first_order_noise(0.5), first_order_noise(0.9, seed=1)
    both = independent_samples([one]) + independent_samples([two])
    assert independent_samples([np.hstack([one, 1e6 * two])]) == pytest.approx(both)
    assert independent_samples([one, -two]) == pytest.approx(both)


def test_missing_samples_count_as_missing():
    """Every third sample of white noise is as white as all of them."""
    errors = first_order_noise(0.0)
    errors[np.arange(N) % 3 > 0] = np.nan
    assert independent_samples([errors]) == pytest.approx(N / 3, rel=0.15)


def test_a_constant_error_is_one_sample_or_two():
    assert 1 <= independent_samples([np.ones((1000, 1))]) <= 2


@pytest.mark.parametrize(("errors", "count"), [(np.zeros(9), 9), (np.full(9, np.nan), 0), (np.ones(1), 1), ([], 0)])
def test_what_says_nothing_is_taken_as_it_is(errors, count):
    assert independent_samples([np.asarray(errors, float)[:, None]]) == count
