"""How do the compiled normal equations grow with samples, weights, states, hidden layers and records?

    python benchmarks/second_order_growth.py --out benchmarks/results

Writes `second_order_growth.csv` and `.png`: milliseconds on one core along each axis, from 1024 samples in one record,
2 states, and one hidden layer of 20 units. The table also has the megabytes that the first call adds.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from growth import draw
from paper import pin
from second_order import best_ms, make, peak_mb

SIZES = {"samples": 1024, "nx": 2, "hidden": 20, "layers": 1, "count": 1}
AXES = {
    "samples": ("samples", (1000, 10_000, 100_000, 1_000_000)),
    "weights": ("hidden", (5, 10, 20, 40, 80, 160)),
    "states": ("nx", (1, 2, 3, 4, 6, 8, 12)),
    "hidden layers": ("layers", (1, 2)),
    "records": ("count", (1, 4, 16, 64, 256)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder for the results")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    options = parser.parse_args()
    pin(options.core)
    rows = [row_of(axis, name, value) for axis, (name, values) in AXES.items() for value in values]
    with (options.out / "second_order_growth.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["axis", "value", "weights", "ms", "megabytes"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, options.out / "second_order_growth.png", "The compiled normal equations, one core")


def row_of(axis: str, name: str, value: int) -> dict:
    """Milliseconds of the normal equations, and what their first call adds to the memory of the process."""
    error, _, theta, x0 = make(**{**SIZES, name: value})
    before = peak_mb()
    error.normal(theta, x0)
    added, ms = peak_mb() - before, best_ms(lambda: error.normal(theta, x0), repeat=5)
    shown = len(theta) if axis == "weights" else value
    print(f"{axis:14} {shown:8d} {ms:9.2f} ms {added:6.1f} MB", flush=True)
    return {"axis": axis, "value": shown, "weights": len(theta), "ms": ms, "megabytes": added}


if __name__ == "__main__":
    main()
