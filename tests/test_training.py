from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from problems import OSCILLATOR_A, SMALL, oscillator_record, small_fit, wiener_record
from tausid.model.config import RECIPES
from tausid.training.optimiser import StepSettings, learning_rate
from tausid.training.protocols import split_records
from tausid.training.setup import make_problem
from tausid.training.starting import Start

import tausid
from tausid import ConfigError, DataError, Record, StorageError, Tau
from tausid.data.scaling import Scaling
from tausid.engine.networks import MLP
from tausid.storage import read_arrays, write_arrays
from tausid.training import loop, optimiser
from tausid.training.windows import WindowSource


def part(record: Record, start: int, stop: int) -> Record:
    return Record.from_arrays(record.u[start:stop], record.y[start:stop], ts=record.ts)


def weights(model: tausid.Model) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.state_space)]


def same(a: tausid.Model, b: tausid.Model) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(weights(a), weights(b), strict=True))


def test_the_paper_recipe_is_the_papers_configuration():
    paper = RECIPES["paper"]
    assert (paper.nx, paper.hidden, paper.activation, paper.na, paper.nb) == (4, (64, 64), "leaky_relu", 5, 5)
    assert (paper.stepper, paper.horizon, paper.batch) == ("rk4", 128, 64)
    assert (paper.max_steps, paper.patience) == (20_000, 2_000)
    assert (paper.weight_decay, paper.dae_weight, paper.barrier_weight) == (1e-8, 1e3, 1e12)
    assert (paper.weight_range, paper.A_start, paper.encoder) == (0.01, "zero-mean", "mlp")
    rate = learning_rate(StepSettings.from_config(paper))
    np.testing.assert_allclose(
        [rate(0), rate(999), rate(1001), rate(2999), rate(3001)], [3e-3, 3e-3, 9e-4, 9e-4, 2.7e-4]
    )


def test_epochs_are_shuffled_passes_over_all_windows():
    source = WindowSource.from_records(
        [wiener_record(80)], Scaling.from_records([wiener_record(80)]), horizon=10, n_past=3
    )
    settings = StepSettings.from_config(tausid.recipe_config("windows", batch=17, window_order="epochs"))
    assert source.count == 4 * 17  # 68 places for a window of 13 samples among 80
    draws = [optimiser.draw_windows(source, step, jax.random.key(0), settings) for step in range(8)]
    for epoch in (draws[:4], draws[4:]):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(68))
    assert not np.array_equal(draws[0], draws[4])


def test_windows_can_be_what_is_validated():
    held_out = wiener_record(60, seed=5)
    result = small_fit(validation=held_out, validation_error="windows")
    last = result.last_model
    simulated = [last.simulate(part(held_out, start, start + 25)) for start in range(60 - 25 + 1)]
    errors = [run.y[5:, 0] - held_out.y[start + 5 : start + 25, 0] for start, run in enumerate(simulated)]
    expected = np.sqrt(np.mean(np.square(errors))) / last.scaling.y_std[0]
    assert result.history[-1].validation == pytest.approx(expected, rel=1e-4)  # float32, another order of sums


def test_the_encoder_can_be_a_plain_mlp():
    network = small_fit(encoder="mlp", max_steps=1).model.state_space.initial.network
    assert isinstance(network, MLP)
    assert [weight.shape for weight in network.weights] == [(8, 10), (2, 8)]


def test_the_cosine_schedule_falls_to_a_hundredth():
    rate = learning_rate(StepSettings.from_config(tausid.recipe_config("windows", max_steps=500)))
    np.testing.assert_allclose([rate(0), rate(250), rate(500)], [3e-3, 3e-3 * 0.505, 3e-5], rtol=1e-5)


