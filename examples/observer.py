"""What does a measurement tell about the state, and how far ahead can the level be predicted?

Fits the simulated cascaded tanks, runs an extended Kalman filter over fresh data, with every fifth sample missing, and
compares predictions with the free run.

    python examples/observer.py
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tausid
from tausid import control


def main() -> None:
    """Fit, observe, predict."""
    data = tausid.datasets.simulate_tanks(seed=0)
    model = tausid.fit(data.train, seed=0).model
    noise = control.estimate_noise(model, data.train)
    print(f"Noise by {noise.source}.")
    y = data.test.y.copy()
    y[::5] = np.nan
    seen = replace(data.test, y=y)
    runs = {f"{k} ahead": control.predict_ahead(control.Observer(model, noise), seen, steps=k) for k in (1, 5)}
    print(tausid.compare({"free run": model, **runs}, data.test))


if __name__ == "__main__":
    main()
