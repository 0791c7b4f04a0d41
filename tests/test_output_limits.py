from __future__ import annotations

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import printed
from problems import small_fit, wiener_record

import tausid
from tausid import ConfigError, Record, recipes
from tausid.data.inspection import look
from tausid.data.limits import find_limits
from tausid.engine.clipping import clip_straight
from tausid.training.limits import describe_limits, resolve_limits


def railing_record(samples: int = 200, *, high: float = 0.5) -> Record:
    record = wiener_record(samples)
    return Record.from_arrays(record.u, np.minimum(record.y, high), ts=record.ts, name="railing")


def test_limits_are_found_where_a_share_of_the_samples_is_exactly_there():
    y = np.sin(0.1 * np.arange(1000.0))
    assert find_limits([y]) == (None, None)
    assert find_limits([np.minimum(y, 0.5)]) == (None, 0.5)
    assert find_limits([np.clip(y, -0.25, 0.5)]) == (-0.25, 0.5)
    assert find_limits([np.append(np.minimum(y, 0.5), np.nan)]) == (None, 0.5)
    assert find_limits([np.round(y, 1)]) == (None, None)  # quantized: its extremes are no limits
    assert find_limits([np.sign(y)]) == (None, None)  # a switch


def test_rest_at_the_ends_of_a_record_is_no_limit():
    moves = 1.1 + np.sin(0.1 * np.arange(1000.0))
    rest = np.zeros(50)
    assert find_limits([np.concatenate([rest, moves])]) == (None, None)
    assert find_limits([np.concatenate([rest, moves, rest]), np.concatenate([moves, rest])]) == (None, None)
    # Once in between may be chance; twice, in one record or in two, is a limit.
    once = np.concatenate([moves, rest, moves])
    assert find_limits([once]) == (None, None)
    assert find_limits([once, once]) == find_limits([np.concatenate([once, rest, moves])]) == (0.0, None)


def test_the_cascaded_tanks_run_over_and_look_says_what_fit_does(benchmark_folder):
    train = tausid.datasets.load("cascaded_tanks").train
    assert resolve_limits("auto", [train]) == ((None, 10.0),)
    report = look(train).channels[-1]
    assert report.limits == (None, 10.0)
    assert report.limited == np.mean(train.y == 10.0)


def test_rest_before_an_experiment_is_a_dead_stretch_and_no_limit():
    moves = 1.1 + np.sin(0.1 * np.arange(1000.0))
    y = np.concatenate([np.zeros(100), moves])
    report = look(Record.from_arrays(np.arange(len(y)), y, ts=1.0)).channels[-1]
    assert (report.limits, report.limited, report.is_dead) == ((None, None), 0.0, True)


def test_one_pair_per_output_comes_of_all_ways_to_say_it():
    record = railing_record()
    assert resolve_limits("none", [record]) == "none"
    assert resolve_limits("auto", [record]) == ((None, 0.5),)
    assert resolve_limits("auto", [wiener_record(200)]) == "none"
    assert resolve_limits((0, 10), [record]) == ((0, 10),)
    assert resolve_limits(((None, 10.0),), [record]) == ((None, 10.0),)
    with pytest.raises(ConfigError, match="one pair per output; got 2 for 1 outputs"):
        resolve_limits(((0, 1), (0, 1)), [record])


@pytest.mark.parametrize("wrong", ["sometimes", [1], [2, 1], [0, float("nan")], [[0, 1], 2], [], [True, 2]])
def test_limits_that_are_none_are_refused(wrong):
    with pytest.raises(ConfigError, match="`output_limits` must be 'none', 'auto'"):
        recipes.default().change({"structure.output_limits": wrong})


def test_clipping_keeps_the_derivative():
    y, low, high = jnp.array([[-2.0], [0.5], [3.0]]), jnp.array([-1.0]), jnp.array([jnp.inf])
    np.testing.assert_array_equal(clip_straight(y, low, high)[:, 0], [-1.0, 0.5, 3.0])
    slope = jax.grad(lambda v: jnp.sum(clip_straight(v, low, high) ** 2))(y)
    np.testing.assert_array_equal(slope[:, 0], [-2.0, 1.0, 6.0])


def test_a_fit_finds_limits_keeps_them_and_says_so(tmp_path):
    record = railing_record()
    limited = {"structure.output_limits": "auto"}
    result = small_fit(record, limited, out=tmp_path)
    assert result.recipe.structure.output_limits == ((None, 0.5),)
    assert result.message.endswith("Simulated outputs are limited: y is at most 0.5.")
    # A thousand times the input drives any model of this plant far beyond the limit.
    far = Record.from_arrays(1e3 * record.u, record.y, ts=record.ts)
    simulated = result.model.simulate(far).y
    assert np.nanmax(simulated) == pytest.approx(0.5, abs=1e-6)  # single precision
    path = result.model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(tausid.load_model(path).simulate(far).y, simulated)
    free = dataclasses.replace(result.model.state_space, limits=None)
    assert np.nanmax(dataclasses.replace(result.model, state_space=free).simulate(far).y) > 0.6
    again = small_fit(record, limited, out=tmp_path, resume=True)
    assert again.steps == result.steps  # the checkpoint is of the same settings
    assert json.loads(printed("info", path, "--json"))["structure"]["output_limits"] == [[None, 0.5]]
    # Where states explode, outputs that are limited hide it from nobody.
    wild = eqx.tree_at(lambda m: m.f.linear, result.model.state_space, replace_fn=lambda w: 1e3 + 0 * w)
    model = dataclasses.replace(result.model, state_space=wild)
    assert model.simulate(record, throw=False).status == "diverged"


def test_limits_in_words():
    assert describe_limits("none", ["y"], ["V"]) == ""
    limits = ((0.0, 10.0), (None, None), (None, 3.0))
    assert describe_limits(limits, ["a", "b", "c"], ["V", "", "m"]) == (
        "Simulated outputs are limited: a is at least 0 and at most 10 V, c is at most 3 m."
    )


def test_knowing_the_limit_helps_where_the_record_rails():
    record = railing_record(400)
    settings = {"trainer.steps": 600, "trainer.horizon": 40, "trainer.learning_rate": 1e-2}
    scores = [
        tausid.evaluate(
            small_fit(record.part(0, 300), {**settings, "structure.output_limits": limits}).model, record.part(300, 400)
        ).rmse["y"]
        for limits in ("none", "auto")
    ]
    assert scores[1] < 0.9 * scores[0]
