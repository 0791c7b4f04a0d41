"""What need not be typed: channels that a model knows, outputs that a simulation does not need, dozens of settings."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import printed
from problems import oscillator_record, wiener_record

import tausid
from tausid import DataError, Record
from tausid.errors import ConfigError
from tausid.results.runs import Run, RunFolder

LIGHT = {"trainer.iterations": 30, "holdout": "none", "structure.hidden": (6,)}


def named(record: Record) -> Record:
    return Record.from_arrays(
        record.u, record.y, t=record.t, input_names=["pump"], output_names=["level"], units={"pump": "V", "level": "m"}
    )


@pytest.fixture(scope="module")
def record() -> Record:
    return named(wiener_record(400, noise=0.005))


@pytest.fixture(scope="module")
def result(record) -> tausid.FitResult:
    return tausid.fit(record, nx=2, tau=2.0, seed=0, progress=None, settings={**LIGHT, "search": "fixed"})


@pytest.fixture(scope="module")
def model(result) -> tausid.Model:
    return result.model


@pytest.fixture(scope="module")
def folder(result, record, tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    RunFolder(path).write(Run.from_result(result, train=record))
    return path


def write(path, columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(repr, map(float, row))) for row in rows)]))
    return path


@pytest.fixture(scope="module")
def data(record, tmp_path_factory):
    columns = {"time": record.t, "other": record.t**2, "level": record.y[:, 0], "pump": record.u[:, 0]}
    return write(tmp_path_factory.mktemp("data") / "log.csv", columns)


# Inputs alone


def test_at_rest_a_constant_input_moves_nothing_and_the_output_is_the_plants(model):
    for level in (-0.5, 0.0, 0.4):
        simulation = model.simulate(u=np.full(200, level))
        assert (simulation.initial_state, simulation.n_skipped) == ("rest", 0)
        np.testing.assert_allclose(simulation.y, simulation.y[0, 0], atol=1e-3)
        assert simulation.y[0, 0] == pytest.approx(np.tanh(1.5 * level), abs=0.06)  # its gain is one, then tanh(1.5 x)
    assert simulation.t[1] == model.ts


def test_a_simulation_goes_on_from_the_end_of_another_record(model, record):
    whole = model.simulate(record)
    for rest in (record.part(150, 400), Record.from_arrays(record.u[150:], None, ts=record.ts)):
        np.testing.assert_allclose(model.simulate(rest, x0=record.part(0, 150)).y, whole.y[150:], atol=1e-9)
    given = model.simulate(u=record.u[150:], t=record.t[150:], x0=whole.x[150])
    np.testing.assert_allclose(given.y, whole.y[150:], atol=1e-9)
    np.testing.assert_array_equal(given.t, record.t[150:])


def test_outputs_at_rest_are_the_first_ones(model):
    simulation = model.simulate(u=np.zeros(50), x0={"level": 0.5})
    assert simulation.y[0, 0] == pytest.approx(0.5, abs=1e-2)
    with pytest.raises(ConfigError, match="unknown output 'height'; known: level"):
        model.simulate(u=np.zeros(50), x0={"height": 0.5})
    with pytest.raises(DataError, match="within the model's reach; 1e\\+06 is not .* the nearest is"):
        model.simulate(u=np.zeros(50), x0={"level": 1e6})


def test_an_ensemble_begins_at_rest_too(model):
    pair = tausid.EnsembleModel((model, model), (0.1, 0.1))
    alone, together = (m.simulate(u=np.full(20, 0.3)) for m in (model, pair))
    np.testing.assert_allclose(together.y, alone.y)


def test_what_needs_outputs_says_so(model, record):
    inputs = Record.from_arrays(record.u, None, ts=0.5)
    with pytest.raises(DataError, match="must have outputs for the initial state 'refine'; it has inputs alone"):
        model.simulate(inputs, x0="refine")
    with pytest.raises(DataError, match="at least one output"):
        tausid.evaluate(model, inputs)
    with pytest.raises(DataError, match="at least one output"):
        tausid.fit(inputs, seed=0)
    with pytest.raises(ConfigError, match="must be given a record, or inputs as `u`"):
        model.simulate()


def test_a_model_without_an_equilibrium_says_so():
    t = np.arange(300) * 0.1
    u = np.sin(0.7 * t) + 0.5 * np.sin(2.3 * t)
    ramp = Record.from_arrays(u, np.cumsum(u) * 0.1, ts=0.1)
    model = tausid.fit(ramp, nx=1, tau=1.0, seed=0, progress=None, settings={**LIGHT, "search": "fixed"}).model
    with pytest.raises(DataError, match="must come to rest with the first inputs of 'inputs'.*outputs at rest"):
        model.simulate(u=np.full(100, 1.0))
    assert model.simulate(u=np.full(100, 1.0), x0={"y": 0.2}).y[0, 0] == pytest.approx(0.2, abs=0.02)


# The command line


def test_a_model_knows_its_channels_and_its_folder_is_as_good_as_its_file(folder, data, model, record, capfd):
    expected = tausid.evaluate(model, record).rmse["level"]
    for path in (folder, folder / "model.safetensors"):
        scores = json.loads(printed("evaluate", path, data, "--json"))
        assert scores["rmse"]["level"] == pytest.approx(expected, rel=1e-9)
    assert "note: log: time stamps from column 'time'" in capfd.readouterr().err
    assert tausid.load_model(folder).output_names == ("level",)


def test_other_names_are_mapped_on_purpose_and_refused_otherwise(folder, tmp_path, record, model):
    path = write(tmp_path / "b.csv", {"t": record.t, "p": record.u[:, 0], "l": record.y[:, 0]})
    with pytest.raises(DataError, match="unknown column 'pump'.*that are the model's: --input NAME --output NAME"):
        printed("evaluate", folder, path)
    scores = json.loads(printed("evaluate", folder, path, "--input", "p", "--output", "l", "--json"))
    assert scores["rmse"]["level"] == pytest.approx(tausid.evaluate(model, record).rmse["level"], rel=1e-9)
    wrong = write(tmp_path / "c.csv", {"t": record.t, "pump (mV)": record.u[:, 0], "level": record.y[:, 0]})
    with pytest.raises(DataError, match="channel 'pump' of 'c' must be in V, as in training; it is in mV"):
        printed("evaluate", folder, wrong)


def test_inputs_alone_are_simulated(folder, tmp_path, record, model, data, capfd):
    path, out = write(tmp_path / "inputs.csv", {"pump": np.full(60, 0.3)}), tmp_path / "sim.csv"
    told = printed("simulate", folder, path, "--out", out)
    assert "initial state (rest)" in told
    assert "sampling time 0.5 s, as in training" in capfd.readouterr().err
    table = np.genfromtxt(out, delimiter=",", names=True)
    assert table.dtype.names == ("t", "pump", "level_simulated")
    np.testing.assert_allclose(table["level_simulated"], model.simulate(u=np.full(60, 0.3)).y[:, 0])
    printed("simulate", folder, path, "--out", out, "--x0", "level=0.5")
    assert np.genfromtxt(out, delimiter=",", names=True)["level_simulated"][0] == pytest.approx(0.5, abs=1e-2)
    printed("simulate", folder, path, "--out", out, "--after", data)
    after = model.simulate(u=np.full(60, 0.3), x0=record).y[:, 0]
    np.testing.assert_allclose(np.genfromtxt(out, delimiter=",", names=True)["level_simulated"], after)
    printed("simulate", folder, path, "--out", out, "--x0", "0.1,-0.2")
    given = model.simulate(u=np.full(60, 0.3), x0=[0.1, -0.2]).y[:, 0]
    np.testing.assert_allclose(np.genfromtxt(out, delimiter=",", names=True)["level_simulated"], given)
    with pytest.raises(
        ConfigError, match="a state such as 0.1,-0.2, or outputs at rest such as level=2; got 'level=x'"
    ):
        printed("simulate", folder, path, "--out", out, "--x0", "level=x")


def test_prepared_data_need_their_own_sampling_time(folder, tmp_path, record):
    path = write(tmp_path / "d.csv", {"pump": record.u[:, 0], "level": record.y[:, 0]})
    with pytest.raises(ConfigError, match="sampling time of 'd' must be given"):
        printed("evaluate", folder, path, "--prepare", "decimate 2")
    assert printed("evaluate", folder, path, "--ts", "0.5", "--prepare", "decimate 2")


def test_info_is_short_and_all_of_it_is_there_on_demand(folder):
    short, long = printed("info", folder).splitlines(), printed("info", folder, "--all").splitlines()
    assert len(short) <= 20 < len(long)
    text = " ".join(" ".join(short).split())
    for words in (
        "inputs pump (V)",
        "outputs level (m)",
        "states 2",
        "sampling time 0.5 s",
        "training error level 0.0",
    ):
        assert words in text, words


def test_info_counts_the_weights_of_a_linear_model(tmp_path):
    """`dx/dt = A x + B u + a`, `y = C x + D u + c` with two states, an input and an output."""
    quick = {**LIGHT, "structure.hidden": (), "structure.nonlinear_g": False, "trainer.iterations": 1}
    tausid.fit(oscillator_record(200), nx=2, tau=2.0, seed=0, progress=None, settings=quick).model.save(tmp_path / "a")
    assert "network linear; 12 weights" in " ".join(printed("info", tmp_path / "a").split())


# Linear models


def test_linear_models_are_scored_like_others():
    record = oscillator_record(400, noise=0.05)
    linear = tausid.estimate_bla(record, nx=2)
    score = tausid.evaluate(linear, record)
    assert score.n_skipped == 50
    assert score.rmse["y"] == pytest.approx(0.05, rel=0.1)
    assert tausid.evaluate_records(linear, [record, record]).pooled.rmse["y"] == pytest.approx(score.rmse["y"])
    from_state = tausid.evaluate(linear, record, x0=linear.x0[0])
    assert (from_state.n_skipped, from_state.initial_state) == (0, "given")


def test_physical_matrices_give_the_outputs_in_physical_units():
    record = oscillator_record(400)
    record = Record.from_arrays(7.0 + 3.0 * record.u, 20.0 + 100.0 * record.y, ts=record.ts)
    linear = tausid.estimate_bla(record, nx=2)
    physical = linear.physical
    x, rates = linear.simulate_states(record)
    u = record.u - physical.u0
    np.testing.assert_allclose(physical.y0 + x @ physical.C.T + u @ physical.D.T, linear.simulate(record))
    np.testing.assert_allclose(x @ physical.A.T + u @ physical.B.T, rates, atol=1e-12)
    gain = physical.D - physical.C @ np.linalg.solve(physical.A, physical.B)
    assert gain.item() == pytest.approx(100.0 / 3.0, rel=1e-3)  # that of the oscillator is one
    assert "A, B, C, D are in normalized units, those of .physical in physical ones" in repr(linear)
    assert "in physical units and seconds" in linear._repr_html_()


def test_order_shows_the_error_over_the_number_of_states(tmp_path):
    record = oscillator_record(600, noise=0.02)
    path = write(tmp_path / "log.csv", {"t": record.t, "u": record.u[:, 0], "y": record.y[:, 0]})
    channels = [path, "--input", "u", "--output", "y", "--time", "t"]
    found = json.loads(printed("order", *channels, "--plot", tmp_path / "order.png", "--json"))
    assert found["order"] == 2
    assert found["errors"]["1"] > 3 * found["errors"]["2"]
    assert len(found["errors"]) >= 4
    assert (tmp_path / "order.png").stat().st_size > 5000
    assert "--nx 2" in printed("order", *channels)
