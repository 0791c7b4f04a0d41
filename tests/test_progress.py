"""What a fit says while it works: what is tried, how good the best is, how long it will still take."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from pages import small_model
from problems import wiener_record

import tausid
from tausid.training.progress import ProgressUpdate, TimeLeft, describe

RUNNING = ProgressUpdate(10, 100, 0.04, 0.5, 0.25, 7, 0, 2.0, "running", "2 states, tanh, fold 1 of 3", "fit")
FIT = """
import sys
sys.path.insert(0, sys.argv[1])
from problems import wiener_record
import tausid
tausid.fit(wiener_record(200), seed=0, nx=2, tau=2.0, search="fixed", settings={"trainer.iterations": 20})
"""


def model(unit: str = "mm"):
    return dataclasses.replace(small_model(1, 1), output_units=(unit,))


def test_a_line_says_what_is_tried_how_good_it_is_and_how_long_it_takes():
    own = model()
    deviation = own.scaling.y_std[0]
    errors = f"held out {0.5 * deviation:.3g}, best {0.25 * deviation:.3g} mm"
    assert describe(RUNNING, own) == f"2 states, tanh, fold 1 of 3, fit 10/100, {errors}, 45 s left"
    alone = dataclasses.replace(RUNNING, validation=float("nan"), note="")
    assert f"training error {0.2 * deviation:.3g} mm" in describe(alone, own)
    assert describe(dataclasses.replace(RUNNING, steps_per_second=float("nan")), own).endswith("time left unknown")


@pytest.mark.parametrize("width", [40, 60, 66, 80, 200])
def test_a_line_fits_and_keeps_error_and_time(width):
    told = describe(RUNNING, model(), width=width)
    assert len(told) <= max(width, 52)
    assert "best" in told and told.endswith("45 s left")


def test_the_time_left_comes_from_finished_work_and_counts_down_to_zero():
    clock = TimeLeft()
    updates = [dataclasses.replace(RUNNING, step=step, steps_per_second=1e9) for step in (0, 10, 50, 100)]
    clock.update(updates[0], 1000.0)
    clock.update(updates[1], 1020.0)
    assert clock.at(1020.0) == pytest.approx(180.0)  # 10 of 100 took 20 s
    assert clock.at(1030.0) == pytest.approx(170.0)
    clock.update(updates[1], 1040.0)  # a sign of life from a long fit: nothing more is known
    assert clock.at(1040.0) == pytest.approx(160.0)
    clock.update(updates[2], 1060.0)
    assert clock.at(1060.0) == pytest.approx(60.0)
    clock.update(updates[3], 1110.0)
    assert clock.at(1110.0) == 0.0
    clock.update(dataclasses.replace(RUNNING, step=1, max_steps=5, unit="step", steps_per_second=2.0), 1111.0)
    assert clock.at(1111.0) == pytest.approx(2.0)  # another kind of work begins


def test_the_total_that_is_shown_is_reached():
    """Candidates that are given up leave the plan."""
    updates: list[ProgressUpdate] = []
    tausid.fit(wiener_record(240), seed=0, settings={"trainer.iterations": 4}, progress=updates.append)
    last = updates[-1]
    assert last.step == last.max_steps < updates[0].max_steps
    assert last.work is not None and last.work[1] == 0


def test_a_terminal_of_80_columns_shows_error_and_time_in_every_line():
    terminal, end = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-c", FIT, str(Path(__file__).parent)]
    with subprocess.Popen(command, stderr=end, env={**os.environ, "TERM": "xterm"}) as fit:
        os.close(end)
        written = b"".join(iter(lambda: _read(terminal), b""))
    os.close(terminal)
    assert fit.returncode == 0, written.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())
    lines = [line for line in re.split(r"[\r\n]+", plain) if "/" in line]
    assert lines
    done, planned = map(int, re.findall(r" (\d+)/(\d+)", lines[-1])[-1])
    assert done == planned and " 0 s left" in lines[-1]
    for line in lines:
        assert len(line) <= 80
        assert re.search(r"(held out|training error) [\d.]+.* (s left|time left unknown)", line), line


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""
