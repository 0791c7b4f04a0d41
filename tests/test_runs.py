"""The folder of a run gives back what was written to it."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import pytest
from problems import wiener_record

import tausid
from tausid import Record, StorageError
from tausid.data.sources import source_sums
from tausid.model.course import Simulation
from tausid.results.runs import Experiment, Run, RunFolder
from tausid.training import HistoryRow

ROWS = (
    HistoryRow(50, 0.1, 0.3, 3e-3, 74.0, 1.5, 0.2),
    HistoryRow(100, 1 / 3, float("nan"), 1e-3, 75.0, 2.5),
)


def odd_experiment() -> Experiment:
    """Two outputs with missing samples, no input, uneven time, names from hell, a diverged run."""
    t = np.array([0.0, 1.0, 2.5, 3.0])
    y = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, np.nan], [5.0, 6.0]])
    record = Record(np.zeros((4, 0)), y, t, (), ("<b>", "y\n2"), (), ("V", ""), "naïve")
    simulated = np.array([[np.nan, np.nan], [1.0, 2.0], [np.inf, 0.0], [np.nan, 1e300]])
    return Experiment("test", record, Simulation(t, simulated, np.ones((4, 3)), 1, "diverged", record.output_names), 2)


def test_experiments_come_back_bit_for_bit(tmp_path):
    written = odd_experiment()
    RunFolder(tmp_path).write_records((written,))
    (read,) = RunFolder(tmp_path).read_records()
    assert (read.role, read.skip, read.simulation.n_skipped, read.simulation.status) == ("test", 2, 1, "diverged")
    for field in dataclasses.fields(Record):
        np.testing.assert_array_equal(getattr(read.record, field.name), getattr(written.record, field.name))
    np.testing.assert_array_equal(read.simulation.y, written.simulation.y)
    np.testing.assert_array_equal(read.simulation.x, written.simulation.x)


@pytest.mark.parametrize("rows", [ROWS, (dataclasses.replace(ROWS[0], tau=(1.0, 2.0, 3.0)),), ()])
def test_the_history_comes_back_digit_for_digit(tmp_path, rows):
    RunFolder(tmp_path).write_history(rows)
    assert repr(RunFolder(tmp_path).read_history()) == repr(rows)  # NaN and all digits


def test_a_whole_run_comes_back(tmp_path):
    record, test = wiener_record(120), wiener_record(100, seed=5)
    settings = {"structure.hidden": [], "trainer.horizon": 20, "trainer.steps": 2}
    result = tausid.fit(record, tau=2.0, seed=0, recipe="windows", nx=1, settings=settings, progress=None)
    run = Run.from_result(result, train=record, tests=test, skip=9)
    assert [e.role for e in run.experiments] == ["train", "test"]
    assert run.of_role("test")[0].score == tausid.evaluate(result.model, test, skip=9)
    files = RunFolder(tmp_path)
    assert not files.is_used
    files.write(dataclasses.replace(run, command="tausid fit x", name="log"))
    assert files.is_used and files.is_finished
    read = files.read()
    assert (read.command, read.name, files.best_step) == ("tausid fit x", "log", result.best_step)
    assert {name: read.summary[name] for name in run.summary} == run.summary
    assert read.recipe == result.recipe
    linear = tausid.estimate_bla(record, nx=1).simulate(test)[9:, 0]
    assert read.linear_rmse == {"y": pytest.approx(np.sqrt(np.mean((test.y[9:, 0] - linear) ** 2)))}
    assert read.of_role("test")[0].score == run.of_role("test")[0].score


def test_what_is_no_run_is_refused(tmp_path):
    files = RunFolder(tmp_path)
    with pytest.raises(StorageError, match=r"result.json must be the summary of a finished run"):
        files.read()
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(StorageError, match="Expected `object`, got `array`"):
        files.read()
    with pytest.raises(StorageError, match=r"history.csv must be the history of a run"):
        files.read_history()
    (tmp_path / "history.csv").write_text("step,tau,x\n1,2,3\n")
    with pytest.raises(StorageError, match=r"history.csv must be the history of a run"):
        files.read_history()
    assert RunFolder(tmp_path / "nowhere").best_step is None


@pytest.mark.parametrize("name", ["status", "message", "steps", "best_step", "seconds"])
def test_a_summary_that_lacks_something_is_refused(name, tmp_path):
    whole = {"status": "completed", "message": "done", "steps": 3, "best_step": 2, "seconds": 1.5}
    (tmp_path / "result.json").write_text(json.dumps({**whole, "more": 1}))
    assert RunFolder(tmp_path).read_summary()["more"] == 1
    (tmp_path / "result.json").write_text(json.dumps({key: value for key, value in whole.items() if key != name}))
    with pytest.raises(StorageError, match=f"missing required field `{name}`"):
        RunFolder(tmp_path).read_summary()


def test_records_of_something_else_are_refused(tmp_path):
    from tausid.storage import write_arrays

    write_arrays(tmp_path / "records.safetensors", {}, kind="records", content={"experiments": [{"role": "test"}]})
    with pytest.raises(StorageError, match="must be as tausid writes it"):
        RunFolder(tmp_path).read_records()


def test_sums_are_sha256(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"1,2\n")
    assert (
        source_sums([str(tmp_path / "a.csv")])
        == source_sums([str(tmp_path)])
        == {"a.csv": hashlib.sha256(b"1,2\n").hexdigest()}
    )
