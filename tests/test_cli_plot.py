"""`tausid plot`: pictures from files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import printed
from problems import multisine, wiener_record

import tausid
from tausid.cli.plot import name_models
from tausid.results.runs import RunFolder
from tausid.training import HistoryRow

COLUMNS = ("--input", "u", "--output", "y", "--ts", "0.5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, and two models of it."""
    folder = tmp_path_factory.mktemp("plot")
    record = wiener_record(200)
    np.savetxt(folder / "log.csv", np.hstack([record.u, record.y]), delimiter=",", header="u,y", comments="")
    for seed in (0, 1):
        settings = {"structure.hidden": [4], "trainer.horizon": 20, "trainer.steps": 2}
        result = tausid.fit(record, tau=2.0, seed=seed, recipe="windows", nx=2, settings=settings, progress=None)
        result.model.save(folder / f"seed{seed}" / "model.safetensors")
    return folder


def test_time_scaling_is_drawn_from_a_file(folder):
    out = folder / "figure1.png"
    assert str(out) in printed("plot", "scaling", folder / "log.csv", "--tau", 4, "--out", out, *COLUMNS)
    assert out.read_bytes().startswith(b"\x89PNG")


def test_simulations_of_several_models_are_drawn_with_their_names(folder):
    models = [folder / "seed0", folder / "seed1" / "model.safetensors"]
    out = folder / "figure3.svg"
    data = ("--data", folder / "log.csv", *COLUMNS)
    printed("plot", "simulation", *models, *data, "--out", out)
    assert "seed1 (RMSE" in out.read_text()
    printed("plot", "simulation", *models, *data, "--out", out, "--label", "one", "--label", "two")
    assert "two (RMSE" in out.read_text()
    printed("plot", "simulation", models[0], *data, "--out", out)
    assert "simulated" in out.read_text()


def test_residuals_are_drawn_and_explained(folder):
    out = folder / "residuals.svg"
    said = printed("plot", "residuals", folder / "seed0", "--data", folder / "log.csv", *COLUMNS, "--out", out)
    assert "Residuals of y are" in said
    assert "residual of y with earlier u" in out.read_text()


def test_states_are_drawn(folder):
    out = folder / "states.svg"
    printed("plot", "states", folder / "seed0", "--data", folder / "log.csv", *COLUMNS, "--out", out)
    assert "x2" in out.read_text()


def test_history_and_tau_are_drawn_from_the_folder_of_a_run(folder):
    RunFolder(folder).write_history([HistoryRow(50, 0.1, 0.3, 3e-3, 74.0, 1.5, 0.2)])
    summary = {"status": "completed", "message": "", "steps": 50, "best_step": 50, "seconds": 1.5}
    (folder / "result.json").write_text(json.dumps(summary))
    printed("plot", "history", folder, "--out", folder / "history.svg")
    assert "best: 0.3, step 50" in (folder / "history.svg").read_text()
    printed("plot", "tau", folder, "--out", folder / "tau.svg")
    assert "best, step 50" in (folder / "tau.svg").read_text()


def test_the_linear_approximation_is_drawn_with_distortion_where_the_input_is_periodic(folder):
    u = np.tile(multisine(100, lines=10, seed=0), 4)
    y = u + 0.1 * u**3 + 0.01 * np.random.default_rng(0).normal(size=400)
    np.savetxt(folder / "periodic.csv", np.stack([u, y], axis=1), delimiter=",", header="u,y", comments="")
    out = folder / "bla.svg"
    printed(
        "plot", "bla", folder / "periodic.csv", *COLUMNS, "--nx", 1, "--period", 100, "--skip-periods", 1, "--out", out
    )
    assert "noise" in out.read_text()
    printed("plot", "bla", folder / "log.csv", *COLUMNS, "--out", out)
    assert "frequency response" in out.read_text()


def test_names_of_models_are_as_short_as_they_can_be():
    files = [Path("runs/a/model.safetensors"), Path("runs/b/model.safetensors")]
    assert name_models(files, None) == ["a", "b"]
    assert name_models([Path("model.safetensors")], None) == [Path.cwd().name]  # in the folder where one is
    assert name_models([Path("x/a"), Path("y/a")], None) == ["x/a", "y/a"]
    assert name_models([Path("runs/a"), Path("runs/b")], None) == ["a", "b"]
    with pytest.raises(tausid.ConfigError, match="must be different files"):
        name_models([Path("a"), Path("a")], None)
    with pytest.raises(tausid.ConfigError, match="`--label` must be given once per model"):
        name_models([Path("a"), Path("b")], ["one"])


def test_a_wrong_ending_is_refused_before_anything_is_computed(folder):
    with pytest.raises(tausid.ConfigError, match="a picture must end in"):
        printed("plot", "simulation", folder / "missing", "--data", folder / "log.csv", *COLUMNS, "--out", "x.jpg")
