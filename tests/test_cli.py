"""The command line as a user meets it: real processes, real files."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import commands
import numpy as np
import pytest
from problems import wiener_record

import tausid
from tausid.cli import main
from tausid.training import fitting

TAUSID = [sys.executable, "-c", "from tausid.cli import main; main()"]
COLUMNS = ["--input", "u", "--output", "y", "--ts", "0.5"]
UNITS = ["--unit", "u=V", "--unit", "y=mm"]
SMALL = ["--tau", "2", "--nx", "2", "--recipe", "windows", "--hidden", "8",
         "--set", "trainer.horizon=20", "--set", "trainer.batch=16",
         "--set", "trainer.validate_every=20"]  # fmt: skip


def tausid_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own."""
    return subprocess.run([*TAUSID, *map(str, arguments)], capture_output=True, text=True, timeout=300)


@dataclass(frozen=True)
class Outcome:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def tausid_command(capfd, monkeypatch) -> Callable[..., Outcome]:
    """The program inside this process, which has its imports and compilations already."""

    def call(*arguments: object, cwd: Path | None = None) -> Outcome:
        if cwd is not None:
            monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["tausid", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Outcome(int(ended.value.code or 0), *capfd.readouterr())

    return call


def write_csv(path: Path, samples: int = 200, *, seed: int = 0, header: str = "u,y") -> Path:
    record = wiener_record(samples, seed=seed)
    rows = "".join(f"{u!r},{y!r}\n" for u, y in zip(record.u[:, 0].tolist(), record.y[:, 0].tolist(), strict=True))
    path.write_text(f"{header}\n{rows}")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """One small fit that several tests look at."""
    folder = tmp_path_factory.mktemp("run")
    data = write_csv(folder / "train.csv")
    test = write_csv(folder / "test.csv", seed=4)
    done = tausid_process(
        "fit",
        data,
        *COLUMNS,
        *UNITS,
        *SMALL,
        "--set",
        "trainer.steps=60",
        "--test",
        test,
        "--out",
        folder / "a",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    return {"folder": folder, "data": data, "test": test, "json": json.loads(done.stdout), "stderr": done.stderr}


def test_fit_prints_one_json_object_with_the_promised_keys(run):
    summary = run["json"]
    for key in ("rmse", "nrmse", "fit_percent"):
        assert set(summary[key]) == {"y"}
        assert set(summary["test"][key]) == {"y"}
    assert summary["n_skipped"] == 5
    assert (summary["status"], summary["steps"], summary["seed"]) == ("completed", 60, 0)
    assert summary["tau"] == 2.0
    assert summary["ts_over_tau"] == 0.25
    assert summary["seconds"] > 0
    assert Path(summary["model"]).is_file()


def test_fit_writes_a_report_that_can_be_made_again(tausid_command, run, tmp_path):
    page = run["folder"] / "a" / "report.html"
    assert run["json"]["report"] == str(page)
    text = page.read_text()
    for words in ("sha256 of train.csv", "sha256 of test.csv", "tausid fit", "--set trainer.steps=60"):
        assert words in text
    done = tausid_command("report", run["folder"] / "a", "--out", tmp_path / "again.html")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "again.html"))
    assert (tmp_path / "again.html").read_text() == text


def test_a_fit_without_report_leaves_none_and_one_without_jinja2_says_why(tausid_command, run, tmp_path, monkeypatch):
    few = [run["data"], *COLUMNS, *SMALL, "--set", "trainer.steps=1"]
    assert tausid_command("fit", *few, "--out", tmp_path / "a", "--no-report").returncode == 0
    assert not (tmp_path / "a" / "report.html").exists()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    (tmp_path / "a" / "result.json").unlink()
    done = tausid_command("fit", *few, "--out", tmp_path / "a", "--resume")
    assert done.returncode == 0
    assert "note: no report was written: a report needs jinja2" in done.stderr
    assert (tmp_path / "a" / "result.json").exists()


def test_progress_goes_to_standard_error_in_plain_lines(run):
    assert "training begins" in run["stderr"]
    assert "step 60/60, held out" in run["stderr"]
    assert "0 s left" in run["stderr"]


