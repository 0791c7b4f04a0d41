"""`tausid demo`: the whole path once, on the cascaded tanks."""

from __future__ import annotations

from pathlib import Path

import tausid
from tausid.cli.printing import describe_tau, print_pairs, print_scores
from tausid.cli.runs import write_simulation
from tausid.records import Dataset
from tausid.runs import MODEL
from tausid.storage import check_writable

# The official download may wait forever without internet; the demo must not.
DOWNLOAD_SECONDS = 30.0


def run_demo(out: Path, max_steps: int) -> None:
    """Identify the tanks, print tau and scores, write model, simulation and picture.

    Args:
        out: folder to write to.
        max_steps: most optimiser steps.
    """
    check_writable(out)
    data = load_tanks()
    result = tausid.fit(data.train, nx=4, seed=0, max_steps=max_steps)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    model = result.model
    simulation = model.simulate(data.test)
    print_pairs({"tau": describe_tau(model), "status": f"{result.status}: {result.message}"})
    scores = [(role, tausid.evaluate(model, getattr(data, role))) for role in ("train", "test")]
    print_scores(scores, model)
    figure = tausid.plots.plot_simulation(data.test, simulation)
    print_pairs(
        {
            "model": model.save(out / MODEL),
            "simulation": write_simulation(out / "simulation.csv", data.test, simulation),
            "picture": tausid.plots.save_figure(figure, out / "simulation.png"),
        }
    )


def load_tanks() -> Dataset:
    """The benchmark record where it can be had, simulated tanks otherwise; says which.

    Returns:
        One record to train on and one to test with.
    """
    try:
        data = tausid.datasets.load("cascaded_tanks", timeout=DOWNLOAD_SECONDS)
    except tausid.DataError as reason:
        print("The real cascaded tanks record cannot be had here, so this demo uses the built-in SIMULATOR.")
        print(f"Why: {reason}\n")
        return tausid.datasets.simulate_tanks(seed=0)
    print("This demo uses the REAL cascaded tanks record: 1024 measured samples to train on, 1024 to test.\n")
    return data
