"""A default fit of a very long record: does it end, how much memory does it take, and is the time left true?

    python benchmarks/long_record.py                    # 10^6 samples, two inputs
    python benchmarks/long_record.py --samples 100000 --json

The record is a simulated nonlinear plant of two states with noise. Goal: memory below the record's size plus 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

import tausid
from tausid.engine.compiled import simulate
from tausid.engine.integrators import FixedStep
from tausid.engine.networks import Network
from tausid.training.progress import ProgressUpdate, TimeLeft

NOISE = 0.02  # of the output's deviation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000, help="length of the record")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    record = make_record(options.samples)
    before = peak_mb()
    told = Told()
    result = tausid.fit(record, seed=0, progress=told)
    ended = time.monotonic()
    size = sum(array.nbytes for array in (record.u, record.y, record.t)) / 2**20
    answer: dict[str, Any] = {
        "samples": options.samples,
        "fit_s": ended - told.began,
        "record_mb": size,
        "added_mb": peak_mb() - before,
        "error_over_noise": float(tausid.evaluate(result.model, record).nrmse["y"] / NOISE),
        "time_left": told.beside_truth(ended),
        "message": result.message,
    }
    print(json.dumps(answer, indent=None if options.json else 2))


def make_record(samples: int) -> tausid.Record:
    """`dx/dt = -x + tanh(W x + B u)` with inputs that are held for a while."""
    rng = np.random.default_rng(0)
    f = Network.random(rng, 4, 2, hidden=(6,), activation="tanh", bias=True, weight_range=1.0)
    f.linear[:, :2] = [[-1.0, 0.5], [-0.5, -0.7]]
    g = Network.random(rng, 4, 1, weight_range=1.0)
    u = np.repeat(rng.normal(size=(samples // 20 + 1, 2)), 20, axis=0)[:samples]
    _, y = simulate(f, g, 1.0, None, FixedStep(), np.zeros(2), u, np.full(samples - 1, 0.1))
    y += NOISE * y.std() * rng.normal(size=y.shape)
    return tausid.Record.from_arrays(u, y, ts=0.1)


class Told:
    """The times left that a user would have read."""

    def __init__(self) -> None:
        self.began, self.clock, self.left = time.monotonic(), TimeLeft(), [(0.0, 0.0)]

    def __call__(self, update: ProgressUpdate) -> None:
        """Take note of an update."""
        now = time.monotonic()
        self.clock.update(update, now)
        self.left.append((now, self.clock.at(now)))

    def beside_truth(self, ended: float) -> list[dict[str, float]]:
        """After some shares of the time: seconds left as they were told, and as they were."""
        wanted = [self.began + share * (ended - self.began) for share in (0.1, 0.25, 0.5, 0.75, 0.9)]
        read = [max(pair for pair in self.left if pair[0] <= moment) for moment in wanted]
        return [
            {"told": max(left - (at - now), 0.0), "true": ended - at}
            for at, (now, left) in zip(wanted, read, strict=True)
        ]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
