"""Is one Runge-Kutta step per sample fine enough for my model?

Simulates a trained model with coarser and finer steps and with an adaptive solver, and prints how far apart the
outputs are. Needs the extra `adaptive` (diffrax).

    python examples/check_the_step.py
"""

from __future__ import annotations

import numpy as np

import tausid


def main() -> None:
    data = tausid.datasets.simulate_tanks(seed=2)
    model = tausid.fit(data.train, seed=0).model

    reference = model.simulate(data.test, integrator=tausid.Adaptive(rtol=1e-6, atol=1e-6)).y
    for stepper, substeps in [("euler", 1), ("heun", 1), ("rk4", 1), ("rk4", 4)]:
        y = model.simulate(data.test, integrator=tausid.FixedStep(stepper, substeps)).y
        apart = np.nanmax(np.abs(y - reference))
        print(f"{stepper:8} {substeps} substeps: at most {apart:.2e} V from the adaptive solver")


if __name__ == "__main__":
    main()
