"""`make torture`: faults by the thousand, and a table of what was tried in docs/reliability.md. Ends at anything lost.

    python tests/torture.py --share 1.0 --write docs/reliability.md

`--share` scales all counts; `tests/test_torture.py` runs a small share of each part in the fast suite.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parent))

from problems import wiener_record
from studies import TINY, workers_of

from tausid import DataError
from tausid.data.readers import _isolated, read
from tausid.study import parse_spec, read_results
from tausid.study.store import JOURNAL, Store
from tausid.training.processes import usable_cores

STUDY = 300  # runs of a study
BEGIN, END = "<!-- made by make torture -->", "<!-- end -->"
SMALL_FIT = ("--input", "u", "--output", "y", "--ts", "0.5", "--nx", "2", "--hidden", "4", "--tau", "2", "--delays",
             "none", "--no-report")  # fmt: skip
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@dataclass
class Tally:
    """What was tried, what came of it, and what must never come of it."""

    what: str
    tried: int = 0
    outcomes: Counter = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)

    def row(self, seconds: float) -> str:
        told = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return f"| {self.what} | {self.tried} | {told} | {len(self.lost)} | {seconds:.0f} |"


def forged_models(count: int) -> Tally:
    """Model files with right checksums and wrong content are refused, or load, simulate and are described."""
    from test_model_files import forge, forged, use

    tally = Tally("forged model files", count)
    with tempfile.TemporaryDirectory() as folder:

        @seed(0)
        @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(forged())
        def attempt(file) -> None:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    tally.outcomes[use(forge(Path(folder) / "m", file[0], json.dumps(file[1])))] += 1
            except Exception as error:  # noqa: BLE001 - whatever is no error of ours
                tally.lost.append(repr(error))

        attempt()
    tally.tried = sum(tally.outcomes.values()) + len(tally.lost)
    return tally


def damaged_data(count: int) -> Tally:
    """Data files of every kind, cut and overwritten, give a record or an error of ours, and soon."""
    from test_fuzz import SEEDS, damage

    rng, worker, kind = random.Random(0), _isolated.Worker(), _isolated.Worker
    tally, close = Tally(f"damaged data files of {len(SEEDS)} kinds"), worker.close
    worker.close = lambda: None  # one process for all of them, as starting one takes longest
    _isolated.Worker = lambda: worker
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, good in SEEDS.items():
                for _ in range(max(1, count // len(SEEDS))):
                    changes = [_change(rng) for _ in range(rng.randrange(1, 5))]
                    path = Path(folder) / name
                    path.write_bytes(damage(good, changes))
                    _try_file(path, tally)
    finally:
        _isolated.Worker = kind
        close()
    return tally


def _change(rng: random.Random) -> tuple[str, float, int, int]:
    how = rng.choice(["set", "set", "cut", "drop", "repeat", "insert"])
    return how, rng.random(), rng.randrange(256), rng.randrange(1, 64)


def _try_file(path: Path, tally: Tally) -> None:
    tally.tried, began = tally.tried + 1, time.monotonic()
    try:
        read(path, inputs="u", outputs="y", ts=1.0)
        tally.outcomes["read"] += 1
    except DataError:
        tally.outcomes["refused"] += 1
    except Exception as error:  # noqa: BLE001 - whatever is no error of ours
        tally.lost.append(f"{path.name}: {error!r}")
    if time.monotonic() - began > 60.0:
        tally.lost.append(f"{path.name}: took {time.monotonic() - began:.0f} s")


def killed_fits(count: int) -> Tally:
    """A fit that is killed at a random moment and resumed gives the file of one that was never stopped."""
    tally, rng = Tally("fits killed by SIGKILL, then resumed", count), random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write_data(folder)
        whole, lasted = _fit(folder, "whole")
        for i in range(count):
            process = _begin_fit(folder, f"killed-{i}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, lasted))
            process.kill()
            process.wait()
            resumed, _ = _fit(folder, f"killed-{i}", *(["--resume"] if (folder / f"killed-{i}").exists() else []))
            tally.outcomes["identical to the bit"] += resumed == whole
            left = [file.name for file in (folder / f"killed-{i}").glob(".*.part")]
            if resumed != whole or left:
                tally.lost.append(f"killed-{i}: another model, or files left behind: {left}")
    return tally


def _write_data(folder: Path) -> None:
    record = wiener_record(150)
    np.savetxt(folder / "d.csv", np.column_stack([record.u, record.y]), delimiter=",", header="u,y", comments="")


def _begin_fit(folder: Path, name: str, *more: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "tausid.cli", "fit", "d.csv", *SMALL_FIT, "--out", name, *more]
    return subprocess.Popen(words, cwd=folder, **QUIET)


def _fit(folder: Path, name: str, *more: str) -> tuple[bytes, float]:
    began = time.monotonic()
    assert _begin_fit(folder, name, *more).wait() == 0
    return (folder / name / "model.safetensors").read_bytes(), time.monotonic() - began


def torn_journals(count: int) -> Tally:
    """A journal that ends within its last record, at each of its bytes: what was finished before is all there."""
    tally = Tally("journals of a study, torn at each byte of their last record")
    with tempfile.TemporaryDirectory() as place:
        journal = Path(place) / JOURNAL
        runs = parse_spec({**TINY, "axes": {"seed": [0, 1, 2]}}, folder=Path(place)).runs()
        store = Store(journal, "s")
        store.begin(runs, {})
        for name in ("seed=0", "seed=1"):
            store.finish(store.take(), {"run": name, "status": "completed"})
        whole = journal.read_bytes()
        last = whole.rstrip(b"\n").rfind(b"\n") + 1
        for end in list(range(last, len(whole)))[:count]:
            tally.tried += 1
            journal.write_bytes(whole[:end])
            again = Store(journal, "s")
            again.begin(runs, {})
            finished, counts = set(again.outcomes()), again.counts()
            if "seed=0" not in finished or counts.finished + counts.waiting + counts.running != 3:
                tally.lost.append(f"cut at byte {end}: {finished}")
            tally.outcomes["mended"] += 1
    return tally


def killed_studies(count: int) -> Tally:
    """Workers and coordinators of studies are killed at random until all is done: each run is there, and once.

    They live for half to five times as long as a study of one run takes, so that a busy machine comes to an end, too.
    """
    tally, rng = Tally("runs of studies whose processes are killed at random", count), random.Random(0)
    lasted = _study_of_one_run()
    for runs in filter(None, [STUDY] * (count // STUDY) + [count % STUDY]):
        folder = Path(tempfile.mkdtemp())
        spec = write_small_study(folder, runs)
        more: list[str] = []
        while not _is_done(folder, runs):
            process = begin_study(spec, *more)
            more = ["--resume"]
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(rng.uniform(0.5, 5.0) * lasted)
                    break
                victims = workers_of(process)
                if rng.random() < 0.3:
                    os.killpg(process.pid, signal.SIGKILL)
                    tally.outcomes["coordinators killed"] += 1
                elif victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rng.choice(victims), signal.SIGKILL)
                    tally.outcomes["workers killed"] += 1
            process.wait()
        tally.lost += _missing_or_repeated(folder, runs)
        tally.outcomes["runs finished"] += runs
        shutil.rmtree(folder)
    return tally


def _study_of_one_run() -> float:
    """How long it takes, in seconds: little but the start of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        assert begin_study(write_small_study(Path(folder), 1)).wait() == 0
        return time.monotonic() - began


