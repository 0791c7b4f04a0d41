"""How fast are the compiled normal equations, and a whole default fit?

    python benchmarks/second_order.py --json
    python benchmarks/second_order.py --before ../tausid-before --data ../data      # against another checkout, too
    python benchmarks/second_order.py --deepsi ../deepsi/bin/python                 # and peers: see time_to_quality.py

All in one run on one pinned core. Goals: 20 x the JAX implementation at 1024 samples and 130 weights, half of the
core's own dsyrk rate at 10^4 samples and 400 weights, memory flat in the number of samples; a default fit 20 x faster,
by CPU time, than the version before, with less than 300 MB; `evaluate` at most twice the time of importing numpy and
scipy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import numpy as np
from time_to_quality import compare

# Samples, states, hidden units of f; the weights follow.
SIZES = {"1024 x 130": (1024, 2, 20), "10000 x 400": (10_000, 3, 51), "100000 x 130": (100_000, 2, 20)}
PLANTS = ("cascaded_tanks", "daisy_heating", "daisy_exchanger", "daisy_hairdryer")
FIT = """
import resource, sys
import tausid
from pathlib import Path
from tausid import Record
name, folder = sys.argv[1], sys.argv[2]
if name.startswith("daisy_"):
    import numpy as np
    columns = np.genfromtxt(Path(folder) / "daisy" / f"{name[6:]}_train.csv", delimiter=",", skip_header=1)
    ts = {"heating": 2.0, "exchanger": 1.0, "hairdryer": 0.08}[name[6:]]
    train = Record.from_arrays(columns[:, :1], columns[:, 1:2], ts=ts)
else:
    train = tausid.datasets.load(name).train
tausid.fit(train, seed=0, progress=None)
used = resource.getrusage(resource.RUSAGE_SELF)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))  # its own peak: getrusage has the parent's
print(used.ru_utime + used.ru_stime, int(status["VmHWM"].split()[0]) / 1024)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    parser.add_argument("--before", type=Path, help="a checkout of another version, with its own .venv")
    parser.add_argument("--data", type=Path, help="folder with the benchmarks' data; TAUSID_DATA by default")
    parser.add_argument("--deepsi", metavar="PYTHON", help="interpreter of an environment with deepSI")
    parser.add_argument("--jax-sysid", metavar="PYTHON", help="interpreter of an environment with jax-sysid")
    parser.add_argument("--minutes", type=float, default=10, help="longest CPU time of each peer")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.core})
    result = turned({name: normal_equations(*sizes) for name, sizes in SIZES.items()})
    result |= {"instructions": instructions(), "start_ratio": start_ratio()}
    data = options.data or os.environ.get("TAUSID_DATA")
    if data:
        result |= turned({name: whole_fit(name, str(data), options.before) for name in PLANTS})
    peers = {"jax_sysid": options.jax_sysid, "deepsi": options.deepsi}
    if any(peers.values()):
        result |= {"times_peers": compare(options.minutes, peers)["times_peers"]}
    print(json.dumps(result, indent=None if options.json else 2))


