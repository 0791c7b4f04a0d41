"""Correlations of residuals against closed forms and against the probability that their band promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from tausid import ConfigError, DataError, Record
from tausid.model.course import Simulation
from tausid.results.residuals import ResidualTest, analyse_residuals


def analyse(u: np.ndarray, e: np.ndarray, *, ts: float = 1.0, skipped: int = 0, **options) -> ResidualTest:
    """The test of a record whose residual is `e`: measured output `e`, simulated output zero."""
    record = Record.from_arrays(u, e, ts=ts)
    simulated = np.zeros_like(record.y)
    simulated[:skipped] = np.nan
    simulation = Simulation(record.t, simulated, simulated[:, :1], skipped, "ok", record.output_names)
    return analyse_residuals(simulation, record, **options)


def test_correlations_are_the_defining_sums():
    rng = np.random.default_rng(0)
    u, e = rng.normal(size=200), rng.normal(size=200)
    found = analyse(u, e, max_lag=5)
    du, de = (u - u.mean()) / u.std(), (e - e.mean()) / e.std()
    for k in range(6):
        # The Fourier transform sums in another order: rounding only.
        np.testing.assert_allclose(found.cross[k, 0, 0], np.mean(de[k:] * du[: 200 - k]), atol=1e-12)
        np.testing.assert_allclose(found.auto[k, 0], np.mean(de[k:] * de[: 200 - k]), atol=1e-12)
    assert found.auto[0, 0] == pytest.approx(1.0)


def test_a_delayed_input_shows_at_its_delay_in_seconds():
    u = np.random.default_rng(0).normal(size=2000)
    e = np.roll(u, 7)
    found = analyse(u, e, ts=4.0)
    assert found.lags[np.argmax(np.abs(found.cross[:, 0, 0]))] == 28.0
    assert found.cross[7, 0, 0] == pytest.approx(1.0, abs=0.02)  # seven of 2000 samples wrapped around
    assert found.correlated[0, 0]
    assert "correlated with u at lags 28 s (up to 1.0" in found.describe()[0]
    assert "the model misses dynamics there" in found.describe()[0]


@pytest.mark.parametrize("pole", [0.0, 0.9])
def test_independent_residuals_stay_in_the_band_as_often_as_it_says(pole):
    """White and slow signals alike: the band of the cross-correlation takes their colour into account."""
    rng = np.random.default_rng(1)
    trials, confidence, inside = 300, 0.9, 0
    for _ in range(trials):
        u, e = lfilter([1.0], [1.0, -pole], rng.normal(size=(2, 1000)), axis=1)
        inside += not analyse(u, e, max_lag=20, confidence=confidence).correlated.any()
    # Three deviations of a binomial share below; slow curves have dependent lags, so they leave the band less often.
    assert inside / trials > confidence - 3 * np.sqrt(confidence * (1 - confidence) / trials)
    if pole == 0.0:
        assert inside / trials < confidence + 3 * np.sqrt(confidence * (1 - confidence) / trials)


def test_white_residuals_are_called_white_as_often_as_the_band_says_and_slow_ones_never():
    rng = np.random.default_rng(2)
    trials, confidence = 300, 0.9
    e = rng.normal(size=(trials, 400))
    white = sum(bool(analyse(np.zeros(400), row, max_lag=20, confidence=confidence).white[0]) for row in e)
    # Four deviations of a binomial share.
    assert abs(white / trials - confidence) < 4 * np.sqrt(confidence * (1 - confidence) / trials)
    slow = lfilter([1.0], [1.0, -0.9], e, axis=1)
    assert not any(analyse(np.zeros(400), row, max_lag=20).white[0] for row in slow)


def test_missing_samples_are_left_out_and_not_taken_for_zeros():
    rng = np.random.default_rng(3)
    u = rng.normal(size=4000)
    e = np.roll(u, 2) + 5.0
    e[rng.uniform(size=4000) < 0.5] = np.nan
    found = analyse(u, e)
    # Deviation of a correlation from 2000 pairs: 0.02 at most.
    assert found.cross[2, 0, 0] == pytest.approx(1.0, abs=0.06)
    assert found.n_scored == int(np.isfinite(e).sum())


def test_units_do_not_matter():
    u, e = np.random.default_rng(4).normal(size=(2, 300))
    one, other = analyse(u, e), analyse(1e6 * u + 3.0, 1e-9 * e - 1.0)
    np.testing.assert_allclose(one.cross, other.cross, atol=1e-6)  # 1e-9 beside 1.0 loses seven digits
    np.testing.assert_allclose(one.cross_bound, other.cross_bound, atol=1e-6)


def test_skipped_samples_do_not_count():
    u, e = np.random.default_rng(5).normal(size=(2, 300))
    spoilt = e.copy()
    spoilt[:10] = 1e6
    np.testing.assert_array_equal(analyse(u, spoilt, skip=10).cross, analyse(u[10:], e[10:]).cross)
    np.testing.assert_array_equal(analyse(u, spoilt, skipped=10).cross, analyse(u[10:], e[10:]).cross)


def test_a_perfect_model_has_nothing_left():
    found = analyse(np.random.default_rng(6).normal(size=100), np.zeros(100))
    assert not found.correlated.any()
    assert "not correlated with u at lags 0 to 25 s, as far as this record can tell: up to" in found.describe()[0]
    assert "white" in found.describe()[1]


def test_stretches_of_lags_are_named_the_longest_three_at_most():
    u = np.random.default_rng(7).normal(size=5000)
    e = sum(np.roll(u, k) for k in (0, 1, 2, 10, 20, 21, 30))
    sentence = analyse(u, e, ts=2.0).describe()[0]
    assert "at lags 0 to 4 s, 20 s, 40 to 42 s (up to" in sentence


def test_every_output_and_input_is_looked_at():
    rng = np.random.default_rng(8)
    u = rng.normal(size=(500, 2))
    e = np.stack([rng.normal(size=500), np.roll(u[:, 1], 3)], axis=1)
    found = analyse(u, e)
    assert found.correlated.tolist() == [[False, False], [False, True]]
    assert len(found.describe()) == 6


def simulate_zero(record: Record, status: str = "ok") -> Simulation:
    return Simulation(record.t, 0 * record.y, 0 * record.y, 0, status, record.output_names)


def test_residuals_on_a_clock_with_jitter_are_interpolated_and_it_is_said():
    rng = np.random.default_rng(10)
    u, noise = rng.normal(size=(2, 3000))
    t = np.arange(3000.0) + rng.uniform(-0.02, 0.02, 3000)
    white, missed = (Record.from_arrays(u, y, t=t) for y in (noise, noise + 0.3 * np.roll(u, 4)))
    found = analyse_residuals(simulate_zero(white), white)
    assert found.white.all()
    assert not found.correlated.any()
    assert "steps vary: for this test the residuals were interpolated onto a clock of 1" in found.describe()[-1]
    assert "correlated with u at lags 4" in analyse_residuals(simulate_zero(missed), missed).describe()[0]


def test_what_cannot_be_correlated_is_refused():
    u, e = np.random.default_rng(9).normal(size=(2, 100))
    record = Record.from_arrays(u, e, ts=1.0)
    with pytest.raises(DataError, match="must have the record's 50 samples for its residuals; got 100"):
        analyse_residuals(simulate_zero(record), record.part(0, 50))
    with pytest.raises(DataError, match="it diverged"):
        analyse_residuals(simulate_zero(record, "diverged"), record)
    with pytest.raises(DataError, match="at least 40 measured samples after the 70 skipped ones .* got 30"):
        analyse(u, e, skip=70)
    with pytest.raises(ConfigError, match="`max_lag` must be a whole number from 1 to a quarter of the samples, 25"):
        analyse(u, e, max_lag=26)
    with pytest.raises(ConfigError, match="`confidence` must be between 0 and 1; got 1.5"):
        analyse(u, e, confidence=1.5)