def test_evaluate_gives_the_score_that_fit_reported(tausid_command, run):
    done = tausid_command("evaluate", run["json"]["model"], run["test"], *COLUMNS, "--json")
    scores = json.loads(done.stdout)
    assert scores["rmse"] == run["json"]["test"]["rmse"]
    assert scores["n_skipped"] == 5
    skipped = tausid_command("evaluate", run["json"]["model"], run["test"], *COLUMNS, "--skip", 50, "--json")
    assert json.loads(skipped.stdout)["n_skipped"] == 50
    table = tausid_command("evaluate", run["json"]["model"], run["test"], *COLUMNS).stdout
    assert f"{scores['rmse']['y']:.4g} mm" in table
    assert "skipped" in table


def test_simulate_writes_what_python_simulates(tausid_command, run):
    out = run["folder"] / "deep" / "sim.csv"
    done = tausid_command("simulate", run["json"]["model"], run["test"], *COLUMNS, "--out", out)
    assert done.returncode == 0
    assert str(out) in done.stdout
    table = np.genfromtxt(out, delimiter=",", names=True)
    assert table.dtype.names == ("t", "u", "y", "y_simulated")
    record = tausid.read_csv(run["test"], inputs=["u"], outputs=["y"], ts=0.5)
    expected = tausid.load_model(run["json"]["model"]).simulate(record).y[:, 0]
    np.testing.assert_array_equal(table["y_simulated"], expected)
    finer = tausid_command("simulate", run["json"]["model"], run["test"], *COLUMNS, "--dt", 0.1, "--out", out)
    assert finer.returncode == 0
    assert np.genfromtxt(out, delimiter=",", names=True).dtype.names == ("t", "y_simulated")


def test_info_says_what_a_model_is(tausid_command, run):
    content = json.loads(tausid_command("info", run["json"]["model"], "--json").stdout)
    assert (content["nx"], content["tau"], content["ts"]) == (2, 2.0, 0.5)
    assert content["provenance"]["recipe"]["trainer"]["horizon"] == 20
    text = tausid_command("info", run["json"]["model"]).stdout
    assert "Ts/tau = 0.25; given, fixed" in text


def test_info_says_which_engine_computes_and_why(tausid_command, run, monkeypatch):
    engines = json.loads(tausid_command("info", "--engines", "--json").stdout)
    assert set(engines) == {"simulation", "auto", "fused", "scan"}
    monkeypatch.setenv("TAUSID_NO_FUSED", "1")
    text = tausid_command("info", run["json"]["model"], "--engines").stdout
    assert "scan, because fused is not available: the environment sets TAUSID_NO_FUSED" in text


def test_a_fit_says_once_that_the_compiled_engine_is_missing(tausid_command, run, tmp_path, monkeypatch):
    monkeypatch.setenv("TAUSID_NO_FUSED", "1")
    fitting._say_once_if_missing.cache_clear()  # another test of this process may have heard it
    arguments = ["fit", run["data"], *COLUMNS, *SMALL, "--set", "trainer.steps=1", "--out", tmp_path]
    first = tausid_command(*arguments).stderr
    again = tausid_command(*arguments, "--resume").stderr
    note = "note: training uses JAX and is slower, as the compiled engine is not available: the environment sets"
    assert first.count(note) == 1
    assert note not in again


def test_a_run_is_neither_overwritten_nor_lost(tausid_command, run):
    arguments = [
        "fit",
        run["data"],
        *COLUMNS,
        *UNITS,
        *SMALL,
        "--set",
        "trainer.steps=60",
        "--out",
        run["folder"] / "a",
    ]
    refused = tausid_command(*arguments)
    assert refused.returncode == 2
    assert "`--out` must be a folder without a run" in refused.stderr
    before = (run["folder"] / "a" / "model.safetensors").read_bytes()
    mistaken = tausid_command(*arguments, "--overwrite", "--recipe", "typo")
    assert mistaken.returncode == 2
    assert (run["folder"] / "a" / "model.safetensors").read_bytes() == before
    again = tausid_command(*arguments, "--resume")
    assert again.returncode == 0, again.stderr
    assert (run["folder"] / "a" / "model.safetensors").read_bytes() == before


