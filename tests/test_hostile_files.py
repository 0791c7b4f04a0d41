"""Data files made to fill the memory, to take forever or to run something; `test_fuzz.py` has damaged ones."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io

from tausid import DataError
from tausid.data.readers import _isolated, _unpacked, read
from tausid.data.readers._hdf5 import table_from_hdf5
from tausid.data.readers._matlab import table_from_mat5

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are Linux's")
COUNT = 1_000_000  # zeros, which any packing makes small
GOOD = {"inputs": "u", "outputs": "y", "ts": 1.0}


def npz(path: Path) -> None:
    np.savez_compressed(path, u=np.zeros(COUNT), y=np.zeros(COUNT))


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"u": np.zeros(COUNT), "y": np.zeros(COUNT)}), path)


def xlsx(path: Path) -> None:
    """Many rows with one cell far to the right each."""
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for _ in range(300):
        sheet.append([1.0, 2.0, 3.0])
    book.save(path)
    edit_sheet(path, lambda xml: xml.replace('r="C', 'r="XFD'))


def edit_sheet(path: Path, change: Callable[[str], str]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["xl/worksheets/sheet1.xml"] = change(members["xl/worksheets/sheet1.xml"].decode()).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def mat(path: Path) -> None:
    scipy.io.savemat(path, {"u": np.zeros(COUNT), "y": np.zeros(COUNT)}, do_compression=True)


def hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name in "uy":
            file.create_dataset(name, data=np.zeros(COUNT), compression="gzip")


def nothing_but_a_claim(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name in "uy":
            file.create_dataset(name, (10**12,), "f8", chunks=(1000,))


@pytest.mark.parametrize(
    ("name", "make", "open_it"),
    [
        ("a.npz", npz, lambda path: read(path, **GOOD)),
        ("a.parquet", parquet, lambda path: read(path, **GOOD)),
        ("a.xlsx", xlsx, lambda path: read(path, inputs=0, outputs=1, ts=1.0)),
        ("a.mat", mat, table_from_mat5),
        ("a.h5", hdf5, lambda path: table_from_hdf5(path, matlab=False).columns[0].load()),
        ("claim.h5", nothing_but_a_claim, lambda path: table_from_hdf5(path, matlab=False).columns[0].load()),
    ],
)
def test_what_unpacks_to_too_much_is_refused_before_it_is(name, make, open_it, tmp_path, monkeypatch):
    make(tmp_path / name)
    if not name.startswith("claim"):
        open_it(tmp_path / name)  # as it stands it is small enough
    monkeypatch.setattr(_unpacked, "ALWAYS", 100_000)
    monkeypatch.setattr(_unpacked, "RATIO", 20)
    with pytest.raises(DataError, match="must unpack to at most|which the file cannot hold"):
        open_it(tmp_path / name)


def test_a_sheet_that_lies_about_its_size_is_read_as_it_is(tmp_path):
    book = openpyxl.Workbook()
    for row in (["u", "y"], [1.0, 2.0], [2.0, 3.0], [1.0, 4.0]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    edit_sheet(tmp_path / "a.xlsx", lambda xml: xml.replace('ref="A1:B4"', 'ref="A1:XFD1048576"'))
    began = time.process_time()
    np.testing.assert_array_equal(read(tmp_path / "a.xlsx", **GOOD).y[:, 0], [2.0, 3.0, 4.0])
    assert time.process_time() - began < 2.0


def test_an_array_that_claims_more_than_its_file_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    (tmp_path / "a.npy").write_bytes(header.getvalue() + bytes(800))
    with pytest.raises(DataError, match="must be a numpy file"):
        read(tmp_path / "a.npy", outputs="column", ts=1.0)


def test_memory_of_the_reading_process_is_limited(tmp_path, monkeypatch):
    """Some libraries raise where there is no more memory, others end the process."""
    mat(tmp_path / "a.mat")
    assert len(read(tmp_path / "a.mat", **GOOD)) == COUNT
    monkeypatch.setattr(_isolated, "MEMORY", 1_000_000)
    monkeypatch.setattr(_isolated, "BEST_PACKING", 1)
    with pytest.raises(DataError, match="must take at most 1 MB to read|asked for more than 1 MB"):
        read(tmp_path / "a.mat", **GOOD)


def test_time_of_the_reading_process_is_limited():
    code = "from tausid.data.readers._child import _limit\n_limit(10**9, 0.5)\nwhile True: pass"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], env=environment(), check=False, timeout=120)
    assert done.returncode == -signal.SIGXCPU
    assert time.monotonic() - began < 60.0  # of a core that may be shared


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_no_reading_process_is_left_behind(tmp_path, monkeypatch):
    """After an error, and after the program that started it was killed."""
    (tmp_path / "bad.mat").write_bytes(b"MATLAB 5.0 " + bytes(200))
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*args, **options):
        begun.append(popen(*args, **options))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    with pytest.raises(DataError):
        read(tmp_path / "bad.mat", **GOOD)
    assert begun and all(process.returncode is not None for process in begun)
    monkeypatch.undo()
    scipy.io.savemat(tmp_path / "good.mat", {"u": np.arange(5.0), "y": np.arange(5.0)})
    code = """
import os, signal, sys
from tausid.data.readers import _isolated
worker = _isolated.Worker()
worker._running(sys.argv[1])
print(worker.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", code, str(tmp_path / "good.mat")]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    until = time.monotonic() + 30
    while Path(f"/proc/{int(done.stdout)}/cmdline").exists() and time.monotonic() < until:
        if not Path(f"/proc/{int(done.stdout)}/cmdline").read_bytes():  # ended, and nobody has asked how
            return
        time.sleep(0.05)
    assert time.monotonic() < until


def test_the_reading_process_imports_nothing_from_the_working_folder(tmp_path, monkeypatch):
    """A folder of data may hold a file that is called like a module."""
    scipy.io.savemat(tmp_path / "a.mat", {"u": np.arange(5.0), "y": np.arange(5.0)})
    for name in ("json", "numpy", "scipy", "h5py", "resource", "tausid"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit('mine')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    assert len(read("a.mat", **GOOD)) == 5
    assert not (tmp_path / "ran").exists()
