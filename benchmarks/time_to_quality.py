"""How much CPU time do other libraries need for what a default fit of the cascaded tanks reaches?

    python benchmarks/time_to_quality.py --json --deepsi ../deepsi/bin/python --jax-sysid ../jax-sysid/bin/python

Quality is the error of the free run over the training record, after the official window of 50 samples. Each library
runs on the same pinned core, in one thread and in an environment of its own: `pip install torch==2.13.0 deepSI==0.4.4`
in one, `pip install jax-sysid==1.1.0` (it brings the JAX that it needs) in another. It trains until its free run is as
good as tausid's, or until `--minutes` of CPU time, imports included, are over; checking its free run is not counted.
Goal: 50 x the CPU time of tausid.

deepSI: `SUBNET_CT` and `fit` with their defaults (past of 20 samples, windows of 50, batches of 256, Adam, tau of 50
samples), 4 states, initial state by its encoder. jax-sysid: `CTModel` as in its example of a nonlinear continuous-time
model (10 sigmoid units, Heun with 10 steps a sample, 0.5 units of time a sample as nothing scales time, 2000 iterations
of L-BFGS, then anew from the next seed), 4 states, initial state trained along. Before L-BFGS it takes the 1000 small
steps of Adam of its README: the example's 100 large ones diverge on the tanks, and L-BFGS ends at once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", TQDM_DISABLE="1")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import numpy as np

STATES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    parser.add_argument("--minutes", type=float, default=10, help="longest CPU time of each peer")
    parser.add_argument("--deepsi", metavar="PYTHON", help="interpreter of an environment with deepSI")
    parser.add_argument("--jax-sysid", metavar="PYTHON", help="interpreter of an environment with jax-sysid")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)  # a library, in its own process
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--goal", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        RUNS[options.run](Course(options.goal, 60 * options.minutes), options.record)
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.core})
    result = compare(options.minutes, {"jax_sysid": options.jax_sysid, "deepsi": options.deepsi})
    print(json.dumps(result, indent=None if options.json else 2))


def compare(minutes: float, pythons: dict[str, str | None]) -> dict[str, Any]:
    """What tausid reaches, and how many times its CPU time the peers need for it."""
    with tempfile.TemporaryDirectory() as folder:
        record = str(Path(folder) / "record.npz")
        ours = run("tausid", sys.executable, record, 0.0, minutes)[-1]
        peers = {name: run(name, python, record, ours["rmse"], minutes) for name, python in pythons.items() if python}
    times = {}
    for name, course in peers.items():
        ratio, rmse = course[-1]["cpu_s"] / ours["cpu_s"], course[-1]["rmse"]
        times[name] = ratio if rmse <= ours["rmse"] else f"> {ratio:.1f}, reached {rmse:.3f} V"
    return {"tausid": ours, "times_peers": times, "courses": peers}


def run(name: str, python: str, record: str, goal: float, minutes: float) -> list[dict[str, float]]:
    """CPU seconds and errors of a library in its own process, which are also shown as they come."""
    command = [python, __file__, "--run", name, "--record", record, "--goal", str(goal), "--minutes", str(minutes)]
    course = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("{"):
                course.append(json.loads(line))
                print(name, line, end="", file=sys.stderr, flush=True)
    if process.returncode or not course:
        raise SystemExit(f"{name} failed with {process.returncode} after {len(course)} lines.")
    return course


class Course:
    """The best error so far after how much training, told every ten seconds; ends the process when it is over."""

    def __init__(self, goal: float, seconds: float) -> None:
        self.goal, self.seconds = goal, seconds
        self.best, self.told, self.checking = np.inf, 0.0, 0.0

    def add(self, rmse: float, checking: float = 0.0) -> None:
        """Note the error of a free run that took so many seconds of checking."""
        self.checking += checking
        self.best = min(float(rmse), self.best) if np.isfinite(rmse) else self.best
        cpu = time.process_time() - self.checking
        over = self.best <= self.goal or cpu >= self.seconds
        if over or cpu >= self.told + 10:
            self.told = cpu
            print("\n" + json.dumps({"cpu_s": cpu, "rmse": self.best}), flush=True)
        if over:
            os._exit(0)  # also from within a callback of XLA


def run_tausid(course: Course, path: str) -> None:
    """The default fit; leaves the record for the others."""
    import tausid

    data = tausid.datasets.load("cascaded_tanks")
    fitted = tausid.fit(data.train, seed=0, progress=None)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(part.ru_utime + part.ru_stime for part in used)
    rmse = tausid.evaluate(fitted.model, data.train, skip=data.score_skip).rmse
    np.savez(path, u=data.train.u, y=data.train.y, ts=data.train.ts, skip=data.score_skip)
    print(json.dumps({"cpu_s": cpu, "rmse": max(rmse.values())}), flush=True)


def run_deepsi(course: Course, path: str) -> None:
    os.environ["HOME"] = str(Path(path).parent)  # where its checkpoints go
    import deepSI
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = np.load(path)
    record = deepSI.Input_output_data(data["u"][:, 0], data["y"][:, 0], sampling_time=float(data["ts"]))
    nu, ny, norm = deepSI.get_nu_ny_and_auto_norm(record)
    model = deepSI.SUBNET_CT(nu, ny, norm, nx=STATES)
    skip = int(data["skip"]) - max(model.na, model.nb)

    def check(model: Any, *arrays: Any) -> Any:
        began = time.process_time()
        error = (model(*arrays) - arrays[-1])[0, skip:]
        course.add(torch.sqrt(torch.mean(error**2)).item(), time.process_time() - began)
        return torch.mean(error**2) / norm.ystd**2

    deepSI.fit(model, record, record, n_its=10**9, val_freq=50, val_fun=check)


def run_jax_sysid(course: Course, path: str) -> None:
    import jax
    import jax.numpy as jnp
    from jax_sysid.models import CTModel
    from jax_sysid.utils import standard_scale

    jax.config.update("jax_enable_x64", True)
    data = np.load(path)
    (y, _, y_gain), (u, *_), skip = standard_scale(data["y"]), standard_scale(data["u"]), int(data["skip"])

    def state(x: Any, u: Any, t: Any, params: list[Any]) -> Any:
        A, B, _, W1, W2, W3, b1, b2 = params
        return A @ x + B @ u + W3 @ jax.nn.sigmoid(W1 @ x + W2 @ u + b1) + b2

    for seed in itertools.count(1):
        rng, hidden = np.random.RandomState(seed), 10
        model = CTModel(STATES, 1, 1, state_fcn=state, output_fcn=lambda x, u, t, params: params[2] @ x)
        A, B, C = -np.eye(STATES), 0.1 * rng.randn(STATES, 1), 0.1 * rng.randn(1, STATES)
        layers = [0.1 * rng.randn(hidden, STATES), 0.5 * rng.randn(hidden, 1), 0.5 * rng.randn(STATES, hidden)]
        model.integration_options()
        model.init(params=[A, B, C, *layers, np.zeros(hidden), np.zeros(STATES)])
        model.loss(rho_x0=1e-4, rho_th=1e-4)
        model.optimization(adam_epochs=1000, lbfgs_epochs=2000, iprint=-1)
        own_loss = model.output_loss

        def watched(y_hat: Any, y: Any, own_loss: Any = own_loss) -> Any:  # the loss is that of the free run
            error = (y_hat - y).reshape(-1)[skip:] / y_gain
            jax.debug.callback(course.add, jnp.sqrt(jnp.mean(error**2)))
            return own_loss(y_hat, y)

        model.output_loss = watched
        model.fit(y, u, 0.5 * np.arange(len(y)))


RUNS = {"tausid": run_tausid, "deepsi": run_deepsi, "jax_sysid": run_jax_sysid}

if __name__ == "__main__":
    main()
