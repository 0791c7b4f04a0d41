"""Training by Adam on windows: what is minimized, validated, held out, refused, kept on disk and resumed."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import OSCILLATOR_A, SMALL, oscillator_record, small_fit, wiener_record

import tausid
from tausid import ConfigError, DataError, FromLinear, Record, StorageError, Tau, recipes
from tausid.data.scaling import Scaling
from tausid.engine.fused import fused_missing
from tausid.engine.networks import MLP
from tausid.training import adam
from tausid.training.adam import learning_rate
from tausid.training.holdout import split_records
from tausid.training.parts import Adam, Random
from tausid.training.problem import validation_score
from tausid.training.resolve import resolve
from tausid.training.windows import WindowSource

# A linear start, but for small random nonlinear parts.
LINEAR_START = FromLinear(nonlinear="random", weight_range=0.01, bias_range=0.0)


def part(record: Record, start: int, stop: int) -> Record:
    return Record.from_arrays(record.u[start:stop], record.y[start:stop], ts=record.ts)


def weights(model: tausid.Model) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.state_space)]


def same(a: tausid.Model, b: tausid.Model) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(weights(a), weights(b), strict=True))


@pytest.fixture(scope="module")
def usual() -> tausid.FitResult:
    """The small fit as it is."""
    return small_fit()


def test_the_paper_recipe_is_the_papers_configuration():
    paper = recipes.paper()
    structure, trainer = paper.structure, paper.trainer
    assert (structure.nx, structure.hidden, structure.activation) == (4, (64, 64), "leaky_relu")
    assert (structure.na, structure.nb, structure.encoder, structure.dae) == (5, 5, "mlp", True)
    assert (paper.integration.stepper, trainer.horizon, trainer.batch) == ("rk4", 128, 64)
    assert (trainer.steps, trainer.patience) == (20_000, 2_000)
    assert (trainer.weight_decay, trainer.dae_weight, trainer.barrier.weight) == (1e-8, 1e3, 1e12)
    assert (paper.start.weight_range, paper.start.bias_range, paper.start.A) == (0.01, 0.0, "zero-mean")
    rate = learning_rate(trainer)
    np.testing.assert_allclose(
        [rate(0), rate(999), rate(1001), rate(2999), rate(3001)], [3e-3, 3e-3, 9e-4, 9e-4, 2.7e-4]
    )


def test_epochs_are_shuffled_passes_over_all_windows():
    source = WindowSource.from_records(
        [wiener_record(80)], Scaling.from_records([wiener_record(80)]), horizon=10, n_past=3
    )
    trainer = Adam(batch=17, window_order="epochs")
    assert source.count == 4 * 17  # 68 places for a window of 13 samples among 80
    draw = jax.jit(lambda step: adam.draw_windows(source, step, jax.random.key(0), trainer))
    draws = [draw(step) for step in range(8)]
    for epoch in (draws[:4], draws[4:]):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(68))
    assert not np.array_equal(draws[0], draws[4])


def test_windows_can_be_what_is_validated():
    held_out = wiener_record(60, seed=5)
    result = small_fit(settings={"trainer.validation_error": "windows"}, validation=held_out)
    last = result.last_model
    simulated = [last.simulate(part(held_out, start, start + 25)) for start in range(60 - 25 + 1)]
    errors = [run.y[5:, 0] - held_out.y[start + 5 : start + 25, 0] for start, run in enumerate(simulated)]
    expected = np.sqrt(np.mean(np.square(errors))) / last.scaling.y_std[0]
    assert result.history[-1].validation == pytest.approx(expected, rel=1e-4)  # float32, another order of sums


def test_the_encoder_can_be_a_plain_mlp():
    network = small_fit(settings={"structure.encoder": "mlp", "trainer.steps": 1}).model.state_space.initial.network
    assert isinstance(network, MLP)
    assert [weight.shape for weight in network.weights] == [(8, 10), (2, 8)]


def test_the_cosine_schedule_falls_to_a_hundredth():
    rate = learning_rate(Adam(steps=500))
    np.testing.assert_allclose([rate(0), rate(250), rate(500)], [3e-3, 3e-3 * 0.505, 3e-5], rtol=1e-5)


def test_the_loss_is_the_simulation_error_of_the_windows_and_the_first_step_the_rate():
    record, rate = wiener_record(80), 3e-3
    settings = {**SMALL, "trainer.batch": 1000, "trainer.steps": 1, "trainer.learning_rate": rate}
    result = small_fit(record, settings)
    recipe = recipes.windows(nx=2).change(settings)
    untrained = resolve(recipe, record, tau=2.0, seed=0).problem.initial_model
    assert result.model.past_span is None and result.recipe.structure.clock == "regular"
    train = record.part(0, 64)
    simulated = [untrained.simulate(train.part(start, start + 25)).y[5:, 0] for start in range(64 - 25 + 1)]
    errors = [y - train.y[start + 5 : start + 25, 0] for start, y in enumerate(simulated)]
    expected = np.mean(np.square(errors)) / untrained.scaling.y_std[0] ** 2
    assert result.history[0].loss == pytest.approx(expected, rel=1e-4)  # float32, another order of sums
    # Adam's first step is its rate times the sign of the gradient, but where the gradient is next to nothing.
    moved = [np.abs(b - a).max() for a, b in zip(weights(untrained), weights(result.last_model), strict=True) if a.size]
    assert max(moved) == pytest.approx(rate, rel=1e-3)


@pytest.mark.scan
def test_full_simulation_training_recovers_the_poles_of_a_linear_system():
    settings = {
        "structure.network": "polynomial", "structure.degree": 1, "integration.substeps": 2, "trainer.horizon": "full",
        "trainer.weight_decay": 0.0, "trainer.learning_rate": 2e-2, "trainer.steps": 3000,
        "trainer.validate_every": 500, "holdout": "none",
    }  # fmt: skip
    result = small_fit(oscillator_record(300), settings)
    poles = np.linalg.eigvals(np.asarray(result.model.state_space.A)) / result.model.tau
    # Noise-free data: what is left is how far Adam has come, well below one percent.
    np.testing.assert_allclose(np.sort_complex(poles), np.sort_complex(np.linalg.eigvals(OSCILLATOR_A)), rtol=1e-2)


def test_a_nonlinear_plant_is_simulated_better_than_by_its_best_constant():
    record = wiener_record(400)
    settings = {
        "trainer.steps": 800,
        "trainer.horizon": 40,
        "structure.hidden": [16, 16],
        "trainer.learning_rate": 0.01,
    }
    result = small_fit(record.part(0, 300), settings)
    score = tausid.evaluate(result.model, record.part(300, 400))
    assert score.nrmse["y"] < 0.3  # 1 is the constant; the noise alone gives 0.04


@pytest.mark.scan
def test_the_same_seed_gives_the_same_model_and_another_seed_another(usual):
    second, other = small_fit(), small_fit(seed=1)
    assert same(usual.model, second.model)
    assert not same(usual.model, other.model)


def test_the_history_shows_every_validation():
    result = small_fit(settings={"trainer.learning_rate": 2e-2})
    assert [row.step for row in result.history] == [20, 40, 60]
    assert result.status == "completed"
    assert result.steps == 60
    best = min(result.history, key=lambda row: row.validation)
    assert result.best_step == best.step
    held_out = split_records(result.recipe, wiener_record(200), validation=None, test=None).validation[0]
    score = tausid.evaluate(result.model, held_out)
    assert score.nrmse["y"] > 0
    assert score.rmse["y"] / result.model.scaling.y_std[0] == pytest.approx(best.validation, rel=1e-12)
    assert all(0 < row.gradient_norm < np.inf for row in result.history)


def test_training_stops_when_validation_gets_no_better():
    settings = {"trainer.steps": 5000, "trainer.patience": 40, "trainer.learning_rate": 1e-9}
    result = small_fit(settings=settings)
    assert result.status == "early-stopped"
    assert result.steps <= result.best_step + 40 + 20


def test_without_validation_the_last_model_is_the_result():
    result = small_fit(settings={"holdout": "none"})
    assert same(result.model, result.last_model)
    assert all(np.isnan(row.validation) for row in result.history)


def test_runs_that_differ_in_seed_tau_and_validation_share_one_compilation(monkeypatch):
    traces = []
    objective = adam.objective
    monkeypatch.setattr(adam, "objective", lambda *arguments: traces.append(1) or objective(*arguments))
    small_fit(settings={"trainer.batch": 7})
    assert traces  # python code of a step runs while it is compiled, and only then
    traces.clear()
    small_fit(settings={"trainer.batch": 7, "trainer.validate_every": 15, "trainer.patience": 90}, seed=5, tau=3.21)
    assert not traces


@pytest.mark.scan
@pytest.mark.parametrize("start", [2.0, (2.0, 4.0)])
def test_a_trained_tau_moves_and_its_path_is_kept(start, usual):
    result = small_fit(tau=Tau(start, trainable=True))
    path = [row.tau for row in result.history]
    assert np.shape(path) == (3, *np.shape(start))
    assert len({start, *path}) == 4
    assert [row.tau for row in usual.history] == [2.0, 2.0, 2.0]


def test_the_unit_of_time_does_not_change_the_training():
    record = wiener_record(200)
    in_minutes = Record.from_arrays(record.u, record.y, t=record.t / 60.0)
    seconds = small_fit(record, tau=Tau(2.0, trainable=True))
    minutes = small_fit(in_minutes, tau=Tau(2.0 / 60.0, trainable=True))
    # dt / tau agrees up to rounding of single precision, which sixty steps of Adam amplify a little.
    assert minutes.history[-1].loss == pytest.approx(seconds.history[-1].loss, rel=1e-2)
    assert minutes.model.tau * 60.0 == pytest.approx(seconds.model.tau, rel=1e-2)


def test_the_paper_protocol_validates_on_the_first_half_of_the_test_record():
    recipe = recipes.paper().change({"holdout": "paper"})
    train, test = wiener_record(300), wiener_record(1400, seed=5)
    split = split_records(recipe, train, validation=None, test=test)
    assert split.train == (train,)
    np.testing.assert_array_equal(split.validation[0].y, test.y[:512])
    short = split_records(recipe, train, validation=None, test=test.part(0, 300))
    assert len(short.validation[0]) == 150


def test_the_clean_protocol_sees_nothing_of_the_test_record(usual):
    test = wiener_record(200, seed=9)
    spoiled = Record.from_arrays(test.u, test.y * 1000.0, ts=test.ts)
    assert same(small_fit(test=spoiled).model, usual.model)


def test_held_out_samples_do_not_reach_training_or_scaling(usual):
    record = wiener_record(200)
    tail = np.where(np.arange(200)[:, None] < 160, record.y, 50.0 * record.y)
    assert same(small_fit(Record.from_arrays(record.u, tail, ts=record.ts)).last_model, usual.last_model)


# NaN and infinity


def test_a_step_that_is_not_finite_goes_back_to_the_best_state_with_a_lower_rate():
    result = small_fit(settings={"trainer.learning_rate": 1e30, "trainer.steps": 200, "trainer.max_recoveries": 200})
    assert all(np.isfinite(w).all() for w in weights(result.model))
    assert result.status == "completed"  # 1e30 times 0.3^58 is a rate at which something can be learned
    rates = [row.learning_rate for row in result.history]
    assert rates and max(rates) < 1e30


def test_a_hopeless_run_ends_as_diverged_with_its_best_model_and_advice():
    result = small_fit(settings={"trainer.learning_rate": 1e38, "trainer.steps": 200, "trainer.max_recoveries": 2})
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
        ({"structure.activation": "rely"}, "unknown activation 'rely'"),
        ({"integration.stepper": "rk5"}, "unknown stepper 'rk5'"),
        ({"integration.hold": "zoh"}, "unknown hold 'zoh'"),
        ({"horizont": 3}, "unknown setting 'horizont'.*Did you mean 'trainer.horizon'"),
        ({"trainer.horizon": 500}, "record 'wiener.*must have at least 505 samples .*; got 160"),
        ({"trainer.horizon": 1}, "`horizon` must be a whole number of at least 2; got 1"),
        ({"trainer.horizon": [64, 128]}, "`horizon` must be a whole number of at least 2; got"),
        ({"protocol": "paper"}, "protocol 'paper' must have a test record"),
        ({"protocol": "papier"}, "unknown protocol 'papier'"),
        (
            {"protocol": "paper", "test": wiener_record(60), "validation": wiener_record(60)},
            "'paper' must have no validation records",
        ),
        ({"holdout": "folds", "validation": wiener_record(60)}, "'folds' must have no validation records"),
        ({"holdout.share": "a"}, "`share` must be a positive number; got 'a'"),
        ({"trainer.learning_rate": 0.0}, "`learning_rate` must be a positive number; got 0.0"),
        ({"trainer.weight_decay": -1.0}, "`weight_decay` must be a zero or positive number; got -1.0"),
        ({"structure.hidden": 8}, "`hidden` must be a list of at most 16 widths; got 8"),
        ({"integration.hold": 3}, "`hold` must be 'zero' or 'first', or one of these per input; got 3"),
        ({"seed": 2**70}, "`seed` must be a whole number of at least 0 and at most 2147483647"),
        ({"structure.initial_state": "free"}, "`initial_state` must be 'encoder' where Adam trains"),
        ({"tau": "slow"}, "unknown tau 'slow'"),
        ({"structure.hidden": (8, 0)}, "`hidden` must be a whole number of at least 1; got 0"),
        ({"trainer.window_order": "epoch"}, "unknown window_order 'epoch'.*Did you mean 'epochs'"),
        ({"trainer.validation_error": "window"}, "unknown validation_error 'window'.*Did you mean 'windows'"),
        ({"trainer.barrier.form": "relu"}, "unknown form 'relu'"),
        ({"structure.encoder": "mlp", "start": "from-linear"}, "`encoder` must be 'residual'"),
        ({"start.A": "I"}, "unknown A 'I'; known: -I, -MM', zero-mean"),
        ({"progress": "loud"}, "`progress` must be 'auto', None or a function; got 'loud'"),
        ({"trainer.output_weights": (1.0, 2.0)}, "`output_weights` must have one number per output; got 2 for 1"),
        ({"trainer.output_weights": 3.0}, "`output_weights` must be a list of numbers, one per output; got 3.0"),
        ({"trainer.output_weights": (0.0,)}, "`output_weights` must not all be zero"),
        ({"trainer.output_weights": (-1.0,)}, "`output_weights` must be a zero or positive number; got -1.0"),
        ({"structure.feedthrough": 1}, "`feedthrough` must be true or false; got 1"),
        ({"integration.max_dt": 0.0}, "`max_dt` must be a positive number; got 0.0"),
        ({"integration.max_gap": "long"}, "`max_gap` must be a positive number; got 'long'"),
        ({"structure.clock": "jitter"}, "unknown clock 'jitter'; known: auto, irregular, regular"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    settings = {key: value for key, value in changes.items() if "." in key}
    arguments = {key: value for key, value in changes.items() if "." not in key}
    with pytest.raises(ConfigError, match=message):
        small_fit(settings=settings, **arguments)


def test_bad_data_are_refused():
    constant = Record.from_arrays(np.ones(200), np.arange(200.0), ts=1.0)
    with pytest.raises(DataError, match="input 'u' must vary"):
        small_fit(constant)
    two = Record.from_arrays(np.random.default_rng(0).normal(size=(200, 2)), np.arange(200.0), ts=1.0)
    with pytest.raises(DataError, match="same channels"):
        small_fit([wiener_record(200), two])


def test_a_test_record_that_cannot_be_scored_is_refused_before_training():
    y = wiener_record(100).y.copy()
    y[:99] = np.nan
    bad = Record.from_arrays(wiener_record(100).u, y, ts=0.5, name="bad")
    with pytest.raises(DataError, match="record 'bad' must have every output measured within 5 samples before"):
        small_fit(settings={"trainer.steps": 10**9}, test=bad)


def test_the_held_out_end_begins_where_its_initial_state_can_be_found():
    y = wiener_record(300).y.copy()
    y[238:245] = np.nan
    gap = Record.from_arrays(wiener_record(300).u, y, ts=0.5, name="gap")
    split = split_records(recipes.windows(), gap, validation=None, test=None)
    assert len(split.train[0]) == 241  # samples 241 to 245 have one measured among them
    assert small_fit(gap).status == "completed"
    y[230:] = np.nan
    lost = Record.from_arrays(wiener_record(300).u, y, ts=0.5, name="lost")
    with pytest.raises(
        ConfigError, match=r"'lost' must be long enough to hold its last 0.2 out.* with 5 .* change holdout.share"
    ):
        small_fit(lost)
    assert small_fit(lost, {"holdout": "none"}).status == "completed"


def test_an_autonomous_system_trains_with_tau_from_its_outputs():
    t = np.arange(200) * 0.1
    record = Record.from_arrays(np.zeros((200, 0)), np.sin(t), ts=0.1)
    result = small_fit(record, tau="bla")
    assert result.model.tau == pytest.approx(1.0, rel=0.05)  # a sine's 1 / omega; the record is not whole periods
    assert result.model.state_space.tau.source == "outputs"
    assert small_fit(record, tau="bla-trained", settings={"trainer.steps": 20}).model.state_space.tau.trainable
    with pytest.raises(DataError, match=r"must have at least one input.*Or take recipe='windows' and give tau in"):
        small_fit(record, tau="bla", start=LINEAR_START)


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
@pytest.mark.parametrize("start", [Random(), LINEAR_START], ids=["random", "linear"])
def test_a_jittered_record_trains_and_its_encoder_sees_time(start, tmp_path):
    record = jittered_record()
    result = small_fit(record, tau="bla", start=start)
    model = result.model
    assert result.recipe.structure.clock == "irregular"
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
    assert result.recipe.structure.clock == "irregular"
    assert result.model.ts == 0.5
    assert result.model.past_span == pytest.approx((2.5, 5.0))


@pytest.mark.parametrize(("record", "clock", "seen"), [(jittered_record(), "regular", 10),
                                                       (wiener_record(200), "irregular", 15)])  # fmt: skip
def test_whether_the_encoder_sees_time_can_be_told(record, clock, seen):
    recipe = recipes.windows(nx=2, clock=clock).change({"trainer.horizon": 20})
    model = resolve(recipe, record, tau=2.0, seed=0).problem.initial_model
    assert model.state_space.initial.network.linear.shape == (2, seen)
    assert (model.past_span is None) == (clock == "regular")


def test_records_are_cut_at_gaps():
    record = wiener_record(300)
    t = record.t + np.where(np.arange(300) >= 100, 1000.0, 0.0)
    gap = Record.from_arrays(record.u, record.y, t=t, name="gap")
    recipe = recipes.windows(nx=2).change({"trainer.horizon": 20})
    split = split_records(recipe, gap, validation=None, test=None)
    assert [len(part) for part in split.train] == [100, 140]
    whole = split_records(recipe.change({"integration.max_gap": 2000.0}), gap, validation=None, test=None)
    assert [len(part) for part in whole.train] == [240]
    result = small_fit(gap)
    assert result.status == "completed"
    assert result.recipe.structure.clock == "regular"  # between its gaps the record has one clock


def test_missing_outputs_are_left_out_of_training():
    record = wiener_record(300)
    y = np.where(np.random.default_rng(0).random((300, 1)) < 0.3, np.nan, record.y)
    holes = Record.from_arrays(record.u, y, ts=0.5)
    result = small_fit(holes, {"trainer.steps": 600, "trainer.learning_rate": 1e-2})
    score = tausid.evaluate(result.model, record)
    assert score.nrmse["y"] < 0.5  # 1 is the constant: about as good as with all outputs in so few steps


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
    settings = {"trainer.steps": 300, "trainer.learning_rate": 1e-2}
    first, second = (
        small_fit(record, {**settings, "trainer.output_weights": w}) for w in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    )
    a, b = (tausid.evaluate(result.model, record).nrmse for result in (first, second))
    assert a["y1"] < 0.8 < a["y2"]
    assert b["y2"] < 0.8 < b["y1"]


def test_equal_output_weights_are_none():
    record, fits = mimo_record(200, seed=0), []
    for weights in (None, (3.0, 3.0, 3.0)):
        fits.append(small_fit(record, {"trainer.output_weights": weights, "trainer.steps": 20}))
    assert fits[1].history[-1].validation == pytest.approx(fits[0].history[-1].validation, rel=1e-3)


def test_without_feedthrough_a_linear_start_and_a_training_work():
    settings = {"structure.feedthrough": False, "trainer.steps": 40}
    result = small_fit(wiener_record(300), settings, tau="bla", start=LINEAR_START)
    assert result.model.state_space.g.linear.shape == (1, 2)
    assert result.history[0].loss < 0.5  # 1 is the constant: the linear start is in


@pytest.mark.parametrize(
    "settings",
    [
        {"structure.network": "polynomial", "structure.degree": 2},
        {"structure.hidden": ()},
        {"structure.na": 0, "structure.nb": 0},
        {"trainer.barrier.weight": 10.0, "structure.dae": True, "trainer.dae_weight": 1.0},
    ],
    ids=["polynomial", "linear", "without a past", "as the paper"],
)
def test_other_structures_train(settings):
    assert small_fit(settings={**settings, "trainer.steps": 20}).status == "completed"


# Checkpoints

KILLED_AT_40 = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from problems import small_fit
def die(update):
    if update.step == 40:
        os.kill(os.getpid(), signal.SIGKILL)
small_fit(out={out!r}, progress=die)
"""


