"""The command line with every kind of file: look, prepare, fill, fit, evaluate, simulate."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from problems import wiener_record

import tausid
from tausid.cli import main
from tausid.data.readers import ENDINGS
from tausid.data.sources import Columns, _files, read_records

COLUMNS = ["--input", "vir", "--output", "qm", "--time", "t"]
SMALL = [
    "--recipe",
    "windows",
    "--tau",
    "2",
    "--nx",
    "2",
    "--set",
    "structure.hidden=[4]",
    "--set",
    "trainer.horizon=16",
    "--set",
    "trainer.batch=8",
    "--set",
    "trainer.steps=4",
]


@pytest.fixture
def tausid_command(capfd, monkeypatch):
    """The program inside this process; gives its exit code, its output and its errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tausid", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capfd.readouterr()

    return call


def columns() -> dict[str, np.ndarray]:
    record = wiener_record(200, seed=0)
    return {"t": record.t, "vir": record.u[:, 0], "qm": record.y[:, 0]}


def save_hdf5(path: Path, content: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        for name, values in content.items():
            file[name] = values


def save_csv(path: Path, content: dict[str, np.ndarray]) -> None:
    rows = np.column_stack(list(content.values())).tolist()
    path.write_text("\n".join([",".join(content), *(",".join(map(repr, row)) for row in rows)]).replace("nan", ""))


SAVE = {
    "bench.csv": save_csv,
    "bench.mat": scipy.io.savemat,
    "bench.h5": save_hdf5,
    "bench.parquet": lambda path, content: pq.write_table(pa.table(content), path),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, save in SAVE.items():
        save(folder / name, columns())
        save(folder / f"holes-{name}", columns() | {"vir": np.where(np.arange(200) == 50, np.nan, columns()["vir"])})
    return folder


@pytest.fixture(scope="module")
def model(files) -> Path:
    """A model fitted in a few steps, not to be good but to be there."""
    record = tausid.read(files / "bench.parquet", inputs="vir", outputs="qm", time="t")
    small = {"structure.hidden": (4,), "trainer.horizon": 16, "trainer.batch": 8, "trainer.steps": 4}
    result = tausid.fit(record, recipe="windows", nx=2, tau=2.0, seed=0, progress=None, settings=small)
    return result.model.save(files / "model.safetensors")


def test_every_kind_of_file_gives_the_same_scores_and_simulation(
    tausid_command, files, model, tmp_path, one_reading_process
):
    scores, simulations = [], []
    for name in SAVE:
        code, printed, errors = tausid_command("evaluate", model, files / name, *COLUMNS, "--json")
        assert code == 0, errors
        scores.append(json.loads(printed)["rmse"])
        code, _, errors = tausid_command("simulate", model, files / name, *COLUMNS, "--out", tmp_path / "sim.csv")
        assert code == 0, errors
        simulations.append((tmp_path / "sim.csv").read_text())
    assert all(score == scores[0] for score in scores)
    assert all(simulation == simulations[0] for simulation in simulations)


@pytest.mark.parametrize("name", SAVE)
def test_tau_and_look_read_every_kind_of_file(name, tausid_command, files, one_reading_process):
    code, printed, errors = tausid_command("tau", files / name, *COLUMNS, "--nx", 2, "--json")
    assert code == 0, errors
    assert json.loads(printed)["tau"] > 0
    code, printed, errors = tausid_command("look", files / name, *COLUMNS, "--json")
    assert code == 0, errors
    found = json.loads(printed)
    assert [(c["name"], c["role"]) for c in found["channels"]] == [("t", "time"), ("vir", "input"), ("qm", "output")]
    assert found["clock"]["ts"] == 0.5


@pytest.mark.parametrize("name", SAVE)
def test_missing_inputs_are_an_error_until_they_are_filled(name, tausid_command, files, one_reading_process):
    data = files / f"holes-{name}"
    code, _, errors = tausid_command("tau", data, *COLUMNS, "--nx", 2)
    assert code == 2
    assert "'vir'" in errors
    assert "line 52" in errors if name.endswith("csv") else " 50 has nan" in errors
    assert "`fill`: hold or linear" in errors
    assert tausid_command("tau", data, *COLUMNS, "--nx", 2, "--fill", "linear")[0] == 0
    code, printed, _ = tausid_command("look", data, *COLUMNS)
    assert "vir lacks 1 of 200 samples; an input must be complete. Fill it: --fill hold" in printed
    printed = tausid_command("look", data, *COLUMNS, "--fill", "hold")[1]
    assert "prepared  fill hold: input 'vir' at" in printed


def test_preparation_of_a_matlab_file_reaches_the_model_and_info_tells_it(tausid_command, files, model, tmp_path):
    steps = ["--prepare", "trim 0 90", "--prepare", "decimate 2"]
    code, _, errors = tausid_command("fit", files / "bench.mat", *COLUMNS, *SMALL, *steps, "--out", tmp_path / "a")
    assert code == 0, errors
    prepared = tmp_path / "a" / "model.safetensors"
    (told,) = json.loads(tausid_command("info", prepared, "--json")[1])["provenance"]["preparation"].values()
    assert [step.split(":")[0] for step in told] == ["trim 0 90 s", "decimate 2"]
    printed = tausid_command("info", prepared)[1]
    assert "decimate 2: 180 to 90 samples, Ts 0.5 to 1 s, low-pass at 0.5 Hz" in printed
    scores = json.loads(tausid_command("evaluate", prepared, files / "bench.mat", *COLUMNS, *steps, "--json")[1])
    assert scores["n_skipped"] + scores["n_scored"] == 90
    assert ["preparation", "none"] in [line.split() for line in tausid_command("info", model, "--all")[1].splitlines()]


def test_look_prints_a_table_sentences_and_a_picture(tausid_command, files, tmp_path):
    picture = tmp_path / "look.png"
    code, printed, errors = tausid_command("look", files / "bench.csv", "--plot", picture)
    assert code == 0, errors
    assert printed.splitlines()[1].split() == ["clock", "unknown"]
    assert "- Name the inputs and outputs: --input NAME --output NAME. Channels: t, vir, qm." in printed
    assert "--time t" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = tausid_command("look", files / "bench.csv", *COLUMNS, "--prepare", "decimate 2")[1]
    assert "100 samples from 0 to 99 s, Ts = 1 s (1 Hz), uniform" in printed
    assert "prepared  decimate 2: 200 to 100 samples" in printed


def test_look_says_where_the_clock_is_irregular_and_what_is_no_channel(tausid_command, tmp_path):
    (tmp_path / "log.csv").write_text("t,note,qm\n0,a,1\n1,b,2\n2.1,c,1\n7,d,3\n8,e,1\n")
    printed = tausid_command("look", tmp_path / "log.csv", "--time", "t")[1]
    assert "5 samples from 0 to 8 s, Ts = 1.05 s" in printed
    assert "steps 1 to 4.9 s, 4 samples lost, no gaps" in printed
    assert "not a channel: column 'note' of" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("look bench.csv --prepare 'decimate 2'", "`--prepare` and `--fill` must know the channels; no --output"),
        ("look bench.csv --plot look.jpg", "a picture must end in .png, .svg, .pdf"),
        ("look bench.csv --part test", "`part` is for datasets by name"),
        ("look bench.csv --output qq --time t", "unknown column 'qq'"),
        ("look @emps --fill hold", "`fill` is for files"),
        ("tau bench.csv --input vir --output qm --time t --prepare 'decimat 2'", "Did you mean 'decimate'?"),
        ("tau bench.csv --input vir --output qm --time t --fill cubic", "unknown fill 'cubic'"),
        ("tau bench.csv --input vir --time t", "none was named, and 'bench.csv' names none itself. It has t, vir, qm"),
    ],
)
def test_wrong_options_are_one_message_and_code_2(arguments, message, tausid_command, files, monkeypatch):
    monkeypatch.chdir(files)
    code, _, errors = tausid_command(*shlex.split(arguments))
    assert code == 2
    assert message in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


