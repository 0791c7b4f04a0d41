"""What if I know most of the equations?

A heater in a room: the physics are known but for two numbers, and but for radiation, which a network has to find.

    python examples/physics.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tausid
from tausid.model.physics import AbstractPhysics, Parameter, State


@dataclass(frozen=True)
class Heater(AbstractPhysics):
    """`capacity dT/dt = power - loss (T - outside)`; the temperature is measured."""

    capacity: Parameter = Parameter(500.0, lower=0.0, unit="J/K")
    loss: Parameter = Parameter(1.0, lower=0.0, unit="W/K")
    outside: float = 20.0

    states = {"temperature": State(20.0, "degC")}

    def derivative(self, x, u, p):
        """How fast it warms up."""
        return ((u[0] - p.loss * (x[0] - p.outside)) / p.capacity,)

    def output(self, x, u, p):
        """What the sensor says."""
        return (x[0],)


def measure(samples: int, *, seed: int, ts: float = 20.0) -> tausid.Record:
    """The real heater, which radiates, too: 300 J/K, 0.4 W/K, and a loss with the fourth power."""
    random = np.random.default_rng(seed)
    power = np.repeat(random.uniform(0.0, 200.0, samples // 10 + 1), 10)[:samples]
    temperature = np.full(samples, 20.0)
    for k in range(samples - 1):
        t = temperature[k]
        for _ in range(20):
            radiated = 5e-9 * ((t + 273.0) ** 4 - 293.0**4)
            t += ts / 20 * (power[k] - 0.4 * (t - 20.0) - radiated) / 300.0
        temperature[k + 1] = t
    y = temperature + 0.2 * random.standard_normal(samples)
    return tausid.Record.from_arrays(power, y, ts=ts, units={"u": "W", "y": "degC"}, name=f"heater {seed}")


def main() -> None:
    train, test = measure(600, seed=0), measure(400, seed=1)

    for correction in ("none", "network"):
        model = tausid.fit(train, physics=Heater(), settings={"structure.correction": correction}, seed=0).model
        rmse = tausid.evaluate(model, test).rmse["y"]
        print(f"correction {correction}: test RMSE {rmse:.3f} degC")
        for name, parameter in model.physics.parameters.items():
            print(f"    {name} = {parameter}")

    model.save("heater.safetensors")
    again = tausid.load_model("heater.safetensors", physics=Heater)
    print(f"the model from its file: test RMSE {tausid.evaluate(again, test).rmse['y']:.3f} degC")


if __name__ == "__main__":
    main()
