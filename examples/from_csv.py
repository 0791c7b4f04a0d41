"""How do I get from my own CSV file to a model that I can save, load and simulate?

    python examples/from_csv.py

The script first writes a CSV file as a data logger would, so that it runs anywhere.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import tausid


def write_measurements(path: Path) -> None:
    """A file with two columns of training data and two of test data, from the tank simulator."""
    data = tausid.datasets.simulate_tanks(seed=3, samples=800)
    columns = np.hstack([data.train.u, data.train.y, data.test.u, data.test.y])
    np.savetxt(path, columns, delimiter=",", header="pump,level,pump_test,level_test", comments="", fmt="%.5f")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    write_measurements(folder / "log.csv")

    train = tausid.read_csv(folder / "log.csv", inputs=["pump"], outputs=["level"], ts=4.0)
    test = tausid.read_csv(folder / "log.csv", inputs=["pump_test"], outputs=["level_test"], ts=4.0)
    test = test.renamed(inputs=["pump"], outputs=["level"])  # the same channels, by other names in this file

    result = tausid.fit(train, seed=0)
    result.model.save(folder / "tanks.safetensors")

    model = tausid.load_model(folder / "tanks.safetensors")
    score = tausid.evaluate(model, test)
    print(f"test RMSE {score.rmse['level']:.3f} V, fit {score.fit_percent['level']:.1f} %")
    every_second = model.simulate(test, dt=1.0)  # another step size than it was trained with
    print(f"{len(every_second.t)} simulated samples, one a second, from {len(test)} measured ones")


if __name__ == "__main__":
    main()
