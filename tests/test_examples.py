"""Every example runs to its end, with few steps; and so does the demo, with and without the real record."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path):
    few = ["--steps", "10"] + (["--seeds", "1"] if path.stem == "trained_tau" else [])
    done = subprocess.run([sys.executable, path, *few], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("real", [True, False])
def test_the_demo_says_which_data_it_used_and_what_it_wrote(real, tmp_path, request):
    if real:
        request.getfixturevalue("benchmark_folder")
    environment = {key: value for key, value in os.environ.items() if real or key != "TAUSID_DATA"}
    command = [sys.executable, "-m", "tausid.cli", "demo", "--out", tmp_path, "--max-steps", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert ("REAL cascaded tanks record" if real else "built-in SIMULATOR") in done.stdout
    assert "tau     " in done.stdout
    assert "Ts/tau = " in done.stdout
    for name in ("model.safetensors", "simulation.csv", "simulation.png"):
        assert str(tmp_path / name) in done.stdout
        assert (tmp_path / name).stat().st_size > 1000
