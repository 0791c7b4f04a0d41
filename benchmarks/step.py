"""How long does one optimiser step of the paper's configuration take, side by side with other libraries?

    python benchmarks/step.py --json

One process on one pinned core, all contenders in turn in every round, so that the machine's moods hit them
alike; medians over the rounds. Pass marks: a step at least 12 times faster than deepSI's; at least 60 % of
the core's own sgemm rate in the whole step and 75 % in the rollout alone. Peers that are not installed
(`benchmarks/requirements.txt`) are left out and named.
"""

from __future__ import annotations

import argparse
import json
import statistics
from importlib.util import find_spec

from paper import (
    CLOCKS,
    Sizes,
    make_rollout_gradient,
    make_tausid_steps,
    pin,
    rollout_flop,
    seconds,
    sgemm_gflops,
    step_flop,
)

STEPS = 5  # optimiser steps per timed call
NEEDS = {"deepsi": "deepSI", "torchdiffeq": "torchdiffeq", "torch": "torch", "diffrax": "diffrax"}
GOALS = {"times_deepsi": 12.0, "share_step": 0.60, "share_rollout": 0.75}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=9, help="rounds over all contenders")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu on a machine that is shared")
    options = parser.parse_args()
    pin(options.core)
    result = measure(Sizes(), options.rounds, options.clock)
    print(json.dumps(result, indent=2) if options.json else as_text(result))


def measure(sizes: Sizes, rounds: int, clock: str) -> dict:
    """Times of all contenders, the core's rate, and the shares of it."""
    runs = make_contenders(sizes)
    rollout = make_rollout_gradient(sizes, "fused", STEPS)
    for run in (*runs.values(), rollout):
        run()  # compile
    times: dict[str, list[float]] = {name: [] for name in (*runs, "rollout", "sgemm")}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run, clock) / STEPS)
        times["rollout"].append(seconds(rollout, clock) / STEPS)
        times["sgemm"].append(sgemm_gflops(clock))
    return summarise(sizes, times, missing=[name for name in NEEDS if name not in runs])


def make_contenders(sizes: Sizes) -> dict:
    """A call of `STEPS` optimiser steps for each library that is installed."""
    from peers import PEERS

    runs = {name: make(sizes, STEPS) for name, make in PEERS.items() if find_spec(NEEDS[name])}
    for engine in ("scan", "fused"):
        runs[engine] = make_tausid_steps(sizes, STEPS, engine)
    return runs


def summarise(sizes: Sizes, times: dict[str, list[float]], missing: list[str]) -> dict:
    """Medians, spreads, ratios taken round by round, and whether the pass marks are reached."""
    steps = {name: values for name, values in times.items() if name not in ("rollout", "sgemm")}
    share_step = [step_flop(sizes) / t / 1e9 / peak for t, peak in zip(times["fused"], times["sgemm"], strict=True)]
    share_rollout = [
        rollout_flop(sizes) / t / 1e9 / peak for t, peak in zip(times["rollout"], times["sgemm"], strict=True)
    ]
    result = {
        "step_ms": {name: 1e3 * statistics.median(values) for name, values in steps.items()},
        "step_ms_range": {name: [1e3 * min(values), 1e3 * max(values)] for name, values in steps.items()},
        "rollout_ms": 1e3 * statistics.median(times["rollout"]),
        "sgemm_gflops": statistics.median(times["sgemm"]),
        "share_of_peak": {"step": statistics.median(share_step), "rollout": statistics.median(share_rollout)},
        "times_faster": {
            name: statistics.median(a / b for a, b in zip(values, times["fused"], strict=True))
            for name, values in steps.items()
            if name != "fused"
        },
        "missing": missing,
    }
    result["passed"] = {
        "share_step": result["share_of_peak"]["step"] >= GOALS["share_step"],
        "share_rollout": result["share_of_peak"]["rollout"] >= GOALS["share_rollout"],
    }
    if "deepsi" in steps:
        result["passed"]["times_deepsi"] = result["times_faster"]["deepsi"] >= GOALS["times_deepsi"]
    return result


def as_text(result: dict) -> str:
    """The same as a small table."""
    lines = [f"{'':12} {'ms a step':>10} {'from':>8} {'to':>8} {'fused is':>9}"]
    for name, value in result["step_ms"].items():
        low, high = result["step_ms_range"][name]
        times = result["times_faster"].get(name)
        lines.append(f"{name:12} {value:10.1f} {low:8.1f} {high:8.1f} {f'{times:.1f} x' if times else '':>9}")
    share = result["share_of_peak"]
    lines.append(
        f"sgemm {result['sgemm_gflops']:.0f} GFLOP/s; fused step {share['step']:.0%} of it, "
        f"rollout alone {share['rollout']:.0%}"
    )
    lines += [f"{'reached' if ok else 'MISSED'}: {name} {GOALS[name]:g}" for name, ok in result["passed"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
