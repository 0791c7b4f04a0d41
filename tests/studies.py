"""Small studies, and processes that run them, for the tests of studies."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from problems import wiener_record

import tausid
from tausid import StorageError
from tausid.storage import read_arrays
from tausid.study.spec import settings_of

TINY = {"data": "@cascaded_tanks", "axes": {"seed": [0]}}
QUICK = {
    "recipe": "windows",
    "nx": 2,
    "structure.hidden": [8],
    "trainer.horizon": 20,
    "trainer.batch": 8,
    "trainer.steps": 20,
    "trainer.validate_every": 10,
}
# Long enough to be killed in its middle: chunks of 25 steps take some milliseconds, checkpoints come every 0.05 s.
LONG = {**QUICK, "trainer.steps": 3000, "trainer.patience": 3000, "trainer.validate_every": 25}


def write_study(folder: Path, settings: dict, axes: str) -> Path:
    """A spec and its data in a folder."""
    record = wiener_record(200)
    columns = np.column_stack([record.u, record.y])
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "data.csv", columns, delimiter=",", header="u,y", comments="")
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    data = '[data]\ntrain = "data.csv"\ninputs = ["u"]\noutputs = ["y"]\nts = 0.5\n'
    spec = folder / "study.toml"
    spec.write_text(f"{data}[settings]\n" + "\n".join(lines) + f"\n[axes]\n{axes}\n")
    return spec


def fit_by_hand(choices: dict, **arguments) -> tausid.FitResult:
    """The fit that a study makes of these choices on its data."""
    settings = settings_of(choices)
    named = {key: value for key, value in choices.items() if key not in settings}
    return tausid.fit(wiener_record(200), settings=settings, progress=None, **named, **arguments)


def start(spec: Path, *arguments: str, **options) -> subprocess.Popen:
    """`tausid study run` as a process group of its own, with checkpoints in quick succession."""
    code = (  # Ctrl-C is heard as in a terminal, also where the tests run in the background and it is ignored
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import tausid.training.driver as driver; driver.SECONDS_BETWEEN_CHECKPOINTS = 0.05\n"
        "from tausid.cli import main; main()"
    )
    # A worker is a fresh process: it must be told about the checkpoints, too.
    (spec.parent / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('QUICK_CHECKPOINTS'):\n"
        "    import tausid.training.driver as driver\n    driver.SECONDS_BETWEEN_CHECKPOINTS = 0.05\n"
    )
    path = os.pathsep.join(filter(None, [str(spec.parent), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-c", code, "study", "run", str(spec), *arguments],
        env={**os.environ, "PYTHONPATH": path, "QUICK_CHECKPOINTS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def wait_for(happened: Callable[[], object], seconds: float = 240.0) -> None:  # machines may be busy
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def workers_of(process: subprocess.Popen) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process.pid), "-f", "spawn_main"], text=True, stdout=subprocess.PIPE)
    return [int(line) for line in found.stdout.split()]


def steps_in(checkpoint: Path) -> int:
    with contextlib.suppress(StorageError):
        return int(read_arrays(checkpoint, kind="checkpoint")[1]["step"])
    return 0
