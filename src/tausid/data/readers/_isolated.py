"""MATLAB and HDF5 files are read by a process of its own: their libraries crash or hang on some damaged files.

Here is the side that asks; `_child.py` is the side that reads. Questions and answers are lines of JSON; numbers follow
an answer as raw float64.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.readers._tables import Column, Table
from tausid.data.readers._unpacked import most_unpacked
from tausid.errors import DataError, MissingExtraError
from tausid.shapes import Float

# How long one answer may take: seconds, and seconds per megabyte of the file for slow disks.
SECONDS, SECONDS_PER_MEGABYTE = 60.0, 0.5
# How long the process may compute for it, in seconds of a core, and how much memory it may take, in bytes: for
# libraries that are imported late, and for what comes out of the file, twice. No packing saves more than the ratio.
CPU_SECONDS, CPU_SECONDS_PER_MEGABYTE = 5.0, 0.2
MEMORY, BEST_PACKING, SMALLEST = 300_000_000, 1100, 100_000
LONGEST_LINE = 50_000_000  # of an answer, in bytes


class Worker:
    """A process that reads files; it is started by the first question."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, path: Path, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """One question and its answer."""
        process = self._running(path)
        late = threading.Event()
        size, most = path.stat().st_size, most_unpacked(path)
        limit = SECONDS + SECONDS_PER_MEGABYTE * size / 1e6
        computing = CPU_SECONDS + CPU_SECONDS_PER_MEGABYTE * size / 1e6
        memory = MEMORY + 2 * min(most, BEST_PACKING * max(size, SMALLEST))
        timer = threading.Timer(limit, _end_late, (process, late))
        timer.start()
        try:
            answer, data = _exchange(process, {**question, "memory": memory, "seconds": computing}, most)
        except (OSError, ValueError):
            self._end()
            slow = late.is_set() or process.returncode == -getattr(signal, "SIGXCPU", 0)
            crashed = f"its library crashed on it, or asked for more than {memory / 1e6:.0f} MB"
            raise DataError(
                f"file '{path}' must be intact; it is damaged: {'reading it takes too long' if slow else crashed}. "
                "Save it again, or export it as CSV."
            ) from None
        finally:
            timer.cancel()
            timer.join()
        if "too large" in answer:
            raise DataError(
                f"file '{path}' must take at most {memory / 1e6:.0f} MB to read, as others of its size; it takes more. "
                "It may be damaged; save it again, or export it as CSV."
            )
        if "missing" in answer:
            raise MissingExtraError(answer["missing"])
        if "error" in answer:
            raise DataError(answer["error"])
        return answer, data

    def close(self) -> None:
        """End the process."""
        self._end()

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def _running(self, path: Path) -> subprocess.Popen[bytes]:
        if self.process is None:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tausid.data.readers._child"],  # nothing from the working folder
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # It must find what this process finds, also where the path was changed since it began.
                    # HDF5 loads no plugins: a file may name them.
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HDF5_PLUGIN_PRELOAD": "::"},
                )
                _exchange(self.process, {}, 0)  # an answer to nothing: it has started
            except (OSError, ValueError) as error:
                self._end()
                raise DataError(
                    f"reading '{path}' needs a second process; {sys.executable!r} did not start: {error}. Check "
                    "that it runs and can import tausid, or export the file as CSV."
                ) from None
        return self.process


def _end_late(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


def _exchange(process: subprocess.Popen[bytes], question: dict[str, Any], most: int) -> tuple[dict[str, Any], bytes]:
    """Send a line, receive a line and what it announces, `most` bytes; ValueError if the process ended meanwhile."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process has no pipes")
    process.stdin.write(json.dumps(question).encode() + b"\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline(LONGEST_LINE))
    if answer.get("bytes", 0) > most:
        raise ValueError("the process gives more than its file can hold")
    data = process.stdout.read(answer.get("bytes", 0))
    if len(data) != answer.get("bytes", 0):
        raise ValueError("the process ended within its answer")
    return answer, data


def open_isolated(path: Path, kind: str) -> Table:
    """The channels of a MATLAB or HDF5 file, which stays open in another process until the table is closed."""
    worker = Worker()
    try:
        about, _ = worker.ask(path, {"open": str(path), "kind": kind})
    except BaseException:
        worker.close()
        raise
    columns = tuple(
        Column(name, functools.partial(_load, worker, path, i), label=label, unit=unit)
        for i, (name, label, unit) in enumerate(about["columns"])
    )
    return Table(
        f"'{path}'",
        path.stem,
        columns,
        groups={name: tuple(positions) for name, positions in about["groups"].items()},
        inputs=tuple(about["inputs"]),
        outputs=tuple(about["outputs"]),
        ts=about["ts"],
        time=about["time"],
        close=worker.close,
    )


def _load(worker: Worker, path: Path, position: int) -> Float[np.ndarray, " N"]:
    _, data = worker.ask(path, {"load": position})
    return np.frombuffer(data, dtype=np.float64)
