"""Transport delays: found from records, applied to inputs, kept in models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.signal import cont2discrete, lfilter

import tausid
from tausid import ConfigError, DataError, EnsembleModel, Record, StorageError, estimate_delays
from tausid.data.clocks import delay_inputs
from tausid.model.arrays import named_arrays
from tausid.results.runs import Run
from tausid.storage import write_arrays

QUICK = {"structure.hidden": (3,), "trainer.iterations": 15, "search": "fixed", "structure.nx": 2}


def delayed_lag(samples: int, delays: tuple[int, ...], *, noise: float = 0.0, seed: int = 0, ts: float = 0.5) -> Record:
    """First-order lags of white inputs, each so many samples late, added up."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(samples, len(delays)))
    late = [np.concatenate([np.zeros(d), u[: samples - d, i]]) for i, d in enumerate(delays)]
    y = sum(lfilter([0.0, 0.1], [1.0, -0.9], signal) for signal in late) + noise * rng.normal(size=samples)
    return Record.from_arrays(u, y, ts=ts, name="late")


@pytest.mark.parametrize("delays", [(12,), (40,), (0,), (5, 20), (0, 15)])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_delays_are_found(delays, noise):
    found = estimate_delays(delayed_lag(800, delays, noise=noise))
    assert found == tuple(0.5 * max(d - 1, 0) for d in delays)  # one sample is left to the states


def test_no_delay_where_states_do_as_well():
    """Three lags in a row, 1/(s + 1)^3, begin slowly, and that is no delay."""
    b, a, _ = cont2discrete(([1.0], [1.0, 3.0, 3.0, 1.0]), 0.2)
    u = np.random.default_rng(0).normal(size=800)
    y = lfilter(b[0], a, u) + 1e-3 * np.random.default_rng(1).normal(size=800)
    assert estimate_delays(Record.from_arrays(u, y, ts=0.2)) == (0.0,)


def test_uneven_clocks_short_records_and_missing_inputs_have_none():
    record = delayed_lag(300, (12,))
    uneven = dataclasses.replace(record, t=record.t + np.linspace(0, 1, 300) ** 2 * 30)
    assert estimate_delays(uneven) == estimate_delays(record.part(0, 25)) == (0.0,)
    assert estimate_delays(Record.from_arrays(np.zeros((300, 0)), record.y, ts=1.0)) == ()


def test_an_input_that_does_nothing_has_no_delay():
    record = delayed_lag(1500, (12,), noise=0.05)
    idle = np.random.default_rng(5).normal(size=1500)
    assert estimate_delays(dataclasses.replace(
        record, u=np.column_stack([record.u, idle]), input_names=("u", "idle"), input_units=("", "")
    )) == (5.5, 0.0)  # fmt: skip


def test_records_may_be_of_any_length():
    """Those that are too short to say anything are left out."""
    long, short = delayed_lag(900, (12,)), delayed_lag(300, (12,), seed=1)
    assert estimate_delays([long, short, short.part(0, 40)]) == (5.5,)
    assert estimate_delays([short.part(0, 60), short.part(0, 50)]) == (0.0,)


def test_missing_outputs_are_interpolated():
    """By a line, which knows the sample after; so the delay may seem a sample shorter."""
    record = delayed_lag(800, (12,), noise=0.02)
    y = record.y.copy()
    y[::7] = np.nan
    assert estimate_delays(dataclasses.replace(record, y=y))[0] in (5.0, 5.5)


