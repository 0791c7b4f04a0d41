"""How does the plant change with its level?

Fits the simulated cascaded tanks, and linearizes the model at several levels: static gain and time constants.

    python examples/linearize.py
"""

from __future__ import annotations

import tausid
from tausid import control


def main() -> None:
    """Fit, linearize over the pump's voltage, and draw."""
    data = tausid.datasets.simulate_tanks(seed=0)
    model = tausid.fit(data.train, seed=0).model
    voltages = [[2.5], [3.0], [3.5]]
    table = control.linearize_over(model, u=voltages)
    print(table)
    tausid.plots.save_figure(table.figure(), "linearizations.png")


if __name__ == "__main__":
    main()