def write_mimo(path: Path, samples: int, *, seed: int) -> Path:
    """Two inputs and three outputs in a file with its own, jittered, time."""
    a, b = wiener_record(samples, seed=seed), wiener_record(samples, seed=seed + 50)
    t = 100.0 * seed + a.t + 0.05 * np.random.default_rng(seed).random(samples)
    table = np.hstack([t[:, None], a.u, b.u, a.y, b.y, a.y + b.y])
    np.savetxt(path, table, delimiter=",", header="t,pump,valve,level,flow,sum", comments="")
    return path


MIMO = [
    "--input",
    "pump",
    "--input",
    "valve",
    "--output",
    "level",
    "--output",
    "flow",
    "--output",
    "sum",
    "--time",
    "t",
]


def test_two_inputs_three_outputs_and_four_records_in_one_command(tausid_command, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for seed, samples in enumerate((110, 90, 120, 80)):
        write_mimo(folder / f"run{seed}.csv", samples, seed=seed)
    held_out = write_mimo(tmp_path / "held_out.csv", 60, seed=8)
    settings = ["--nx", 3, "--recipe", "windows", *SMALL[6:], "--set", "trainer.steps=40"]  # with an estimated tau
    done = tausid_command(
        "fit", folder, *MIMO, *settings, "--validation", held_out, "--test", held_out, "--out", tmp_path / "r", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert list(summary["records"]) == ["run0", "run1", "run2", "run3"]
    assert set(summary["pooled"]["rmse"]) == {"level", "flow", "sum"}
    squares = sum(r["n_scored"] * r["rmse"]["flow"] ** 2 for r in summary["records"].values())
    assert summary["pooled"]["rmse"]["flow"] == pytest.approx(
        np.sqrt(squares / summary["pooled"]["n_scored"]), rel=1e-9
    )
    assert summary["pooled"]["n_skipped"] == 20
    assert summary["test"]["record"] == "held_out"
    assert "records" not in summary["test"]
    files = sorted(folder.iterdir())
    table = tausid_command("evaluate", summary["model"], *files[:2], *MIMO, "--x0", "refine").stdout
    assert [row in table for row in ("run0", "run1", "all")] == [True] * 3
    refined = tausid_command("evaluate", summary["model"], files[0], *MIMO, "--x0", "refine", "--json")
    content = json.loads(refined.stdout)
    assert (content["n_initial"], content["initial_state"]) == (25, "refine")


def test_records_of_one_name_are_told_apart(tausid_command, run, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_csv(tmp_path / name / "x.csv", 120, seed=ord(name))
    done = tausid_command("evaluate", run["json"]["model"], tmp_path / "a", tmp_path / "b", *COLUMNS, "--json")
    assert list(json.loads(done.stdout)["records"]) == [str(tmp_path / name / "x.csv") for name in ("a", "b")]


def test_tau_is_estimated_from_several_records(tausid_command, run):
    done = tausid_command("tau", run["data"], run["test"], *COLUMNS, "--nx", 2, "--json")
    records = [tausid.read_csv(run[key], inputs=["u"], outputs=["y"], ts=0.5) for key in ("data", "test")]
    assert json.loads(done.stdout)["tau"] == tausid.estimate_tau(records, nx=2).tau


def test_simulate_says_how_the_initial_state_was_found(tausid_command, run, tmp_path):
    arguments = ["simulate", run["json"]["model"], run["test"], *COLUMNS, "--out", tmp_path / "s.csv"]
    assert "the first 5 for the initial state (encoder)" in tausid_command(*arguments).stdout
    assert "the first 25 for the initial state (refine)" in tausid_command(*arguments, "--x0", "refine").stdout


def test_without_out_a_new_folder_is_made(tausid_command, run, tmp_path):
    done = tausid_command("fit", run["data"], *COLUMNS, *SMALL, "--set", "trainer.steps=1", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["model"] == str(Path("runs/train-seed0/model.safetensors"))
    assert "test" not in json.loads(done.stdout)
    assert (tmp_path / "runs" / "train-seed0" / "history.csv").is_file()


def test_test_columns_can_come_from_the_same_file(tausid_command, tmp_path):
    a, b = wiener_record(120), wiener_record(120, seed=3)
    table = np.hstack([a.u, a.y, b.u, b.y])
    np.savetxt(tmp_path / "d.csv", table, delimiter=",", header="uEst,yEst,uVal,yVal", comments="")
    done = tausid_command(
        "fit", tmp_path / "d.csv", "--input", "uEst", "--output", "yEst", "--ts", 0.5, *SMALL,
        "--set", "trainer.steps=20",
        "--test-input", "uVal", "--test-output", "yVal", "--protocol", "paper", "--out", tmp_path / "r", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert set(summary["test"]["rmse"]) == {"yEst"}  # the same channel, by its other name
    assert summary["protocol"] == "paper"


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume(run, tmp_path):
    arguments = ["fit", run["data"], *COLUMNS, *SMALL, "--set", "trainer.steps=200000", "--out", str(tmp_path / "r")]
    process = subprocess.Popen(
        [*TAUSID, *map(str, arguments)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "r" / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "resume with: tausid fit" in stderr
    assert stderr.rstrip().endswith("--resume")
    assert "Traceback" not in stderr


def test_help_names_the_commands():
    done = tausid_process("--help")
    assert done.returncode == 0
    for command in ("fit", "simulate", "evaluate", "info", "datasets"):
        assert command in done.stdout


def test_help_of_a_fit_fits_on_two_screens(tausid_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = tausid_command("fit", "--help").stdout.splitlines()
    assert any("--iterations" in line for line in lines)
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 80


def test_datasets_are_listed(tausid_command):
    listed = tausid_command("datasets", "list").stdout
    assert all(f"@{name}" in listed for name in ("cascaded_tanks", "emps", "silverbox", "simulated_tanks", "ph"))


def test_simulated_datasets_are_known_and_have_no_files(tausid_command):
    done = tausid_command("datasets", "get", "@duffing")
    assert (done.returncode, done.stdout) == (0, "")
    assert "note: @duffing is simulated and has no files" in done.stderr
    found = json.loads(tausid_command("tau", "@duffing", "--nx", 2, "--json").stdout)
    # A swing's tau is 1 / omega, and this one is up to a quarter faster than it would be without hardening.
    assert 0.8 < found["tau"] * math.sqrt(2e4 / 0.1) < 1.0


def test_datasets_are_written_as_files_that_read_back_the_same(tmp_path):
    paths = commands.printed("datasets", "get", "ph", "--out", tmp_path / "ph").split()
    assert [Path(path).name for path in paths] == ["train.csv", "test.csv", "steps.csv"]
    data = tausid.datasets.load("ph")
    for path, record in zip(paths, (data.train, *data.tests), strict=True):
        again = tausid.read(path, inputs=["base"], outputs=["pH"], time="time")
        assert np.array_equal(again.y, record.y) and np.array_equal(again.u, record.u)
        assert again.t == pytest.approx(record.t)
        assert (again.input_units, again.output_units) == (record.input_units, record.output_units)


def test_known_datasets_are_fitted_and_their_test_part_scored(tausid_command, tmp_path):
    shortcuts = ["--iterations", 1, "--hidden", "3,2", "--activation", "tanh", "--set", "holdout=none"]
    done = tausid_command(
        "fit", "@simulated_tanks", "--tau", 74, "--nx", 2, *shortcuts, "--out", tmp_path, "--no-report", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    evaluated = json.loads(tausid_command("evaluate", summary["model"], "@simulated_tanks", "--json").stdout)
    assert evaluated["rmse"] == summary["test"]["rmse"]
    recipe = tausid.load_model(summary["model"]).provenance["recipe"]  # shortcuts are settings of the recipe
    assert recipe["structure"]["hidden"] == [3, 2]
    assert recipe["structure"]["activation"] == "tanh"
    assert (recipe["trainer"]["kind"], recipe["trainer"]["iterations"]) == ("levenberg-marquardt", 1)
    assert recipe["holdout"] is None


def test_the_official_score_has_its_window_and_nothing_else(tausid_command, run, benchmark_folder, tmp_path):
    own = tausid.load_model(run["json"]["model"])
    model = replace(own, output_units=("V",)).save(tmp_path / "volts.safetensors")
    done = tausid_command("evaluate", "--official", run["json"]["model"], "@cascaded_tanks")
    assert done.returncode == 2 and "must be in mm, as in training; it is in V" in done.stderr
    scores = json.loads(tausid_command("evaluate", "--official", model, "@cascaded_tanks", "--json").stdout)
    assert (scores["n_skipped"], scores["n_initial"], scores["n_scored"]) == (50, 50, 974)
    for words, told in (
        (["@linear"], "dataset 'linear' has none. Score it with `evaluate`"),
        ([run["test"], *COLUMNS], "`--official` is for benchmarks, @NAME"),
        (["@cascaded_tanks", "--skip", 5], "`--skip` must not come with --official"),
        (["@cascaded_tanks", "--prepare", "decimate 2"], "`--prepare` must not come with --official"),
    ):
        done = tausid_command("evaluate", "--official", model, *words)
        assert done.returncode == 2 and told in done.stderr


def test_the_files_of_a_known_dataset_are_found(tausid_command, benchmark_folder):
    path = tausid_command("datasets", "get", "cascaded_tanks").stdout.strip()
    assert Path(path).parent == benchmark_folder / "cascaded_tanks"


def test_tau_is_estimated_and_explained(tausid_command, run, tmp_path):
    done = tausid_command("tau", run["data"], *COLUMNS, "--nx", 2, "--json", "--plot", tmp_path / "p" / "tau.png")
    content = json.loads(done.stdout)
    assert {"tau", "tau_per_state", "ts_over_tau", "method", "bla", "spread"} <= set(content)
    assert content["ts_over_tau"] == pytest.approx(0.5 / content["tau"])
    assert content["bla"]["order"] == 2
    assert content["bla"]["rmse"].keys() == {"y"}
    assert len(content["bla"]["poles"]) == 2
    assert (tmp_path / "p" / "tau.png").read_bytes().startswith(b"\x89PNG")
    expected = tausid.estimate_tau(tausid.read_csv(run["data"], inputs=["u"], outputs=["y"], ts=0.5), nx=2)
    assert content["tau"] == expected.tau
    text = tausid_command("tau", run["data"], *COLUMNS).stdout
    assert "Ts/tau" in text and "time constants" in text


def test_tau_can_be_cross_validated_from_the_command_line(tausid_command, run, tmp_path):
    settings = [
        "structure.hidden=[8]",
        *(f"trainer.{pair}" for pair in ("horizon=20", "batch=8", "steps=20", "validate_every=20")),
    ]
    done = tausid_command(
        "tau", run["data"], *COLUMNS, "--method", "cv", "--search", "grid", "--trials", 1, "--nx", 2,
        *(word for setting in settings for word in ("--set", setting)), "--out", tmp_path, "--json",
        "--plot", tmp_path / "cv.svg",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["method"] == "cv"
    assert len(content["trials"]) == 1
    assert (tmp_path / "cv.svg").is_file()


def test_the_tanks_linear_approximation_agrees_with_the_paper(tausid_command, benchmark_folder):
    data = benchmark_folder / "cascaded_tanks" / "dataBenchmark.csv"
    done = tausid_command("tau", data, "--input", "uEst", "--output", "yEst", "--ts", 4, "--nx", 2, "--json")
    content = json.loads(done.stdout)
    assert content["ts_over_tau"] == pytest.approx(0.054, rel=0.05)  # the paper's figure, to its two digits
    assert content["bla"]["rmse"]["yEst"] < 0.54


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tau", "d.csv", *COLUMNS, "--nx", "two"], "`--nx` must be a positive whole number or auto; got 'two'"),
        (["tau", "d.csv", *COLUMNS, "--nx", "0"], '`nx` must be a positive integer or "auto"; got 0'),
        (["tau", "d.csv", *COLUMNS, "--nx", "90"], "records must be long enough for the order"),
        (["tau", "d.csv", *COLUMNS, "--method", "guess"], "unknown method 'guess'"),
        (["tau", "d.csv", *COLUMNS, "--plot", "tau.gif"], "a picture must end in .png, .svg, .pdf; got 'tau.gif'"),
        (["tau", "d.csv", *COLUMNS, "--trials", "4"], "method 'bla' must have no further options; got trials"),
        (
            ["fit", "d.csv", *COLUMNS, "--set", "nx=3"],
            "`--set` is for settings of the recipe; 'nx' has an option. Use --nx",
        ),
        (["fit", "d.csv", *COLUMNS, "--skip", "500"], "measured outputs after the 500 skipped samples"),
        (["fit", "@cascaded_tanks", "--ts", "4"], "`ts` is for files; @cascaded_tanks is a dataset"),
        (["evaluate", "d.csv", "d.csv", *COLUMNS, "--part", "train"], "must be a complete safetensors file"),
        (["tau", "@cascaded_tanks", "--input", "u"], "`input` is for files"),
        (["fit", "d.csv", *COLUMNS, "--tau", "blah"], "unknown tau 'blah'"),
        (["fit", "none.csv", *COLUMNS, "--tau", "2"], "file 'none.csv' must exist"),
        (
            ["fit", "empty", *COLUMNS, "--tau", "2"],
            "folder 'empty' must hold data files (.csv, .txt, .tsv, .dat, .npz, .npy, .xlsx, .mat, .h5,",
        ),
        (["fit", "@cascaded_tanks", "d.csv"], "a dataset by name must be the only data; got @cascaded_tanks d.csv"),
        (
            ["fit", "@cascaded_tanks", "--validation", "d.csv"],
            "`validation` is for files; @cascaded_tanks is a dataset",
        ),
        (["fit", "d.csv", "--input", "w", "--output", "y", "--ts", "1", "--tau", "2"], "unknown column 'w'"),
        (["fit", "d.csv", "--ts", "1", "--tau", "2"], "none was named, and 'd.csv' names none itself. It has u, y"),
        (
            ["fit", "d.csv", "--input", "u", "--output", "y", "--tau", "2"],
            "either the sampling time `ts` or time stamps",
        ),
        (
            ["fit", "d.csv", "--input", "u", "--output", "y", "--ts", "0", "--tau", "2"],
            "`ts` must be a positive number",
        ),
        (["fit", "d.csv", *COLUMNS, "--tau", "0"], "`tau` must be a positive number of seconds"),
        (["fit", "d.csv", *COLUMNS, "--tau", "7fast"], "`--tau` must be bla, spectrum, trained, or seconds"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--nx", "0"], "`nx` must be a whole number of at least 1; got 0"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--recipe", "papr"], "unknown recipe 'papr'"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--protocol", "paper"], "protocol 'paper' must have a test record"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--unit", "u=V"], "unit for every channel; 'y' has none"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--set", "horizon"], "`--set` must be KEY=VALUE; got 'horizon'"),
        (
            ["fit", "d.csv", *COLUMNS, "--set", "trainer.iteratoins=3"],
            "Did you mean 'trainer.iterations'?",
        ),
        (
            ["fit", "d.csv", *COLUMNS, "--set", "trainer.horizon=3"],
            "`trainer.horizon` is a setting of Adam, which the recipes windows and paper have",
        ),
        (
            ["fit", "d.csv", *COLUMNS, "--recipe", "windows", "--iterations", "3"],
            "`trainer.iterations` is a setting of LevenbergMarquardt, which the recipe default has",
        ),
        (["fit", "d.csv", *COLUMNS, "--hidden", "many"], "`hidden` must be"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--resume"], "`--resume` needs the folder of the run"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--resume", "--overwrite"], "cannot be combined"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--out", "d.csv/run"], "must be writable; writing failed"),
        (["fit", "d.csv", *COLUMNS, "--tau", "2", "--test-input", "u"], "must include an output"),
        (["fit", "@tanks", "--tau", "2"], "unknown dataset 'tanks'"),
        (["evaluate", "d.csv", "d.csv", *COLUMNS], "truncated, corrupted or something else"),
        (["evaluate", "none", "d.csv", *COLUMNS], "model file none must exist"),
        (["info", "none"], "model file none must exist"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_message(tausid_command, arguments, message, tmp_path):
    write_csv(tmp_path / "d.csv", 200)
    (tmp_path / "empty").mkdir()
    done = tausid_command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
