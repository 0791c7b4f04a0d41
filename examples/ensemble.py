"""How sure are several models of the same data, and is their mean better than one?

Trains a few models that differ only in their seed, keeps the best of them, and compares their mean with each.

    python examples/ensemble.py [--members 4]
"""

from __future__ import annotations

import argparse

import numpy as np

import tausid


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--workers", type=int, default=None)
    arguments = parser.parse_args()
    data = tausid.datasets.simulate_tanks(seed=1)
    result = tausid.fit(data.train, seed=0, ensemble=arguments.members, workers=arguments.workers)

    for member, error in zip(result.model.members, result.model.scores, strict=True):
        rmse = tausid.evaluate(member, data.test).rmse["y"]
        print(f"seed {member.provenance['seed']}: held-out error {error:.3f} of the deviation, test RMSE {rmse:.3f} V")
    simulation = result.model.simulate(data.test)
    width = np.nanmean(simulation.high - simulation.low)
    print(
        f"all together: test RMSE {tausid.evaluate(result.model, data.test).rmse['y']:.3f} V, band {width:.3f} V wide"
    )


# Members are trained by processes that read this file, too: what runs must stand under this line.
if __name__ == "__main__":
    main()