def test_a_killed_run_resumes_to_the_same_model_bit_for_bit(tmp_path, usual):
    code = KILLED_AT_40.format(tests=str(Path(__file__).parent), out=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    steps = []
    resumed = small_fit(out=tmp_path, resume=True, progress=lambda update: steps.append(update.step))
    assert steps == [40, 60]  # what was on disk was that of step 20
    files = [result.model.save(tmp_path / f"{i}.safetensors") for i, result in enumerate((usual, resumed))]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_interrupted_fit_keeps_what_it_found_and_can_go_on(tmp_path, usual):
    def interrupt(update):
        if update.step == 20:
            os.kill(os.getpid(), signal.SIGINT)

    stopped = small_fit(progress=interrupt, out=tmp_path)
    assert stopped.status == "interrupted"
    assert stopped.steps == 40  # the chunk at hand is finished
    assert "Resume to go on" in stopped.message
    finished = small_fit(out=tmp_path, resume=True)
    assert finished.status == "completed"
    assert same(finished.model, usual.model)
    assert [row.step for row in finished.history] == [20, 40, 60]


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> tuple[Path, tausid.FitResult]:
    """A run that has ended, and its folder."""
    folder = tmp_path_factory.mktemp("kept")
    return folder, small_fit(out=folder)


def test_resuming_a_finished_run_gives_its_result_again(kept):
    folder, first = kept
    again = small_fit(out=folder, resume=True)
    assert same(first.model, again.model)
    assert again.history == first.history


def test_a_folder_with_a_run_is_not_overwritten(kept):
    with pytest.raises(ConfigError, match="`out` must be a folder without a run"):
        small_fit(out=kept[0])


def test_a_run_can_be_overwritten_but_not_by_a_mistake(tmp_path):
    small_fit(out=tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="unknown recipe"):
        small_fit(out=tmp_path, overwrite=True, recipe="typo")
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert small_fit(out=tmp_path, overwrite=True, seed=3).seed == 3


def test_a_run_is_not_resumed_by_another_engine(kept, monkeypatch):
    if fused_missing():
        pytest.skip(f"fused is not available: {fused_missing()}")
    monkeypatch.setenv("TAUSID_NO_FUSED", "1")
    with pytest.raises(ConfigError, match="`engine` was 'fused' and is now 'scan'"):
        small_fit(out=kept[0], resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"trainer.batch": 8}}, "`trainer.batch` was 16 and is now 8"),
        ({"settings": {"holdout": "none"}}, "`holdout` was .* and is now None"),
        ({"record": wiener_record(200, seed=3)}, "`data` was"),
        ({"tau": 5.0}, "`tau` was 2.0 and is now 5.0"),
        ({"seed": 1}, "`seed` was 0 and is now 1"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings_or_data(kept, changes, message):
    with pytest.raises(ConfigError, match=message):
        small_fit(out=kept[0], resume=True, **changes)


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="must be writable"):
        small_fit(out=tmp_path / "file" / "run")


@pytest.mark.scan
def test_several_records_of_different_length_train_together():
    records = [wiener_record(200), wiener_record(150, seed=3)]
    assert small_fit(records).status == "completed"
    full = small_fit(records, {"trainer.horizon": "full", "holdout": "none", "trainer.steps": 20})
    assert full.status == "completed"


def test_the_validation_score_pools_records_by_their_length(usual):
    record = wiener_record(200)
    model = usual.model
    parts = (record.part(0, 50), record.part(50, 200))
    scores = [tausid.evaluate(model, part) for part in parts]
    pooled = sum(s.n_scored * (s.rmse["y"] / model.scaling.y_std[0]) ** 2 for s in scores)
    expected = np.sqrt(pooled / sum(s.n_scored for s in scores))
    assert validation_score(model, parts, output_weights=None) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_the_norm_of_a_constant_gradient_is_its_norm_from_the_first_step_on(steps):
    gradient = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
    state = adam.Moments.start(gradient)
    moments = state.moments
    for _ in range(steps):
        _, moments = adam.ADAM.update(gradient, moments)
    state = dataclasses.replace(state, moments=moments)
    assert state.gradient_norm == pytest.approx(5.0, rel=1e-5)  # moments are of single precision