def write_small_study(folder: Path, runs: int) -> Path:
    """A study of small fits."""
    _write_data(folder)
    spec = folder / "study.toml"
    spec.write_text(
        '[data]\ntrain = "d.csv"\ninputs = ["u"]\noutputs = ["y"]\nts = 0.5\n[settings]\nnx = 1\ntau = 2.0\n'
        'search = "fixed"\nholdout = "none"\nstructure.hidden = [3]\ntrainer.iterations = 5\n'
        f"[axes]\nseed = {{ range = [0, {runs}] }}\n"
    )
    return spec


def begin_study(spec: Path, *more: str) -> subprocess.Popen:
    """`tausid study run` with two workers, as a process group of its own."""
    words = [sys.executable, "-m", "tausid.cli", "study", "run", str(spec), "--workers", "2", *more]
    return subprocess.Popen(words, start_new_session=True, **QUIET)


def _is_done(folder: Path, runs: int) -> bool:
    with contextlib.suppress(Exception):
        return len(read_results(folder).rows) == runs
    return False


def _missing_or_repeated(folder: Path, runs: int) -> list[str]:
    rows = Counter(row["seed"] for row in read_results(folder).rows)
    told = [f"seed {seed}: {rows[seed]} rows" for seed in range(runs) if rows[seed] != 1]
    written = Counter(
        line["trial_id"]
        for line in map(json.loads, (folder / JOURNAL).read_text().splitlines())
        if "outcome" in line.get("user_attr", {})
    )
    finished = sum(written.values())
    return told + ([] if finished == runs else [f"{finished} outcomes were written for {runs} runs"])


PARTS: dict[str, tuple[Callable[[int], Tally], int]] = {
    "models": (forged_models, 20_000),
    "data": (damaged_data, 8_000),
    "fits": (killed_fits, 40),
    "journals": (torn_journals, 10_000),
    "studies": (killed_studies, 10 * STUDY),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="scales all counts")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; repeat for several")
    parser.add_argument("--write", type=Path, help="page whose table is made anew")
    given_ = parser.parse_args()
    rows, lost = [], []
    for name in given_.only or PARTS:
        part, count = PARTS[name]
        began = time.monotonic()
        tally = part(max(1, round(given_.share * count)))
        rows.append(tally.row(time.monotonic() - began))
        lost += tally.lost
        print(rows[-1], *tally.lost[:10], sep="\n", flush=True)
    if given_.write is not None:
        write_table(given_.write, rows, given_.share)
    sys.exit(1 if lost else 0)


def write_table(page: Path, rows: list[str], share: float = 1.0) -> None:
    """The table of a page, between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    machine = f"{platform.system()} on {platform.machine()}, {usable_cores()} of {os.cpu_count()} cores"
    where = f"{share:.0%} of the whole (`--share {share:g}`); Python {platform.python_version()}, {machine}."
    header = "| what | tried | what came of it | lost | seconds |\n|---|---|---|---|---|"
    page.write_text(
        f"{before}{BEGIN}\n\n{header}\n" + "\n".join(rows) + f"\n\n{where}\n\n{END}{rest.partition(END)[2]}"
    )


if __name__ == "__main__":
    main()
