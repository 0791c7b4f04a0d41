"""Studies: what is run, what is written down, and what survives. The faults here are real ones: kill -9, full disks."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from problems import wiener_record
from studies import LONG, QUICK, TINY, fit_by_hand, start, steps_in, wait_for, workers_of, write_study

import tausid
from tausid import ConfigError, DataError, StorageError
from tausid.locks import hold
from tausid.results.runs import RunFolder
from tausid.study import StudyResults, executors, parse_spec, read_results, read_spec, run_study, study_counts
from tausid.study.spec import recipe_of
from tausid.study.store import JOURNAL, Store
from tausid.training.holdout import split_records
from tausid.training.processes import LocalWorkers


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, StudyResults]:
    spec = write_study(tmp_path_factory.mktemp("studies") / "small", QUICK, 'seed = [0, 1]\ntau = ["bla", "trained"]')
    return spec, run_study(spec, workers=2)


def test_a_study_runs_the_product_of_its_axes_and_each_run_is_a_plain_fit(finished):
    spec, results = finished
    assert [(row["tau"], row["seed"]) for row in sorted(results.rows, key=lambda r: (r["seed"], r["tau"]))] == [
        ("bla", 0), ("trained", 0), ("bla", 1), ("trained", 1),
    ]  # fmt: skip
    row = next(row for row in results.rows if row["run"] == "seed=1,tau=bla")
    by_hand = fit_by_hand(QUICK, tau="bla", seed=1)
    assert row["train_rmse"] == pytest.approx(tausid.evaluate(by_hand.model, wiener_record(200)).rmse["y"], rel=1e-5)
    (held_out,) = split_records(by_hand.recipe, wiener_record(200), validation=None, test=None).validation
    assert row["validation_rmse"] == pytest.approx(tausid.evaluate(by_hand.model, held_out).rmse["y"], rel=1e-5)
    model = tausid.load_model(spec.parent / "runs" / row["model"])
    assert model.provenance["seed"] == 1
    assert row["final_ts_over_tau"] == pytest.approx(0.5 / model.tau)


def test_results_are_a_csv_with_one_row_per_run(finished):
    spec, results = finished
    with (spec.parent / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    scores = {"train_rmse", "validation_rmse", "test_rmse"}
    assert {"final_ts_over_tau", "seed", "status", "steps", "seconds", "version", *scores} <= set(rows[0])
    assert [float(row["train_rmse"]) for row in rows] == [row["train_rmse"] for row in results.rows]
    assert {row["test_rmse"] for row in rows} == {""}  # there was no test record
    again = read_results(spec.parent)
    assert again.axes == ("tau",)
    assert [group["runs"] for group in again.summary(score="train_rmse")] == [2, 2]


def test_a_finished_run_is_never_run_again_and_a_study_may_grow(finished, tmp_path):
    spec, before = finished
    journal = (spec.parent / JOURNAL).read_bytes()
    assert run_study(spec, resume=True).rows == before.rows
    assert (spec.parent / JOURNAL).read_bytes() == journal
    spec.write_text(spec.read_text().replace("seed = [0, 1]", "seed = [0, 1, 2]"))
    after = run_study(spec, resume=True, executor=ThreadPoolExecutor(1))
    assert len(after.rows) == 6
    assert after.rows[:4] == before.rows
    assert (spec.parent / JOURNAL).read_bytes().startswith(journal)


def test_a_summary_has_the_numbers_of_its_runs():
    rows = tuple(
        {"tau": tau, "seed": seed, "status": "completed", "test_rmse": score}
        for tau, seed, score in [
            ("bla", 0, 0.2),
            ("bla", 1, 0.4),
            ("bla", 2, 0.3),
            ("bla", 3, None),
            ("trained", 0, 0.5),
        ]
    )
    bla, trained = StudyResults("x", rows).summary()
    assert (bla["runs"], bla["scored"], bla["best"], bla["worst"]) == (4, 3, 0.2, 0.4)
    assert bla["median"] == 0.3
    assert bla["mean"] == pytest.approx(0.3)
    assert bla["std"] == pytest.approx(0.1)
    assert trained["std"] == 0.0
    with pytest.raises(ConfigError, match="unknown column 'tua'.*Did you mean 'tau'"):
        StudyResults("x", rows).summary(["tua"])
    with pytest.raises(ConfigError, match="unknown score 'rmse'.*test_rmse"):
        StudyResults("x", rows).summary(score="rmse")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**TINY, "axis": {}}, "unknown key of a study 'axis'.*Did you mean 'axes'"),
        (
            {**TINY, "settings": {"trainer": {"hroizon": 3}}},
            "unknown setting of a study 'trainer.hroizon'.*Did you mean 'trainer.horizon'",
        ),
        ({**TINY, "settings": {"trainer.horizon": 3}}, "`trainer.horizon` is a setting of Adam.*recipes windows"),
        ({"axes": {"seed": [0]}}, "a study must name its data"),
        ({"data": "cts.csv", "axes": {"seed": [0]}}, "`data` must be @NAME, a table with the key train"),
        ({"data": {"train": "x.csv", "inptus": []}}, r"unknown key of \[data\] 'inptus'.*Did you mean 'inputs'"),
        ({"data": "@cascaded_tanks"}, "a study must have seeds"),
        ({**TINY, "axes": {"seed": 3}}, "axis `seed` must be a list of values, or a range"),
        ({**TINY, "axes": {"seed": {"rnage": [3]}}}, "unknown kind of range for axis `seed` 'rnage'.*'range'"),
        (
            {**TINY, "axes": {"seed": [0], "trianer": {"iterations": {"range": [1, 3]}}}},
            "unknown setting of a study 'trianer.iterations.*Did you mean 'trainer.iterations'",
        ),
        ({**TINY, "axes": {"seed": {"range": ["ab"]}}}, r"axis `seed`: range = \['ab'\] must be as in numpy"),
        ({**TINY, "axes": {"seed": [0, 0]}}, "runs of a study must differ; 'seed=0' comes twice"),
        ({**TINY, "settings": {"seed": 1}}, "`seed` must be set once"),
        ({**TINY, "settings": {"tau": 1.0, "ts_over_tau": 1.0}}, "a run must have one tau"),
        ({**TINY, "settings": {"tau": "blah"}}, "unknown tau 'blah'.*Did you mean 'bla'"),
        ({**TINY, "settings": {"ts_over_tau": -1.0}}, "`ts_over_tau` must be a positive number"),
        ({**TINY, "settings": {"recipe": "papre"}}, "unknown recipe 'papre'.*Did you mean 'paper'"),
        ({**TINY, "settings": {"nx": 0}}, "`nx` must be a whole number of at least 1"),
        ({**TINY, "settings": 3}, "`settings` must be a table"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_nearest_known_name(content, message):
    with pytest.raises(ConfigError, match=message):
        parse_spec(content, folder=Path())


def test_variants_are_choices_made_together():
    other = {"start": {"A": "-I"}, "trainer": {"barrier": "none"}}  # as TOML gives `start.A = "-I"`
    content = {**TINY, "settings": {"recipe": "paper"}, "variants": {"plain": {}, "A = -I": other}}
    runs = parse_spec(content, folder=Path()).runs()
    assert [run.name for run in runs] == ["plain,seed=0", "A_-I,seed=0"]
    assert runs[1].choices == {"recipe": "paper", "start.A": "-I", "trainer.barrier": "none", "seed": 0}


def test_settings_and_axes_are_dotted_keys_in_a_file(tmp_path):
    (tmp_path / "study.toml").write_text(
        'data = "@cascaded_tanks"\n[settings]\nnx = 2\nstructure.hidden = [8]\ntrainer.iterations = 5\n'
        'holdout = "none"\n'
        "[axes]\ntrainer.decay = { geomspace = [1e-8, 1e-6, 2], and = [0.0] }\nseed = [0]\n"
    )
    runs = read_spec(tmp_path / "study.toml").runs()
    assert [run.choices["trainer.decay"] for run in runs] == [1e-8, 1e-6, 0.0]
    recipe = recipe_of(runs[0].choices)
    assert (recipe.structure.nx, recipe.structure.hidden, recipe.holdout) == (2, (8,), None)
    assert recipe.trainer == tausid.LevenbergMarquardt(iterations=5, decay=1e-8)


def test_a_spec_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="must be a readable file"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("data = ")
    with pytest.raises(ConfigError, match="must be TOML"):
        read_spec(tmp_path / "bad.toml")


def test_data_that_cannot_be_had_are_refused_before_anything_is_written(tmp_path):
    spec = write_study(tmp_path / "s", QUICK, "seed = [0]")
    (spec.parent / "data.csv").unlink()
    with pytest.raises(DataError, match="data.csv"):
        run_study(spec)
    assert [path.name for path in spec.parent.iterdir()] == ["study.toml"]


def test_what_was_begun_is_neither_replaced_nor_changed_unasked(finished, tmp_path):
    spec, _ = finished
    with pytest.raises(ConfigError, match="holds one. Resume it with --resume"):
        run_study(spec)
    changed = tmp_path / "study.toml"
    text = spec.read_text().replace('"data.csv"', json.dumps(str(spec.parent / "data.csv")))
    changed.write_text(text.replace("horizon = 20", "horizon = 30"))
    with pytest.raises(ConfigError, match="`trainer.horizon` was 20 and is now 30"):
        run_study(changed, out=spec.parent, resume=True)
    (tmp_path / "results.csv").write_text("status\n")
    with pytest.raises(ConfigError, match="results.csv would be replaced"):
        run_study(changed)
    with pytest.raises(ConfigError, match="must have a folder"):
        run_study(read_spec(spec))
    with pytest.raises(ConfigError, match="`workers` must be 1 to 1024; got 0"):
        LocalWorkers(0)
    with pytest.raises(ConfigError, match="must hold a study; it has no"):
        study_counts(tmp_path)


def test_a_run_that_diverges_or_cannot_begin_is_recorded_and_the_study_goes_on(tmp_path):
    spec = write_study(tmp_path / "s", QUICK, "seed = [0]")
    spec.write_text(
        spec.read_text()
        + "[variants.good]\n[variants.diverging]\ntrainer.learning_rate = 1e30\ntrainer.max_recoveries = 0\n"
        "[variants.long]\ntrainer.horizon = 190\n"
    )
    results = run_study(spec, executor=ThreadPoolExecutor(1))
    status = {row["variant"]: row for row in results.rows}
    assert status["good"]["status"] == "completed"
    assert status["diverging"]["status"] == "diverged"
    assert "diverged" in status["diverging"]["message"]
    assert status["long"]["status"] == "failed"
    assert "must have at least" in status["long"]["message"]
    assert study_counts(spec.parent).failed == 1


def test_a_killed_worker_costs_nothing_its_run_goes_on_from_its_checkpoint(tmp_path):
    spec = write_study(tmp_path / "s", LONG, "seed = [3]")
    checkpoint = spec.parent / "runs" / "seed=3" / "checkpoint.safetensors"
    with start(spec, "--workers", "1") as process:
        wait_for(lambda: steps_in(checkpoint) > 0)
        (worker,) = workers_of(process)
        os.kill(worker, signal.SIGKILL)
        reached = steps_in(checkpoint)
        assert reached < LONG["trainer.steps"]  # it was in the middle of its work
        wait_for(lambda: workers_of(process) not in ([], [worker]))
        while process.poll() is None:  # never back to the beginning
            assert steps_in(checkpoint) >= reached
            time.sleep(0.05)
    assert process.returncode == 0, process.stderr.read()
    (row,) = read_results(spec.parent).rows
    by_hand = fit_by_hand(LONG, seed=3)
    killed = tausid.load_model(spec.parent / "runs" / row["model"])
    np.testing.assert_array_equal(killed.state_space.A, by_hand.model.state_space.A)


def test_a_killed_coordinator_loses_no_run_and_repeats_none(tmp_path):
    spec = write_study(tmp_path / "s", {**LONG, "trainer.steps": 500}, "seed = [0, 1, 2]")
    with start(spec, "--workers", "2") as process:
        wait_for(lambda: (spec.parent / "results.csv").exists() and read_results(spec.parent).rows)
        workers = workers_of(process)
        process.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))  # no orphan goes on
    before = read_results(spec.parent).rows
    assert 0 < len(before) < 3
    models = {row["model"]: (spec.parent / "runs" / row["model"]).stat().st_mtime_ns for row in before}
    results = run_study(spec, resume=True, executor=ThreadPoolExecutor(1))
    assert sorted(row["seed"] for row in results.rows) == [0, 1, 2]
    scores = {row["seed"]: (row["train_rmse"], row["seconds"]) for row in results.rows}
    assert {row["seed"]: scores[row["seed"]] for row in before} == {
        r["seed"]: (r["train_rmse"], r["seconds"]) for r in before
    }
    assert {model: (spec.parent / "runs" / model).stat().st_mtime_ns for model in models} == models
    assert {row["status"] for row in results.rows} == {"completed"}


def test_a_study_is_run_by_one_process_and_ctrl_c_stops_it_cleanly_and_says_how_to_go_on(tmp_path):
    spec = write_study(tmp_path / "s", LONG, "seed = [0]")
    checkpoint = spec.parent / "runs" / "seed=0" / "checkpoint.safetensors"
    with start(spec, "--workers", "1") as process:
        wait_for(lambda: steps_in(checkpoint) > 0)
        with pytest.raises(ConfigError, match="another process is running the one in"):
            run_study(spec, resume=True)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "finished runs are kept. Resume with: tausid study run" in errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    counts = study_counts(spec.parent)
    assert (counts.waiting, counts.running, counts.finished) == (1, 0, 0)
    reached = steps_in(checkpoint)
    assert 0 < reached < LONG["trainer.steps"]


def test_a_folder_may_be_renamed_and_a_study_may_shrink(tmp_path):
    runs = parse_spec({**TINY, "axes": {"seed": [0, 1, 2]}}, folder=tmp_path).runs()
    store = Store(tmp_path / JOURNAL, "before")
    store.begin(runs, {})
    store.finish(store.take(), {"run": "seed=0", "status": "completed"})
    again = Store(tmp_path / JOURNAL, "after")
    again.begin(runs[1:2], {})
    assert list(again.outcomes()) == ["seed=0"]  # what is finished stays
    assert again.take().name == "seed=1"
    assert again.take() is None  # and what is not asked for any more is not run


def test_a_database_serves_instead_of_a_journal(tmp_path):
    spec = write_study(tmp_path / "s", QUICK, "seed = [0, 1]")
    storage = f"sqlite:///{tmp_path}/studies.db"
    results = run_study(spec, storage=storage, executor=ThreadPoolExecutor(1))
    assert [row["seed"] for row in results.rows] == [0, 1]
    assert study_counts(spec.parent, storage=storage).finished == 2
    with pytest.raises(ConfigError, match="must hold the study 'other'"):
        study_counts(tmp_path / "other", storage=storage)
    with pytest.raises(StorageError, match="must be writable"):
        run_study(spec, storage=f"sqlite:///{tmp_path}/none/studies.db", resume=True)


def test_in_a_database_the_runs_of_a_living_coordinator_are_left_to_it(tmp_path):
    runs = parse_spec({**TINY, "axes": {"seed": [0, 1]}}, folder=tmp_path).runs()
    url = f"sqlite:///{tmp_path}/studies.db"
    first, second = Store(url, "s"), Store(url, "s")
    first.give_sign()
    first.begin(runs, {})
    first.take()
    second.begin(runs, {})
    assert second.take().name == "seed=1"
    assert second.take() is None
    assert Store(url, "s").counts().running == 2


@pytest.mark.slow
def test_a_dask_cluster_computes_a_study_and_survives_a_killed_worker(tmp_path):
    distributed = pytest.importorskip("distributed")
    spec = write_study(tmp_path / "s", {**LONG, "trainer.steps": 2000}, "seed = [0, 1]")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "protocol": "tcp", "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        victim = next(iter(cluster.workers.values())).pid
        killed: list[int] = []

        def kill_one(update) -> None:
            if not killed and (spec.parent / "runs" / "seed=0" / "checkpoint.safetensors").exists():
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

        results = run_study(spec, scheduler=cluster.scheduler_address, report=kill_one)
    assert killed
    assert [(row["seed"], row["status"]) for row in results.rows] == [(0, "completed"), (1, "completed")]
    by_hand = fit_by_hand({**LONG, "trainer.steps": 2000}, seed=0)
    model = tausid.load_model(spec.parent / "runs" / results.rows[0]["model"])
    np.testing.assert_allclose(model.state_space.A, by_hand.model.state_space.A, rtol=1e-6)


@pytest.mark.slow
def test_a_dask_cluster_may_have_no_workers_yet_and_ctrl_c_does_not_wait_for_them(tmp_path):
    distributed = pytest.importorskip("distributed")
    spec = write_study(tmp_path / "s", {**LONG, "trainer.steps": 10**6, "trainer.patience": 10**6}, "seed = [0]")
    folder = spec.parent / "runs" / "seed=0"
    options = {"n_workers": 0, "threads_per_worker": 1, "processes": True, "protocol": "tcp", "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        start(spec, "--scheduler", cluster.scheduler_address) as process,
    ):
        assert "waiting for workers" in process.stderr.readline()
        cluster.scale(1)
        wait_for((folder / "checkpoint.safetensors").exists)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
        with hold(RunFolder(folder).lock_file, seconds=0.0) as held:
            assert not held  # the worker is still at it: who resumes now must not write there
    assert process.returncode == 130
    assert "finished runs are kept. Resume with: tausid study run" in errors
    assert "Traceback" not in errors
    counts = study_counts(spec.parent)
    assert (counts.waiting, counts.running, counts.finished) == (1, 0, 0)


def test_a_scheduler_that_does_not_answer_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "SECONDS_TO_CONNECT", 0.5)
    spec = write_study(tmp_path / "s", QUICK, "seed = [0]")
    with pytest.raises(ConfigError, match="must be the address of a running Dask scheduler"):
        run_study(spec, scheduler="tcp://127.0.0.1:9")


def test_runs_may_be_ensembles_and_have_known_equations(tmp_path):
    spec = write_study(tmp_path, {**QUICK, "tau": 2.0, "ensemble": 2, "workers": 1}, "seed = [0]")
    (outcome,) = run_study(spec, executor=ThreadPoolExecutor(1)).rows
    assert outcome["status"] == "completed"
    (model,) = tmp_path.rglob("model.safetensors")
    assert [member.provenance["seed"] for member in tausid.load_model(model).members] in ([0, 1], [1, 0])
    content = {**TINY, "settings": {"physics": "CascadedTanks", "structure.correction": "network"}}
    assert parse_spec(content, folder=Path()).runs()[0].choices["physics"] == "CascadedTanks"
    for wrong, message in (({"physics": "Tanks"}, "unknown physics"), ({"ensemble": 1}, "`ensemble` must be")):
        with pytest.raises(ConfigError, match=message):
            parse_spec({**TINY, "settings": wrong}, folder=Path()).runs()
