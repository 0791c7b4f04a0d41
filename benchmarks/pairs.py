"""Do two single-threaded trainings side by side get twice as much done as one?

    python benchmarks/pairs.py

Optimiser steps per second of the paper's configuration: one process on core 0, then two on cores 0 and 1.
Pass mark: two do at least 1.8 times as many steps as one. Needs two cores of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from paper import Sizes, make_tausid_steps, pin

STEPS = 20
GOAL = 1.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each measurement lasts")
    parser.add_argument("--worker", type=int, help="train on this core and print steps per second (its own use)")
    options = parser.parse_args()
    if options.worker is not None:
        print(steps_per_second(options.worker, options.seconds))
        return
    one = sum(run_workers([0], options.seconds))
    two = sum(run_workers([0, 1], options.seconds))
    result = {"one": one, "two": two, "ratio": two / one, "passed": two / one >= GOAL}
    print(json.dumps(result, indent=2))


def run_workers(cores: list[int], duration: float) -> list[float]:
    """Steps per second of each of the processes, started together."""
    command = [sys.executable, __file__, "--seconds", str(duration), "--worker"]
    workers = [subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, text=True) for core in cores]
    return [float(worker.communicate()[0]) for worker in workers]


def steps_per_second(core: int, duration: float) -> float:
    """How many optimiser steps a process takes per second."""
    pin(core)
    run = make_tausid_steps(Sizes(), STEPS, "fused")
    run()  # compile
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < duration:
        run()
        done += STEPS
    return done / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
