"""Ensembles and known equations on the command line, from the fit to the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from problems import wiener_record

import tausid
from tausid.cli import main
from tausid.data.records import Record

SMALL = ["--tau", "2", "--nx", "2", "--recipe", "windows", "--hidden", "8", "--set", "trainer.horizon=20",
         "--set", "trainer.batch=16", "--set", "trainer.validate_every=20",
         "--set", "trainer.steps=40", "--workers", "1"]  # fmt: skip


def write_csv(path: Path, record: Record) -> Path:
    table = np.concatenate([record.u, record.y], axis=1)
    np.savetxt(path, table, delimiter=",", header="u,y", comments="", fmt="%.9g")
    return path


@pytest.fixture
def tausid_command(capfd, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tausid", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capfd.readouterr()

    return call


def test_an_ensemble_goes_through_all_commands(tausid_command, tmp_path):
    columns = ["--input", "u", "--output", "y", "--ts", "0.5"]
    data, out = write_csv(tmp_path / "data.csv", wiener_record(200)), tmp_path / "run"
    code, printed, error = tausid_command(
        "fit", data, *columns, *SMALL, "--ensemble", 3, "--keep", 2, "--out", out, "--json"
    )
    assert code == 0, error
    summary = json.loads(printed)
    assert [member["kept"] for member in summary["members"]] == [True, True, False]
    assert {member["seed"] for member in summary["members"]} == {0, 1, 2}
    assert "3 of 3 members, step 120/120" in error
    page = (out / "report.html").read_text()
    assert "trimmed mean of 2 models" in page

    model = out / "model.safetensors"
    code, printed, _ = tausid_command("info", model, "--all")
    assert code == 0 and "left out" in printed and "held-out error" in printed
    assert len(json.loads(tausid_command("info", model, "--json")[1])["members"]) == 3
    scores = json.loads(tausid_command("evaluate", model, data, *columns, "--json")[1])
    assert scores["rmse"] == summary["rmse"]

    code, printed, _ = tausid_command("simulate", model, data, *columns, "--out", tmp_path / "sim.csv")
    table = np.genfromtxt(tmp_path / "sim.csv", delimiter=",", names=True)
    assert table.dtype.names == ("t", "u", "y", "y_simulated", "y_low", "y_high")
    # The quantiles of two members lie on both sides of their mean.
    assert np.all((table["y_low"] <= table["y_simulated"])[5:] & (table["y_simulated"] <= table["y_high"])[5:])
    assert tausid_command("plot", "simulation", model, "--data", data, *columns, "--out", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").stat().st_size > 10_000
    code, printed, _ = tausid_command("report", out, "--out", tmp_path / "again.html")
    assert code == 0 and (tmp_path / "again.html").read_text() == page

    code, _, error = tausid_command("fit", data, *columns, *SMALL, "--ensemble", 3, "--out", out)
    assert code == 2 and "must be a folder without a run" in error
    again = ["fit", data, *columns, *SMALL, "--ensemble", 3, "--keep", 2, "--out", out, "--resume", "--json"]
    assert json.loads(tausid_command(*again)[1])["rmse"] == summary["rmse"]


def test_known_equations_go_through_all_commands(tausid_command, tmp_path):
    columns = ["--input", "u", "--output", "y", "--ts", "4"]
    data, out = (
        write_csv(tmp_path / "tanks.csv", tausid.datasets.simulate_tanks(seed=0, samples=250).train),
        tmp_path / "run",
    )
    settings = ["--tau", "74", "--set", "holdout=none"]
    code, printed, error = tausid_command("fit", data, *columns, *settings, "--physics", "CascadedTanks", "--out", out)
    assert code == 0, error
    assert "k1 = 0.0" in printed and "V^0.5/s" in printed
    page = (out / "report.html").read_text()
    assert "CascadedTanks, no correction" in page and "V^0.5/s" in page
    model = out / "model.safetensors"
    assert "k1 = 0.0" in tausid_command("info", model)[1]
    listed = json.loads(tausid_command("info", model, "--json")[1])["physics"]
    assert listed["k3"]["unit"] == "1/s" and listed["k3"]["deviation"] > 0
    assert "scan, because fused is not available" in tausid_command("info", model, "--engines")[1]
    code, _, error = tausid_command(
        "fit", data, *columns, *settings, "--physics", "CascadedTank", "--out", tmp_path / "b"
    )
    assert code == 2 and "Did you mean 'CascadedTanks'?" in error
