"""Every example runs to its end, with few steps; and so does the demo, with and without the real record.

All but one run inside this process, which has its imports already.
"""

from __future__ import annotations

import functools
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tausid.cli import demo, main
from tausid.data import datasets
from tausid.training import recipes

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def short_tanks():
    """Short records, made once."""
    simulate = datasets.simulate_tanks
    return functools.cache(lambda *, seed, samples=200: simulate(seed=seed, samples=min(samples, 200)))


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch, short_tanks):
    """What is looked at is whether all runs, not how well the models are: short fits of one structure."""
    monkeypatch.setattr(datasets, "simulate_tanks", short_tanks)
    less = {"trainer.iterations": 2, "holdout": "none"}
    for name, nx in {"default": 2, "greybox": "auto"}.items():
        make = getattr(recipes, name)
        monkeypatch.setattr(recipes, name, lambda make=make, nx=nx: make(nx=nx).change(less))
    monkeypatch.setitem(recipes.NAMES, "default", recipes.default)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path, capsys, monkeypatch):
    options = {
        "trained_tau": ["--steps", "10", "--seeds", "1"],
        "mpc": ["--samples", "4"],
        "ensemble": ["--members", "2", "--workers", "1"],
    }
    if path.stem == "mpc":
        pytest.importorskip("casadi")
    monkeypatch.setattr(sys, "argv", [str(path), *options.get(path.stem, [])])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_demo_in_a_process_of_its_own_uses_the_real_record(benchmark_folder, tmp_path):
    command = [sys.executable, "-m", "tausid.cli", "demo", "--out", tmp_path, "--iterations", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "This is the REAL record" in done.stdout
    assert "warn" not in done.stderr.lower()
    assert_demo_is_complete(done.stdout, tmp_path)


def test_the_demo_without_the_real_record_says_so(offline, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tausid", "demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed, errors = capfd.readouterr()
    loading, told, reason, fitting, *_ = printed.splitlines()
    assert loading.startswith("Loading ")
    assert told == "The real record is not available, so this demo uses the built-in SIMULATOR of the tanks."
    assert reason.endswith("TAUSID_DATA is not set; 127.0.0.1 could not be reached.")
    assert fitting.startswith("Fitting ")
    assert "warn" not in errors.lower()
    assert_demo_is_complete(printed, tmp_path)


def assert_demo_is_complete(printed: str, folder: Path) -> None:
    lines = printed.splitlines()
    stages = ("Loading", "Fitting", "Scoring", "Writing")
    assert [line.split()[0] for line in lines if line.startswith(stages)] == list(stages)
    assert "tau     " in printed
    assert "Ts/tau = " in printed
    names = ("model.safetensors", "simulation.csv", "simulation.png", "report.html")
    for line, name in zip(lines[-7:-3], names, strict=True):
        assert line.endswith(str(folder / name))
        assert (folder / name).stat().st_size > 1000
    assert lines[-3:-1] == ["", "Next, a model of your own data:"]
    assert lines[-1].endswith("tausid fit YOUR.csv --input INPUT_COLUMN --output OUTPUT_COLUMN --ts SECONDS")


def test_the_command_at_the_end_of_the_demo_is_one_that_the_shell_finds(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for called, expected in {".venv/bin/tausid": ".venv/bin/tausid", "cli/__main__.py": "tausid"}.items():
        monkeypatch.setattr(sys, "argv", [called])
        assert demo._program() == expected
    (tmp_path / "tausid").touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "tausid")])
    assert demo._program() == "tausid"