@pytest.mark.scan
def test_full_simulation_training_recovers_the_poles_of_a_linear_system():
    result = tausid.fit(
        oscillator_record(300),
        recipe="windows",
        tau=2.0,
        seed=0,
        nx=2,
        network="polynomial",
        degree=1,
        initial_state="free",
        horizon="full",
        validation_fraction=0.0,
        weight_decay=0.0,
        learning_rate=2e-2,
        max_steps=3000,
        substeps=2,
        validate_every=500,
        progress=None,
    )
    poles = np.linalg.eigvals(np.asarray(result.model.state_space.A)) / result.model.tau
    # Noise-free data: what is left is how far Adam has come, well below one percent.
    np.testing.assert_allclose(np.sort_complex(poles), np.sort_complex(np.linalg.eigvals(OSCILLATOR_A)), rtol=1e-2)


def test_a_nonlinear_plant_is_simulated_better_than_by_its_best_constant():
    record = wiener_record(400)
    result = small_fit(record.part(0, 300), max_steps=800, horizon=40, hidden=(16, 16), learning_rate=1e-2)
    score = tausid.evaluate(result.model, record.part(300, 400))
    assert score.nrmse["y"] < 0.3  # 1 is the constant; the noise alone gives 0.04


@pytest.mark.scan
def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    first, second, other = small_fit(), small_fit(), small_fit(seed=1)
    assert same(first.model, second.model)
    assert not same(first.model, other.model)


def test_the_history_shows_every_validation():
    result = small_fit(learning_rate=2e-2)
    assert [row.step for row in result.history] == [20, 40, 60]
    assert result.status == "completed"
    assert result.steps == 60
    best = min(result.history, key=lambda row: row.validation)
    assert result.best_step == best.step
    score = tausid.evaluate(
        result.model, split_records(wiener_record(200), result.config, validation=None, test=None).validation[0]
    )
    assert score.nrmse["y"] > 0
    assert score.rmse["y"] / result.model.scaling.y_std[0] == pytest.approx(best.validation, rel=1e-12)


def test_training_stops_when_validation_gets_no_better():
    result = small_fit(max_steps=5000, patience=40, learning_rate=1e-9)
    assert result.status == "early-stopped"
    assert result.steps <= result.best_step + 40 + 20


def test_without_validation_the_last_model_is_the_result():
    result = small_fit(validation_fraction=0.0)
    assert same(result.model, result.last_model)
    assert all(np.isnan(row.validation) for row in result.history)


def test_runs_that_differ_in_seed_and_tau_share_one_compilation(monkeypatch):
    traces = []
    objective = optimiser.objective
    monkeypatch.setattr(optimiser, "objective", lambda *arguments: traces.append(1) or objective(*arguments))
    small_fit(batch=7)
    assert traces  # python code of a step runs while it is compiled, and only then
    traces.clear()
    small_fit(batch=7, seed=5, tau=3.21)
    assert not traces


@pytest.mark.scan
def test_a_trained_tau_moves_and_its_path_is_kept():
    result = small_fit(tau=Tau(2.0, trainable=True), learning_rate=1e-2)
    path = [row.tau for row in result.history]
    assert len(set(path)) == len(path)
    assert small_fit().history[-1].tau == 2.0


def test_a_tau_per_state_can_be_trained():
    result = small_fit(tau=Tau([2.0, 4.0], trainable=True))
    assert len(result.model.tau) == 2
    assert result.history[-1].tau != (2.0, 4.0)


def test_the_unit_of_time_does_not_change_the_training():
    record = wiener_record(200)
    in_minutes = Record.from_arrays(record.u, record.y, t=record.t / 60.0)
    seconds = small_fit(record, tau=Tau(2.0, trainable=True))
    minutes = small_fit(in_minutes, tau=Tau(2.0 / 60.0, trainable=True))
    # dt / tau agrees up to rounding of single precision, which sixty steps of Adam amplify a little.
    assert minutes.history[-1].loss == pytest.approx(seconds.history[-1].loss, rel=1e-2)
    assert minutes.model.tau * 60.0 == pytest.approx(seconds.model.tau, rel=1e-2)


