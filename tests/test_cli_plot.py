"""`tausid plot`: pictures from files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from problems import wiener_record
from typer.testing import CliRunner

import tausid
from tausid.cli.commands import app
from tausid.cli.plot import name_models

COLUMNS = ("--input", "u", "--output", "y", "--ts", "0.5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, and two models of it."""
    folder = tmp_path_factory.mktemp("plot")
    record = wiener_record(200)
    np.savetxt(folder / "log.csv", np.hstack([record.u, record.y]), delimiter=",", header="u,y", comments="")
    for seed in (0, 1):
        result = tausid.fit(record, tau=2.0, seed=seed, nx=2, hidden=[4], horizon=20, max_steps=2, progress=None)
        result.model.save(folder / f"seed{seed}" / "model.safetensors")
    return folder


def run(*arguments: object) -> str:
    """What a command prints; an error of it is raised here."""
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False).stdout


def test_time_scaling_is_drawn_from_a_file(folder):
    out = folder / "figure1.png"
    assert str(out) in run("plot", "scaling", folder / "log.csv", "--tau", 4, "--out", out, *COLUMNS)
    assert out.read_bytes().startswith(b"\x89PNG")


def test_simulations_of_several_models_are_drawn_with_their_names(folder):
    models = [folder / "seed0", folder / "seed1" / "model.safetensors"]
    out = folder / "figure3.svg"
    data = ("--data", folder / "log.csv", *COLUMNS)
    run("plot", "simulation", *models, *data, "--out", out)
    assert "seed1 (RMSE" in out.read_text()
    run("plot", "simulation", *models, *data, "--out", out, "--label", "one", "--label", "two")
    assert "two (RMSE" in out.read_text()
    run("plot", "simulation", models[0], *data, "--out", out)
    assert "simulated" in out.read_text()


def test_names_of_models_are_as_short_as_they_can_be():
    files = [Path("runs/a/model.safetensors"), Path("runs/b/model.safetensors")]
    assert name_models(files, None) == ["a", "b"]
    assert name_models([Path("x/a"), Path("y/a")], None) == ["x/a", "y/a"]
    assert name_models([Path("runs/a"), Path("runs/b")], None) == ["a", "b"]
    with pytest.raises(tausid.ConfigError, match="must be different files"):
        name_models([Path("a"), Path("a")], None)
    with pytest.raises(tausid.ConfigError, match="`--label` must be given once per model"):
        name_models([Path("a"), Path("b")], ["one"])


def test_a_wrong_ending_is_refused_before_anything_is_computed(folder):
    with pytest.raises(tausid.ConfigError, match="a picture must end in"):
        run("plot", "simulation", folder / "missing", "--data", folder / "log.csv", *COLUMNS, "--out", "x.jpg")
