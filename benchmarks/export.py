"""How large is an exported model, and how long does it take for a step?

    python benchmarks/export.py --json

A model of the cascaded tanks (2 states, 16 hidden units, RK4), one step of one sample on one pinned core: C99 in both
precisions, also with an update of its observer, CasADi, onnxruntime, the interpreter, `control.Simulator`, an update of
`control.Observer`, and `Model.simulate` over a long record. Needs a C compiler, the
extra `export` and onnxruntime. It only measures; accuracy is a matter of the tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from paper import CLOCKS, pin, seconds

import tausid
from tausid import control
from tausid.export import describe, fmu, interpreter, to_casadi, to_onnx, write_model

DRIVER = """
#include <stdio.h>
#include <time.h>
#include "tanks.h"
int main(void) {
  tanks_real x[tanks_NX], u[1] = {3}, y[1];
  tanks_init(x);
  const clock_t start = clock();
  for (int i = 0; i < 1000000; ++i) { tanks_step(x, u, u, 4); tanks_output(x, u, y); }
  const clock_t middle = clock();
  tanks_observer o;
  tanks_real process[] = {1e-4, 0, 0, 1e-4}, measurement[] = {1e-4};
  tanks_observer_init(&o, process, measurement);
  for (int i = 0; i < 100000; ++i) tanks_observer_update(&o, u, y, 4);
  printf("%g %g", (double)(middle - start) / CLOCKS_PER_SEC, 10.0 * (double)(clock() - middle) / CLOCKS_PER_SEC);
  return y[0] > 1e9 || o.x[0] > 1e9;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu on a machine that is shared")
    options = parser.parse_args()
    pin(options.core)
    model = make_model()
    result = {"bytes": {}, "microseconds_per_step": {}}
    for name, flags in {"c": [], "c_float": ["-Dtanks_FLOAT"]}.items():
        times = result["microseconds_per_step"]
        result["bytes"][name], times[name], times[f"{name}_observer"] = compiled(model, flags)
    result["microseconds_per_step"] |= in_python(model, options.clock)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print("\n".join(f"{key:16} {value:8.2f} us" for key, value in result["microseconds_per_step"].items()))
        print("\n".join(f"{key:16} {value:8d} bytes of code and constants" for key, value in result["bytes"].items()))


def make_model() -> tausid.Model:
    """One fit of a given structure."""
    given = {"network": "mlp", "hidden": (16,), "activation": "tanh", "nonlinear_g": False}
    recipe = tausid.recipes.default(nx=2, **given).change({"holdout": "none", "search": "fixed"})
    return tausid.fit(tausid.datasets.simulate_tanks(seed=0).train, recipe=recipe, seed=0, progress=None).model


def compiled(model: tausid.Model, flags: list[str]) -> tuple[int, float, float]:
    """Bytes of code and constants, and microseconds a step, and an update of the observer."""
    compiler = [fmu.find_compiler() or "cc", "-std=c99", "-O2", *flags]
    with tempfile.TemporaryDirectory() as place:
        write_model(model, "c", place, name="tanks")
        (Path(place) / "driver.c").write_text(DRIVER)
        subprocess.run([*compiler, "-c", "tanks.c"], cwd=place, check=True)
        text = subprocess.check_output(["size", "tanks.o"], cwd=place, text=True).splitlines()[1].split()[0]
        subprocess.run([*compiler, "driver.c", "tanks.c", "-lm", "-o", "driver"], cwd=place, check=True)
        runs = [subprocess.check_output(["./driver"], cwd=place, text=True).split() for _ in range(3)]
        return int(text), *(min(float(run[i]) for run in runs) for i in (0, 1))


def in_python(model: tausid.Model, clock: str) -> dict[str, float]:
    """Microseconds a step, by what computes it."""
    description = describe(model)
    x, u, options = description.x0, np.array([3.0]), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(to_onnx(description)["step"].SerializeToString(), options)
    rows = {"x": x[None], "u": u[None], "u_next": u[None], "dt": np.array([[4.0]])}
    step = to_casadi(description)["step"]
    simulator = control.Simulator(model)
    observer = control.Observer(model, control.Noise(1e-4 * np.eye(2), 1e-4 * np.eye(1)))
    record = tausid.Record.from_arrays(np.full(100_000, 3.0), np.full(100_000, 5.0), ts=4.0)
    runs = {
        "casadi": (1000, lambda: [step(x, u, u, 4.0) for _ in range(1000)]),
        "onnxruntime": (1000, lambda: [session.run(None, rows) for _ in range(1000)]),
        "simulator": (1000, lambda: [simulator.step(u, 4.0) for _ in range(1000)]),
        "observer": (100, lambda: [observer.update(u, [5.0], (observer.t or 0.0) + 4.0) for _ in range(100)]),
        "interpreter": (1000, lambda: [interpreter.step(description, x, u, u, 4.0) for _ in range(1000)]),
        "simulate": (len(record), lambda: model.simulate(record, x0=x)),
    }
    return {name: min(seconds(run, clock) for _ in range(3)) / n * 1e6 for name, (n, run) in runs.items()}


if __name__ == "__main__":
    main()