def test_the_paper_protocol_validates_on_the_first_half_of_the_test_record():
    config = tausid.recipe_config("paper", protocol="paper")
    train, test = wiener_record(300), wiener_record(1400, seed=5)
    split = split_records(train, config, validation=None, test=test)
    assert split.train == (train,)
    np.testing.assert_array_equal(split.validation[0].y, test.y[:512])
    short = split_records(train, config, validation=None, test=test.part(0, 300))
    assert len(short.validation[0]) == 150


def test_the_clean_protocol_sees_nothing_of_the_test_record():
    record, test = wiener_record(200), wiener_record(200, seed=9)
    spoiled = Record.from_arrays(test.u, test.y * 1000.0, ts=test.ts)
    assert same(small_fit(record, test=test).model, small_fit(record, test=spoiled).model)


def test_held_out_samples_do_not_reach_training_or_scaling():
    record = wiener_record(200)
    tail = np.where(np.arange(200)[:, None] < 160, record.y, 50.0 * record.y)
    a = small_fit(record)
    b = small_fit(Record.from_arrays(record.u, tail, ts=record.ts))
    assert same(a.last_model, b.last_model)


# NaN and infinity


def test_a_step_that_is_not_finite_goes_back_to_the_best_state_with_a_lower_rate():
    result = small_fit(learning_rate=1e30, max_steps=200, max_recoveries=200)
    rates = [row.learning_rate for row in result.history]
    assert all(np.isfinite(w).all() for w in weights(result.model))
    assert result.status in ("completed", "early-stopped", "diverged")
    assert not rates or max(rates) < 1e30