def test_look_at_a_known_dataset_and_the_original_files(tausid_command, benchmark_folder):
    printed = tausid_command("look", "@cascaded_tanks")[1]
    assert "y is at its maximum, 10, for 4.6 % of the samples" in printed
    code, printed, _ = tausid_command("look", benchmark_folder / "emps" / "DATA_EMPS.mat", *COLUMNS)
    assert code == 0
    assert "24841 samples from 0 to 24.84 s, Ts = 0.000999984 s (1000 Hz), uniform" in printed
    assert '--prepare "decimate 1' in printed
    code, printed, _ = tausid_command("look", benchmark_folder / "cascaded_tanks" / "dataBenchmark.csv")
    assert "--ts 4." in printed


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_folder_is_searched_for_every_ending_that_a_reader_knows(ending, tmp_path):
    (tmp_path / f"run{ending.upper()}").touch()
    (tmp_path / "notes.docx").touch()
    assert _files(str(tmp_path)) == [str(tmp_path / f"run{ending.upper()}")]


def test_a_folder_of_hdf_and_pq_files_is_read(files, tmp_path):
    shutil.copy(files / "bench.h5", tmp_path / "a.hdf")
    shutil.copy(files / "bench.parquet", tmp_path / "b.pq")
    records = read_records([str(tmp_path)], Columns(["vir"], ["qm"], ts=None, time="t"))
    assert [(record.name, len(record)) for record in records] == [("a", 200), ("b", 200)]
