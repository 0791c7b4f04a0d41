"""Does an unscented filter pay: how far are the states of both filters from the true ones?

    python benchmarks/observers.py --json

Plants with known equations, process and measurement noise, from states that are known but for a tenth of their size:
a motor whose speed sensor has no sign (`rectified`), and cascaded tanks whose level is at the rim at times. The filters
know equations and noise levels. Errors are those of the states over their sizes, root mean square over all runs, and of
the worst run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

import tausid
from tausid import control
from tausid.export import describe, interpreter
from tausid.model.build import Weights, build_state_space
from tausid.model.physics import AbstractPhysics, CascadedTanks, KnownPart, State

SAMPLES, SETTLING = 200, 20


@dataclass(frozen=True)
class RectifiedMotor(AbstractPhysics):
    """The plant `rectified`: a motor that turns both ways, and the size of its speed."""

    states: ClassVar = {"speed": State(0.0, "rad/s"), "current": State(0.0, "A")}
    max_dt: ClassVar = 0.02

    def derivative(self, x, u, p):
        """Acceleration, and slope of the current."""
        speed, current = x
        torque = 0.1 * current - 2e-3 * speed - 0.05 * jnp.tanh(speed / 2.0)
        return torque / 2e-3, (u[0] - current - 0.1 * speed) / 0.05

    def output(self, x, u, p):
        """The speed without its sign."""
        return (jnp.abs(x[0]),)


@dataclass(frozen=True)
class Case:
    """Equations, sampling time, limits and length of input steps, mean and size of states, noise."""

    plant: AbstractPhysics
    ts: float
    steps: tuple[float, float, int]
    middle: tuple[float, float]
    size: tuple[float, float]
    process: float  # variance that each state gains per second, over its size squared
    measurement: float  # standard deviation


CASES = {
    "rectified": Case(RectifiedMotor(), 0.04, (-7.0, 7.0, 20), (0.0, 0.0), (20.0, 3.0), 0.3, 0.4),
    "tanks": Case(CascadedTanks(), 4.0, (1.5, 3.8, 25), (6.0, 6.0), (2.0, 2.0), 2e-4, 0.05),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=40, help="runs of each plant")
    options = parser.parse_args()
    result = {name: measure(case, options.runs) for name, case in CASES.items()}
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for name, errors in result.items():
            print(name, *(f"{kind}: {all_runs:.3f}, worst {worst:.3f};" for kind, (all_runs, worst) in errors.items()))


def measure(case: Case, runs: int) -> dict[str, tuple[float, float]]:
    """Errors of all runs, and of the worst one, by filter."""
    model, size = make_model(case), np.array(case.size)
    noise = control.Noise(case.process * np.diag(size**2), np.array([[case.measurement**2]]))
    start = {"x0": np.array(case.middle), "P0": 0.01 * np.diag(size**2)}
    errors: dict[str, list[float]] = {"extended": [], "unscented": []}
    for seed in range(runs):
        record, x = noisy_run(case, model, start, np.random.default_rng(seed))
        for name, found in errors.items():
            observer = control.Observer(model, noise, **start, unscented=name == "unscented")
            states = [observer.update(*sample).x for sample in zip(record.u, record.y, record.t, strict=True)]
            found.append(float(np.mean((((np.array(states) - x) / size)[SETTLING:]) ** 2)))
    return {name: (float(np.sqrt(np.mean(e))), float(np.sqrt(np.max(e)))) for name, e in errors.items()}


def make_model(case: Case) -> tausid.Model:
    """The equations as a model, with states in their own units."""
    record = tausid.Record.from_arrays([0.0, 2.0], [0.0, 2.0], ts=case.ts)
    scaling, structure = tausid.Scaling.from_records(record), tausid.Structure(nx=2, correction="none")
    physics = KnownPart.start(case.plant, scaling, trainable=False)
    space = build_state_space(
        structure, tausid.Tau(1.0), Weights(0.0, 0.0), nu=1, ny=1, n_records=1, rng=np.random.default_rng(0),
        physics=physics,
    )  # fmt: skip
    integration = tausid.Integration(max_dt=case.plant.max_dt)
    return tausid.Model(space, scaling, structure, integration, case.ts, ("u",), ("y",), ("",), ("",))


def noisy_run(case: Case, model: tausid.Model, start: dict[str, np.ndarray], rng: np.random.Generator):
    """A record, and the states that it went through."""
    d, (low, high, length) = describe(model), case.steps
    u = np.repeat(rng.uniform(low, high, (SAMPLES // length + 1, 1)), length, axis=0)[:SAMPLES]
    x = rng.multivariate_normal(start["x0"], start["P0"])
    states, outputs = [], []
    for now in u:
        states.append(x)
        outputs.append(interpreter.evaluate(d.g, x, now) + case.measurement * rng.normal(size=1))
        noise = np.sqrt(case.process * case.ts) * np.array(case.size) * rng.normal(size=2)
        x = interpreter.step(d, x, now, now, case.ts) + noise
    return tausid.Record.from_arrays(u, np.array(outputs), ts=case.ts), np.array(states)


if __name__ == "__main__":
    main()
