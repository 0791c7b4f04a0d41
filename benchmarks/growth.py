"""How do time and memory of the fused rollout and its gradient grow with every size?

    python benchmarks/growth.py --out benchmarks/results

Writes `growth.csv` and `growth.png`: milliseconds of a rollout and its gradient against J, batch, hidden
width, nx and layers, one at a time from the paper's configuration; and memory against J.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from paper import CLOCKS, Sizes, make_rollout_gradient, megabytes_of, pin, rollout_flop, seconds

AXES = {
    "samples": (16, 32, 64, 128, 256, 512, 1024, 2048),
    "batch": (1, 4, 16, 32, 64, 100, 128, 256, 512, 1024),
    "hidden": (4, 8, 16, 32, 64, 100, 128, 256, 512),
    "nx": (1, 2, 4, 8, 16, 32, 64),
    "layers": (1, 2, 3, 4),
}
MEMORY_SAMPLES = (128, 512, 2048, 8192)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder for the results")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu on a machine that is shared")
    parser.add_argument("--memory-of", type=int, help="print the memory at this J and stop (its own use)")
    options = parser.parse_args()
    pin(options.core)
    if options.memory_of is not None:
        print(memory_of(options.memory_of))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    rows = time_rows(options.clock) + memory_rows()
    with (options.out / "growth.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["axis", "value", "ms", "gflops", "megabytes"])
        writer.writeheader()
        writer.writerows(rows)
    draw(
        rows, options.out / "growth.png", "The fused rollout and its gradient, from the paper's configuration, one core"
    )


def time_rows(clock: str) -> list[dict]:
    """Milliseconds and rate along each axis."""
    rows = []
    for axis, values in AXES.items():
        for value in values:
            sizes = replace(Sizes(), **{axis: value})
            run = make_rollout_gradient(sizes, "fused")
            run()
            best = min(seconds(run, clock) for _ in range(5))
            row = {"axis": axis, "value": value, "ms": 1e3 * best, "gflops": rollout_flop(sizes) / best / 1e9}
            rows.append(row)
            print(f"{axis:8} {value:5d} {row['ms']:9.2f} ms {row['gflops']:6.1f} GFLOP/s", flush=True)
    return rows


def memory_rows() -> list[dict]:
    """How far memory rises during a gradient against J, each in a process of its own."""
    rows = []
    for samples in MEMORY_SAMPLES:
        command = [sys.executable, __file__, "--memory-of", str(samples)]
        megabytes = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append({"axis": "memory", "value": samples, "megabytes": megabytes})
        print(f"memory   {samples:5d} {megabytes:9.1f} MB", flush=True)
    return rows


def memory_of(samples: int) -> float:
    """How far memory rises during a gradient of this horizon, its inputs not counted."""
    make_rollout_gradient(replace(Sizes(), samples=2), "fused")()  # XLA and the engine are loaded
    return megabytes_of(make_rollout_gradient(replace(Sizes(), samples=samples), "fused"))


def draw(rows: list[dict], path: Path, title: str) -> None:
    """A panel per axis, logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = {"memory": "samples"}
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    figure, panels = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
    for axis, panel in zip(axes, panels.flat, strict=False):
        points = [row for row in rows if row["axis"] == axis]
        quantity = "megabytes" if axis == "memory" else "ms"
        panel.loglog([row["value"] for row in points], [row[quantity] for row in points], "o-")
        panel.set_xlabel(names.get(axis, axis))
        panel.set_ylabel("MB" if axis == "memory" else "ms")
        panel.grid(visible=True, which="both", alpha=0.3)
    for panel in panels.flat[len(axes) :]:
        panel.remove()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