def turned(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tables by what was measured, with a value of each size or plant, in place of one by these."""
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return {name: {key: row[name] for key, row in rows.items() if name in row} for name in names}


def make(
    samples: int, nx: int, hidden: int, layers: int = 1, count: int = 1
) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """The compiled error of a random stable model over so many records, the model, and a point."""
    from tausid.engine.compiled import CompiledError, Samples, System
    from tausid.engine.integrators import FixedStep
    from tausid.engine.networks import Network

    rng = np.random.default_rng(0)
    f = Network.random(rng, nx + 1, nx, hidden=(hidden,) * layers, activation="tanh", bias=True, weight_range=0.1)
    f.linear[:, :nx] -= np.eye(nx)
    g = Network.random(rng, nx + 1, 1, bias=True, weight_range=0.5)
    system = System.of(f, g, 1.0, None, FixedStep())
    u, y = ([rng.normal(size=(samples // count, 1)) for _ in range(count)] for _ in range(2))
    records = Samples.join(u, y, [np.full(samples // count - 1, 0.05)] * count)
    return CompiledError(system, records), (f, g), system.pack(f, g), np.zeros((count, nx))


def normal_equations(samples: int, nx: int, hidden: int) -> dict[str, Any]:
    """Milliseconds of the normal equations: compiled, by JAX, and of the product J'J alone by BLAS."""
    error, networks, theta, x0 = make(samples, nx, hidden)
    before = peak_mb()
    compiled = best_ms(lambda: error.normal(theta, x0))
    memory, dsyrk = peak_mb() - before, dsyrk_ms(samples, len(theta))
    by_jax = jax_error(error, networks)
    scan = best_ms(lambda: by_jax.normal(theta, x0), repeat=3)
    return {
        "weights": len(theta),
        "normal_ms": {"compiled": compiled, "jax": scan},
        "times_jax": scan / compiled,
        "share_of_dsyrk": dsyrk / compiled,
        "added_mb": memory,
    }


def jax_error(error: Any, networks: tuple[Any, Any]) -> Any:
    """The JAX implementation of the same error."""
    import dataclasses

    import jax

    from tausid.model.initial import FreeState
    from tausid.model.state_space import StateSpace
    from tausid.model.tau import Tau
    from tausid.training.scan_error import ScanError
    from tausid.training.trainable import trainable

    f, g = networks
    model = StateSpace(f, g, FreeState.unknown(np.zeros((1, f.linear.shape[0]))), Tau(1.0))
    trained = trainable(model)
    trained = dataclasses.replace(trained, initial=jax.tree.map(lambda _: False, trained.initial))
    return ScanError(model, trained, error.samples, error.system.integrator)


def dsyrk_ms(samples: int, weights: int) -> float:
    """What BLAS needs for J'J of a Jacobian that lies in memory, scaled up from a thousand rows."""
    from scipy.linalg.blas import dsyrk

    J = np.asfortranarray(np.random.default_rng(0).normal(size=(weights, 1000)))
    return best_ms(lambda: dsyrk(1.0, J)) * samples / 1000


def best_ms(call: Callable[[], Any], repeat: int = 10) -> float:
    """The least CPU time of several calls, in milliseconds; the first one is not counted."""
    call()
    times = []
    for _ in range(repeat):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return 1000 * min(times)


def instructions() -> dict[str, float] | None:
    """Instructions per sample of the AVX2 kernel, which no other work on the machine changes; None without valgrind."""
    if not all(map(shutil.which, ("g++", "valgrind"))):
        return None
    here = Path(__file__).parent
    source = here.parent / "src/tausid/engine/csrc/second_order.cpp"
    flags = ["-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-mavx2", "-mfma"]
    flags += ["-fno-tree-vectorize"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "instructions"
        sources = [str(source), str(here / "instructions.cpp")]
        subprocess.run(["g++", *flags, "-DTAUSID_ISA=avx2", *sources, "-o", str(program)], check=True)
        return {
            f"{nx} states, {hidden} hidden": (counted(program, nx, hidden, 3) - counted(program, nx, hidden, 1))
            / 2
            / 256
            for nx, hidden in ((1, 16), (2, 20), (3, 51), (5, 16))
        }


def counted(program: Path, nx: int, hidden: int, repeat: int) -> int:
    """All instructions of so many evaluations over 256 samples."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), "256"]
    said = subprocess.run([*command, str(nx), str(hidden), str(repeat)], check=True, capture_output=True, text=True)
    return int(re.search(r"refs:\s+([\d,]+)", said.stderr)[1].replace(",", ""))


def start_ratio() -> dict[str, float]:
    """CPU time of `tausid evaluate` and `tausid simulate` over that of importing numpy and scipy."""
    import tausid

    with tempfile.TemporaryDirectory() as folder:
        data = tausid.datasets.simulate_tanks(samples=1000, seed=0)
        quick = tausid.LevenbergMarquardt(iterations=2)
        fitted = tausid.fit(data.train, seed=0, trainer=quick, holdout=None, progress=None)
        model, table = Path(folder) / "model.safetensors", Path(folder) / "test.csv"
        fitted.model.save(model)
        record = data.test
        rows = np.column_stack([record.t, record.u, record.y])
        np.savetxt(table, rows, delimiter=",", header="t,u,y", comments="")
        options = [str(model), str(table), "--input", "u", "--output", "y", "--time", "t"]
        out = ["--out", str(Path(folder) / "simulated.csv")]
        commands = {"evaluate": ["evaluate", *options], "simulate": ["simulate", *options, *out]}
        imports = cpu_of([sys.executable, "-c", "import numpy, scipy"])
        return {name: cpu_of([sys.executable, "-m", "tausid.cli", *line]) / imports for name, line in commands.items()}


def cpu_of(command: list[str], repeat: int = 7) -> float:
    """The least CPU seconds of a command, its bytecode cached."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for _ in range(repeat + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times[1:])


def whole_fit(name: str, data: str, before: Path | None) -> dict[str, Any]:
    """CPU seconds and peak memory of a default fit, here and in the version before."""
    pythons = {"now": sys.executable, **({} if before is None else {"before": str(before / ".venv/bin/python")})}
    runs = {version: run_fit(python, name, data) for version, python in pythons.items()}
    cpu, memory = ({version: run[i] for version, run in runs.items()} for i in (0, 1))
    ratio = {} if before is None else {"times_before": cpu["before"] / cpu["now"]}
    return {"fit_cpu_s": cpu, "peak_mb": memory, **ratio}


def run_fit(python: str, name: str, data: str) -> tuple[float, ...]:
    environment = {**os.environ, "TAUSID_DATA": data}
    done = subprocess.run([python, "-c", FIT, name, data], check=True, capture_output=True, text=True, env=environment)
    return tuple(map(float, done.stdout.split()))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
