"""What does tau do, and can it be trained?

Trains the same networks from random weights with three fixed values of tau and with a trained one, a few seeds each,
and prints the free-run errors on the test record side by side.

    python examples/trained_tau.py [--steps 800] [--seeds 2]
"""

from __future__ import annotations

import argparse

import tausid


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    data = tausid.datasets.simulate_tanks(seed=1)

    starts = {
        "tau = 1 s (no normalization)": tausid.Tau(1.0),
        "tau = 74 s": tausid.Tau(74.0),
        "tau = 4000 s": tausid.Tau(4000.0),
        "tau trained from 40 s": tausid.Tau(40.0, trainable=True),
    }
    for label, tau in starts.items():
        for seed in range(arguments.seeds):
            settings = {"trainer.steps": arguments.steps}
            result = tausid.fit(data.train, tau=tau, seed=seed, recipe="windows", settings=settings, progress=None)
            rmse = tausid.evaluate(result.model, data.test).rmse["y"]
            print(f"{label:30} seed {seed}: test RMSE {rmse:.3f} V, {result.status}, tau = {result.model.tau:.1f} s")


if __name__ == "__main__":
    main()