def test_a_hopeless_run_ends_as_diverged_with_its_best_model_and_advice():
    result = small_fit(learning_rate=1e38, max_steps=200, max_recoveries=2)
    assert result.status == "diverged"
    assert "Try a larger tau" in result.message
    assert all(np.isfinite(w).all() for w in weights(result.model))


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nx": 0}, "`nx` must be a whole number of at least 1; got 0"),
        ({"tau": -3.0}, "`tau` must be a positive number of seconds"),
        ({"recipe": "papre"}, "unknown recipe 'papre'.*Did you mean 'paper'"),
        ({"activation": "rely"}, "unknown activation 'rely'"),
        ({"stepper": "rk5"}, "unknown stepper 'rk5'"),
        ({"hold": "zoh"}, "unknown hold 'zoh'"),
        ({"horizont": 3}, "unknown setting 'horizont'.*Did you mean 'horizon'"),
        ({"horizon": 500}, "record 'wiener.*must have at least 505 samples .*; got 160"),
        ({"protocol": "paper"}, "protocol 'paper' must have a test record"),
        ({"protocol": "papier"}, "unknown protocol 'papier'"),
        (
            {"protocol": "paper", "test": wiener_record(60), "validation": wiener_record(60)},
            "must validate on the test",
        ),
        ({"validation_fraction": 0.9}, "`validation_fraction` must be from 0 to 0.5; got 0.9"),
        ({"learning_rate": 0.0}, "`learning_rate` must be a positive number; got 0.0"),
        ({"weight_decay": -1.0}, "`weight_decay` must be a zero or positive number; got -1.0"),
        ({"hidden": 8}, "`hidden` must be a list of widths; got 8"),
        ({"hold": 3}, "`hold` must be 'zero' or 'first', or one of these per input; got 3"),
        ({"seed": 2**70}, "`seed` must be a whole number of at least 0 and at most 2147483647"),
        ({"validation_fraction": "a"}, "`validation_fraction` must be a zero or positive number; got 'a'"),
        ({"initial_state": "free"}, "`initial_state` 'free' must have horizon='full'"),
        ({"tau": "slow"}, "unknown tau 'slow'"),
        ({"hidden": (8, 0)}, "`hidden` must be a whole number of at least 1; got 0"),
        ({"window_order": "epoch"}, "unknown window_order 'epoch'.*Did you mean 'epochs'"),
        ({"validation_error": "window"}, "unknown validation_error 'window'.*Did you mean 'windows'"),
        ({"barrier_form": "relu"}, "unknown barrier_form 'relu'"),
        ({"encoder": "mlp", "init": "bla"}, "`init` 'bla' must have encoder='residual'"),
        ({"A_start": "I"}, "unknown A_start 'I'; known: -I, -MM', zero-mean"),
        ({"progress": "loud"}, "`progress` must be 'auto', None or a function; got 'loud'"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        small_fit(**changes)


def test_bad_data_are_refused():
    constant = Record.from_arrays(np.ones(200), np.arange(200.0), ts=1.0)
    with pytest.raises(DataError, match="input 'u' must vary"):
        small_fit(constant)
    two = Record.from_arrays(np.random.default_rng(0).normal(size=(200, 2)), np.arange(200.0), ts=1.0)
    with pytest.raises(DataError, match="same channels"):
        small_fit([wiener_record(200), two])


def test_numbers_of_numpy_are_numbers():
    result = small_fit(nx=np.int64(2), learning_rate=np.float32(1e-3), max_steps=20)
    assert type(result.config.nx) is int
    assert type(result.config.learning_rate) is float


def test_a_test_record_that_cannot_be_scored_is_refused_before_training():
    y = wiener_record(100).y.copy()
    y[:99] = np.nan
    bad = Record.from_arrays(wiener_record(100).u, y, ts=0.5, name="bad")
    with pytest.raises(DataError, match="record 'bad' must have every output measured within 5 samples before"):
        small_fit(test=bad, max_steps=10**9)


def test_the_held_out_end_begins_where_its_initial_state_can_be_found():
    y = wiener_record(300).y.copy()
    y[238:245] = np.nan
    gap = Record.from_arrays(wiener_record(300).u, y, ts=0.5, name="gap")
    split = split_records(gap, tausid.recipe_config("windows"), validation=None, test=None)
    assert len(split.train[0]) == 241  # samples 241 to 245 have one measured among them
    assert small_fit(gap).status == "completed"
    y[230:] = np.nan
    lost = Record.from_arrays(wiener_record(300).u, y, ts=0.5, name="lost")
    with pytest.raises(ConfigError, match=r"the last 0.2 of record 'lost' must hold 5 .* Change validation_fraction"):
        small_fit(lost)
    assert small_fit(lost, validation_fraction=0.0).status == "completed"


def test_an_autonomous_system_trains_with_tau_from_its_outputs():
    t = np.arange(200) * 0.1
    record = Record.from_arrays(np.zeros((200, 0)), np.sin(t), ts=0.1)
    result = small_fit(record, tau="bla")
    assert result.model.tau == pytest.approx(1.0, rel=0.05)  # a sine's 1 / omega; the record is not whole periods
    assert result.model.state_space.tau.source == "outputs"
    assert small_fit(record, tau="bla-trained", max_steps=20).model.state_space.tau.trainable
    with pytest.raises(DataError, match=r"must have at least one input.*Or take recipe='windows' and give tau in"):
        small_fit(record, tau="bla", init="bla")


# Irregular clocks


def jittered_record(samples: int = 250, *, seed: int = 0, ts: float = 0.5) -> Record:
    """The small nonlinear plant with jitter and, now and then, a lost sample."""
    record = wiener_record(samples, ts, seed=seed)
    rng = np.random.default_rng(seed)
    kept = np.sort(rng.permutation(samples)[: samples * 4 // 5])
    return Record.from_arrays(
        record.u[kept], record.y[kept], t=record.t[kept] + 0.2 * ts * rng.random(len(kept)), name="jittered"
    )


@pytest.mark.scan
@pytest.mark.parametrize("init", ["random", "bla"])
def test_a_jittered_record_trains_and_its_encoder_sees_time(init, tmp_path):
    record = jittered_record()
    result = small_fit(record, tau="bla", init=init)
    model = result.model
    assert result.config.clock == "irregular"
    assert model.ts == pytest.approx(0.5, rel=0.1)
    assert model.state_space.initial.network.linear.shape == (2, 5 + 5 + 5)
    train = record.part(0, len(record) - 40)
    low, high = model.past_span
    assert low < high == pytest.approx(np.max(train.t[5:] - train.t[:-5]))
    shifted = Record.from_arrays(record.u, record.y, t=record.t + np.where(np.arange(len(record)) < 3, -0.1, 0.0))
    assert not np.array_equal(model.simulate(shifted).x[5], model.simulate(record).x[5])
    loaded = tausid.load_model(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(loaded.simulate(record).y, model.simulate(record).y)


def test_records_of_different_rates_train_together():
    result = small_fit([wiener_record(200), wiener_record(120, ts=1.0)])
    assert result.status == "completed"
    assert result.config.clock == "irregular"
    assert result.model.ts == 0.5
    assert result.model.past_span == pytest.approx((2.5, 5.0))


def test_the_encoder_can_be_kept_from_seeing_time():
    result = small_fit(jittered_record(), clock="regular")
    assert result.model.state_space.initial.network.linear.shape == (2, 10)
    assert result.model.past_span is None
    seeing = small_fit(wiener_record(200), clock="irregular")
    assert seeing.model.state_space.initial.network.linear.shape == (2, 15)


def test_records_are_cut_at_gaps():
    record = wiener_record(300)
    t = record.t + np.where(np.arange(300) >= 100, 1000.0, 0.0)
    gap = Record.from_arrays(record.u, record.y, t=t, name="gap")
    config = tausid.recipe_config("windows", horizon=20)
    split = split_records(gap, config, validation=None, test=None)
    assert [len(part) for part in split.train] == [100, 140]
    whole = split_records(gap, tausid.recipe_config("windows", horizon=20, max_gap=2000.0), validation=None, test=None)
    assert [len(part) for part in whole.train] == [240]
    result = small_fit(gap)
    assert result.status == "completed"
    assert result.config.clock == "auto"  # between its gaps the record has one clock


def test_missing_outputs_are_left_out_of_training():
    record = wiener_record(300)
    y = np.where(np.random.default_rng(0).random((300, 1)) < 0.3, np.nan, record.y)
    holes = Record.from_arrays(record.u, y, ts=0.5)
    result = small_fit(holes, max_steps=600, learning_rate=1e-2)
    score = tausid.evaluate(result.model, record)
    assert score.nrmse["y"] < 0.5  # 1 is the constant: about as good as with all outputs in so few steps


# One regular clock: what earlier versions found stays valid


def test_a_regular_record_trains_to_the_same_numbers_as_ever():
    result = small_fit()
    losses, scores = zip(*((row.loss, row.validation) for row in result.history), strict=True)
    # From version 0.1.0. Other windows, weights or arithmetic change these by percents, another processor by 1e-6.
    np.testing.assert_allclose(losses, [1.00254, 0.971708, 0.905044], rtol=1e-4)
    np.testing.assert_allclose(scores, [0.913434, 0.911923, 0.908811], rtol=1e-4)
    assert result.config == tausid.recipe_config(**{k: v for k, v in SMALL.items() if k != "progress"})
    assert result.model.past_span is None


def test_a_checkpoint_of_a_version_with_fewer_settings_is_resumed(tmp_path, monkeypatch):
    from tausid.training import checkpoint

    identity = checkpoint.identity
    newer = ("clock", "feedthrough", "max_dt", "max_gap", "output_weights")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "identity", lambda p: {k: v for k, v in identity(p).items() if k not in newer})
        first = small_fit(out=tmp_path)
    assert same(small_fit(out=tmp_path, resume=True).model, first.model)
    with pytest.raises(ConfigError, match="`feedthrough` was True and is now False"):
        small_fit(out=tmp_path, resume=True, feedthrough=False)


# Many channels


def mimo_record(samples: int, *, seed: int, scales=(1.0, 1.0, 1.0, 1.0, 1.0), name: str = "mimo") -> Record:
    """Two inputs, three outputs: the small plant twice, and their sum; each channel in a unit of its own."""
    a, b = wiener_record(samples, seed=seed), wiener_record(samples, seed=seed + 50)
    table = np.hstack([a.u, b.u, a.y, b.y, a.y + b.y]) * np.array(scales)
    return Record.from_arrays(table[:, :2], table[:, 2:], ts=0.5, name=name)


def test_units_do_not_change_the_training():
    plain = small_fit(mimo_record(200, seed=0), tau="bla")
    # Powers of two scale without rounding: every bit must be the same.
    scales = 2.0 ** np.array([-30, 20, -30, 20, 3])
    scaled = small_fit(mimo_record(200, seed=0, scales=scales), tau="bla")
    assert same(plain.model, scaled.model)
    own, other = (tausid.evaluate(fitted.model, mimo_record(150, seed=9, scales=s)).rmse for fitted, s in
                  ((plain, np.ones(5)), (scaled, scales)))  # fmt: skip
    for name, scale in zip(own, scales[2:], strict=True):
        assert other[name] == own[name] * scale
    # Other factors round once in double precision, which single precision does not see.
    decimal = small_fit(mimo_record(200, seed=0, scales=(1e-9, 1e6, 1e-9, 1e6, 8.0)), tau="bla")
    assert decimal.history[-1].validation == pytest.approx(plain.history[-1].validation, rel=1e-4)


def test_output_weights_decide_what_is_fitted():
    record = mimo_record(300, seed=0)
    settings = {"max_steps": 300, "learning_rate": 1e-2}
    first, second = (small_fit(record, output_weights=w, **settings) for w in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
    a, b = (tausid.evaluate(result.model, record).nrmse for result in (first, second))
    assert a["y1"] < 0.8 < a["y2"]
    assert b["y2"] < 0.8 < b["y1"]
    equal = small_fit(record, output_weights=(3.0, 3.0, 3.0))
    assert equal.history[-1].validation == pytest.approx(small_fit(record).history[-1].validation, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_weights": (1.0, 2.0)}, "`output_weights` must have one number per output; got 2 for 1 outputs"),
        ({"output_weights": 3.0}, "`output_weights` must be a list of numbers, one per output; got 3.0"),
        ({"output_weights": (0.0,)}, "`output_weights` must not all be zero"),
        ({"output_weights": (-1.0,)}, "`output_weights` must be a zero or positive number; got -1.0"),
        ({"feedthrough": 1}, "`feedthrough` must be true or false; got 1"),
        ({"max_dt": 0.0}, "`max_dt` must be a positive number; got 0.0"),
        ({"max_gap": "long"}, "`max_gap` must be a positive number; got 'long'"),
        ({"clock": "jitter"}, "unknown clock 'jitter'; known: auto, irregular, regular"),
    ],
)
def test_bad_settings_of_data_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        small_fit(**changes)


def test_without_feedthrough_a_linear_start_and_a_training_work():
    record = wiener_record(300)
    result = small_fit(record, tau="bla", init="bla", feedthrough=False, max_steps=40)
    assert result.model.state_space.g.linear.shape == (1, 2)
    assert result.history[0].loss < 0.5  # 1 is the constant: the linear start is in


def test_polynomial_and_linear_networks_train():
    for settings in ({"network": "polynomial", "degree": 2}, {"hidden": ()}, {"na": 0, "nb": 0}):
        assert small_fit(**{**settings, "max_steps": 20}).status == "completed"


# Checkpoints

SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
import tausid
from problems import wiener_record
result = tausid.fit(wiener_record(200), tau=2.0, seed=0, recipe="windows", nx=2, hidden=(8,), horizon=20, batch=16,
                    max_steps={steps}, validate_every=20, progress=None, out={out!r}, resume=True)
result.model.save({out!r} + "/model.safetensors")
"""


def run_script(out: str, steps: int = 1000) -> subprocess.Popen[bytes]:
    code = SCRIPT.format(tests=str(Path(__file__).parent), steps=steps, out=out)
    return subprocess.Popen([sys.executable, "-c", code])


def wait_for(path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, "the training ended before it wrote a checkpoint"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_run_resumes_to_the_same_model_bit_for_bit(tmp_path):
    whole = run_script(str(tmp_path / "whole"))
    killed = run_script(str(tmp_path / "killed"))
    wait_for(tmp_path / "killed" / "checkpoint.safetensors", killed)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    assert run_script(str(tmp_path / "killed")).wait() == 0
    assert whole.wait() == 0
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


def test_an_interrupted_fit_keeps_what_it_found_and_can_go_on(tmp_path):
    def interrupt(update):
        if update.step == 20:
            os.kill(os.getpid(), signal.SIGINT)

    stopped = small_fit(progress=interrupt, out=tmp_path)
    assert stopped.status == "interrupted"
    assert stopped.steps < 60
    assert "resume" in stopped.message
    finished = small_fit(out=tmp_path, resume=True)
    assert finished.status == "completed"
    assert same(finished.model, small_fit().model)
    assert [row.step for row in finished.history] == [20, 40, 60]


def test_resuming_a_finished_run_gives_its_result_again(tmp_path):
    first = small_fit(out=tmp_path)
    again = small_fit(out=tmp_path, resume=True)
    assert same(first.model, again.model)
    assert again.history == first.history


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    small_fit(out=tmp_path)
    with pytest.raises(ConfigError, match="`out` must be a folder without a run"):
        small_fit(out=tmp_path)


def test_a_run_can_be_overwritten_but_not_by_a_mistake(tmp_path):
    small_fit(out=tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="unknown recipe"):
        small_fit(out=tmp_path, overwrite=True, recipe="typo")
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert small_fit(out=tmp_path, overwrite=True, seed=3).seed == 3


def test_a_run_is_not_resumed_by_another_engine(tmp_path, monkeypatch):
    if fused_missing():
        pytest.skip(f"fused is not available: {fused_missing()}")
    small_fit(out=tmp_path)
    monkeypatch.setenv("TAUSID_NO_FUSED", "1")
    with pytest.raises(ConfigError, match="`engine` was 'fused' and is now 'scan'"):
        small_fit(out=tmp_path, resume=True)


def test_a_run_is_not_resumed_with_other_settings_or_data(tmp_path):
    small_fit(out=tmp_path)
    with pytest.raises(ConfigError, match="`batch` was 16 and is now 8"):
        small_fit(out=tmp_path, resume=True, batch=8)
    with pytest.raises(ConfigError, match="`data` was"):
        small_fit(wiener_record(200, seed=3), out=tmp_path, resume=True)
    with pytest.raises(ConfigError, match="`tau` was 2.0 and is now 5.0"):
        small_fit(tau=5.0, out=tmp_path, resume=True)


def test_a_run_of_an_older_version_is_resumed(tmp_path):
    small_fit(out=tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    arrays, content = read_arrays(path, kind="checkpoint")
    del content["identity"]["window_order"]  # a setting that did not exist then
    write_arrays(path, arrays, kind="checkpoint", content=content)
    assert small_fit(out=tmp_path, resume=True).steps == 60
    with pytest.raises(ConfigError, match="`window_order` was 'random' and is now 'epochs'"):
        small_fit(out=tmp_path, resume=True, window_order="epochs")


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="must be writable"):
        small_fit(out=tmp_path / "file" / "run")


@pytest.mark.scan
def test_several_records_of_different_length_train_together():
    records = [wiener_record(200), wiener_record(150, seed=3)]
    result = small_fit(records)
    assert result.status == "completed"
    full = small_fit(records, horizon="full", initial_state="free", validation_fraction=0.0, max_steps=20)
    assert full.model.state_space.initial.x0.shape == (2, 2)


def test_the_validation_score_pools_records_by_their_length():
    record = wiener_record(200)
    model = small_fit(record).model
    parts = (record.part(0, 50), record.part(50, 200))
    scores = [tausid.evaluate(model, part) for part in parts]
    pooled = sum(s.n_scored * (s.rmse["y"] / model.scaling.y_std[0]) ** 2 for s in scores)
    expected = np.sqrt(pooled / sum(s.n_scored for s in scores))
    assert loop.validation_score(model, parts) == pytest.approx(expected, rel=1e-12)


def test_settings_survive_json():
    config = tausid.recipe_config("paper", hold=("first", "zero"), hidden=(3, 4, 5))
    assert tausid.Config.from_dict(config.as_dict()) == config
    assert dataclasses.asdict(config)["hidden"] == (3, 4, 5)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_the_norm_of_a_constant_gradient_is_its_norm_from_the_first_step_on(steps):
    gradient = {"a": np.array([3.0, 0.0]), "b": np.array(4.0)}
    state = optimiser.OptimiserState.start(gradient)
    moments = state.moments
    for _ in range(steps):
        _, moments = optimiser.ADAM.update(gradient, moments)
    state = dataclasses.replace(state, moments=moments)
    assert state.gradient_norm == pytest.approx(5.0, rel=1e-5)  # moments are of single precision


def test_the_history_has_the_norm_of_the_gradient():
    record = wiener_record(60)
    result = tausid.fit(
        record, tau=2.0, seed=0, recipe="windows", nx=1, hidden=[], horizon=20, max_steps=2, progress=None
    )
    assert 0 < result.history[0].gradient_norm < np.inf


def test_a_list_of_horizons_grows_in_equal_shares_with_as_many_samples_per_step():
    record = wiener_record(200)
    config = tausid.recipe_config("windows", horizon=[10, 40, "full"], batch=16, max_steps=90, nx=2, hidden=[4])
    split = split_records(record, config, validation=None, test=None)
    problem = make_problem(config, Start(Tau(2.0), None), split)
    assert [stage.stop for stage in problem.stages] == [30, 60, 90]
    assert [stage.source.horizon for stage in problem.stages] == [10, 40, 155]  # 160 samples without 5 past ones
    assert [stage.batch for stage in problem.stages] == [16, 4, 1]
    assert [problem.stage(step).batch for step in (0, 29, 30, 89)] == [16, 16, 4, 1]
    assert problem.stages[2].source.u is problem.source.u  # one copy of the samples


def test_growing_horizons_validate_at_every_change_and_resume(tmp_path):
    settings = {"horizon": [10, "full"], "max_steps": 50, "validate_every": 20}
    result = small_fit(**settings)
    assert [row.step for row in result.history] == [20, 25, 45, 50]
    interrupted_once = []

    def stop(update):
        if update.step == 25 and not interrupted_once:
            interrupted_once.append(update)
            signal.raise_signal(signal.SIGINT)

    first = small_fit(**settings, out=tmp_path, progress=stop)
    assert (first.status, first.steps) == ("interrupted", 45)  # the chunk at hand is finished
    assert same(small_fit(**settings, out=tmp_path, resume=True).model, result.model)


def test_a_list_of_one_horizon_is_that_horizon():
    assert same(small_fit(horizon=[20]).model, small_fit().model)


def test_patience_begins_with_the_last_horizon():
    result = small_fit(horizon=[10, 20], max_steps=400, patience=40, learning_rate=1e-7)
    assert result.steps >= 240  # without it: step 40 or soon after, as nothing improves at this rate
    assert result.status == "early-stopped"


@pytest.mark.parametrize("wrong", [[], [64, 1], [64, "half"], 1.5])
def test_horizons_are_checked(wrong):
    with pytest.raises(ConfigError, match="`horizon` must"):
        tausid.recipe_config("windows", horizon=wrong)