def test_inputs_are_delayed_by_samples_and_between_them():
    record = Record.from_arrays(np.arange(10.0), np.zeros(10), ts=0.5)
    assert delay_inputs(record, (0.0,), (0.0,)) is record
    np.testing.assert_array_equal(delay_inputs(record, (1.5,), (0.0,)).u[:, 0], [0, 0, 0, 0, 1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(delay_inputs(record, (0.25,), (1.0,)).u[:, 0], [0, *(np.arange(9) + 0.5)])
    np.testing.assert_array_equal(delay_inputs(record, (0.25,), (0.0,)).u[:, 0], [0, *np.arange(9)])


def fit(record: Record, **changes) -> tausid.FitResult:
    return tausid.fit(record, seed=0, progress=None, **{"settings": QUICK, **changes})


def test_a_long_delay_is_found_by_a_fit_and_kept_in_the_file(tmp_path):
    """Without it two states explain next to nothing; with it nearly all but the noise, and a sample of delay."""
    record, fresh = delayed_lag(600, (50,), noise=0.02), delayed_lag(400, (50,), noise=0.02, seed=9)
    found, without = fit(record), fit(record, delays=None)
    assert found.model.delays == (24.5,) and "Delayed inputs: u by 24.5 s." in found.message
    assert without.model.delays == () and "Delayed" not in without.message
    error = tausid.evaluate(found.model, fresh).rmse["y"]
    assert error < 1.6 * 0.02 and tausid.evaluate(without.model, fresh).rmse["y"] > 5 * error
    loaded = tausid.load_model(found.model.save(tmp_path / "m.safetensors"))
    assert loaded.delays == (24.5,)
    np.testing.assert_array_equal(loaded.simulate(fresh).y, found.model.simulate(fresh).y)


def test_a_given_delay_is_that_of_a_record_whose_input_is_late():
    """The same weights, bit for bit, as a fit to the record with its input shifted by hand."""
    record = delayed_lag(300, (8,), noise=0.02)
    by_hand = fit(delay_inputs(record, (4.0,), (0.0,)).part(8, 300), delays=None)
    given = fit(record, delays=4.0)
    a, b = named_arrays(by_hand.model.state_space), named_arrays(given.model.state_space)
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert given.model.delays == (4.0,)
    simulation = given.model.simulate(record)  # from where the delayed input is known
    assert np.isnan(simulation.y[:8]).all() and np.isfinite(simulation.y[8:]).all()
    x0 = given.model.estimate_state(record, 30)
    close = given.model.simulate(record, x0=x0)
    np.testing.assert_allclose(close.y[40:], simulation.y[40:], atol=0.05)


@pytest.mark.parametrize(
    ("delays", "rule"),
    [
        ((1.0, 2.0), "one number, or one per input; got 2 for 1 inputs"),
        (-1.0, "`delays` must be a zero or positive number; got -1.0"),
        (float("nan"), "`delays` must be"),
        (500.0, "`delays` must be shorter than the records; got 500 s"),
        ("some", "unknown delays 'some'"),
    ],
)
def test_delays_are_checked(delays, rule):
    with pytest.raises(ConfigError) as refused:
        fit(delayed_lag(200, (0,)), delays=delays)
    assert rule in str(refused.value)


@pytest.mark.parametrize("delays", [[1.0, 2.0], ["late"], [-1.0], [float("nan")], [True], 1.0, [[1.0]]])
def test_a_file_with_impossible_delays_is_refused(delays, tmp_path):
    model = dataclasses.replace(fit(delayed_lag(200, (0,)), delays=None, holdout=None).model)
    content = {**model.content(), "delays": delays}
    path = write_arrays(tmp_path / "m.safetensors", model.arrays(), kind="model", content=content)
    with pytest.raises(StorageError, match="delays"):
        tausid.load_model(path)


def test_a_record_that_is_too_short_for_the_delay_is_refused_before_it_is_simulated():
    record = delayed_lag(300, (8,), noise=0.02)
    model = fit(record, delays=4.0, holdout=None).model
    for short in (record.part(0, 25), record.part(0, 10)):
        with pytest.raises(DataError):
            model.check(short)
    with pytest.raises(DataError, match="more than the 8 at the start of 'late' .*u by 4 s.*; got 8"):
        model.estimate_state(record, 8)


@pytest.mark.parametrize("hold", ["zero", "first"])
def test_a_record_that_goes_on_from_another_gets_the_inputs_that_are_on_their_way(hold):
    """The second part of a record after its first is the end of the whole."""
    record = delayed_lag(400, (8,), noise=0.02)
    settings = {**QUICK, "integration.hold": hold}
    model = fit(record, delays=4.0, holdout=None, settings=settings).model
    whole, rest = model.simulate(record), record.part(200, 400)
    after = model.simulate(rest, x0=record.part(0, 200))
    np.testing.assert_allclose(after.y, whole.y[200:], rtol=1e-9)
    np.testing.assert_allclose(model.simulate(u=rest.u, x0=record.part(0, 200)).y, after.y, rtol=1e-9)


def test_members_of_an_ensemble_may_have_different_delays_but_are_not_exported():
    """From where all are known on, their mean."""
    record = delayed_lag(300, (8,), noise=0.02)
    early = fit(record, delays=4.0, holdout=None).model
    late = dataclasses.replace(early, delays=(10.0,))
    both = EnsembleModel((early, late), (1.0, 1.0))
    found, each = both.simulate(record), [early.simulate(record), late.simulate(record)]
    assert np.isnan(found.y[:20]).all() and found.n_skipped == max(one.n_skipped for one in each)
    np.testing.assert_allclose(found.y[20:], np.mean([one.y[20:] for one in each], axis=0))
    with pytest.raises(ConfigError, match="integrated alike.*delayed by 4 s.*delayed by 10 s"):
        tausid.export.describe(both)


def test_an_encoder_begins_where_delayed_inputs_are_known():
    record = delayed_lag(300, (8,), noise=0.02)
    model = fit(record, delays=4.0, holdout=None, settings={**QUICK, "structure.initial_state": "encoder"}).model
    late, undelayed = model.simulate(record), dataclasses.replace(model, delays=()).simulate(record)
    assert late.n_skipped == undelayed.n_skipped + 8 and np.isnan(late.y[8 + undelayed.n_skipped - 1]).all()


def test_a_run_is_compared_with_a_linear_model_of_inputs_as_they_act():
    """Of a linear plant it is as good, delay and all."""
    record = delayed_lag(400, (20,), noise=0.02)
    run = Run.from_result(fit(record, delays=10.0, holdout=None), train=record)
    assert run.linear_rmse["y"] < 1.5 * 0.02
