"""How long does a free run of a million samples take, and how much memory?

    python benchmarks/simulate.py --json

The paper's model, one trajectory, RK4, on one pinned core: tausid `fused` and `scan`, deepSI's own
`simulate`, and a plain loop in numpy. The slow ones run fewer samples; all are told as microseconds a sample.
Pass marks: at least 30 times faster than deepSI, and at most 200 MB more than before the run.
"""

from __future__ import annotations

import argparse
import json
import warnings
from importlib.util import find_spec

from paper import CLOCKS, Sizes, make_networks, make_record, megabytes_of, pin, seconds

SAMPLES = {"fused": 1_000_000, "scan": 100_000, "deepsi": 2_000, "numpy": 5_000}
GOALS = {"times_deepsi": 30.0, "megabytes": 200.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu on a machine that is shared")
    options = parser.parse_args()
    pin(options.core)
    result = measure(options.clock)
    print(json.dumps(result, indent=2) if options.json else as_text(result))


def measure(clock: str) -> dict:
    """Microseconds a sample by name, and what the long free run added to the peak memory."""
    runs = {"fused": make_tausid("fused")}
    runs["fused"](1000)()  # XLA and the engine are loaded
    megabytes = megabytes_of(lambda: runs["fused"](SAMPLES["fused"])())
    runs["scan"] = make_tausid("scan")
    runs["numpy"] = make_numpy()
    if find_spec("deepSI"):
        runs["deepsi"] = make_deepsi()
    microseconds = {}
    for name, make in runs.items():
        run = make(SAMPLES[name])
        run()  # compile
        microseconds[name] = min(seconds(run, clock) for _ in range(3)) / SAMPLES[name] * 1e6
    result = {
        "microseconds_per_sample": microseconds,
        "million_samples_s": microseconds["fused"],
        "megabytes": megabytes,
        "times_faster": {name: t / microseconds["fused"] for name, t in microseconds.items() if name != "fused"},
        "passed": {"megabytes": megabytes <= GOALS["megabytes"]},
    }
    if "deepsi" in microseconds:
        result["passed"]["times_deepsi"] = result["times_faster"]["deepsi"] >= GOALS["times_deepsi"]
    return result


def make_tausid(engine: str):
    """The rollout alone, without a gradient."""
    import jax
    import jax.numpy as jnp

    from tausid.engine.choice import Engine
    from tausid.engine.engines import rollout
    from tausid.engine.field import VectorField
    from tausid.engine.integrators import FixedStep

    field = VectorField(make_networks(Sizes())[0], jnp.ones(()))
    simulate = jax.jit(lambda x0, u, dt: rollout(field, x0, u, dt, FixedStep(), engine=Engine(engine)))

    def make(samples: int):
        sizes = Sizes(record=samples)
        x0, u = jnp.zeros((1, sizes.nx)), jnp.asarray(make_record(sizes)[0][:, None])
        dt = jnp.full((samples - 1, 1), sizes.ts)
        return lambda: simulate(x0, u, dt).block_until_ready()

    return make


def make_numpy():
    """A plain loop over samples."""
    import numpy as np

    network = make_networks(Sizes())[0]
    linear = np.asarray(network.linear)
    weights = [np.asarray(w) for w in network.weights]
    biases = [np.asarray(b) for b in network.biases]

    def f(x, u):
        z = np.concatenate([x, u])
        a = z
        for w, b in zip(weights[:-1], biases, strict=True):
            a = w @ a + b
            a = np.maximum(a, 0.01 * a)
        return linear @ z + weights[-1] @ a

    def make(samples: int):
        sizes = Sizes(record=samples)
        u, h = make_record(sizes)[0], np.float32(sizes.ts)

        def run() -> None:
            x = np.zeros(sizes.nx, np.float32)
            for u_now in u[:-1]:
                k1 = f(x, u_now)
                k2 = f(x + h / 2 * k1, u_now)
                k3 = f(x + h / 2 * k2, u_now)
                k4 = f(x + h * k3, u_now)
                x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        return run

    return make


def make_deepsi():
    """deepSI's own simulation, without a gradient; it computes the outputs too."""
    import deepSI
    import torch
    from peers import make_deepsi_model

    model = make_deepsi_model(Sizes())

    def make(samples: int):
        record = deepSI.Input_output_data(*make_record(Sizes(record=samples)), sampling_time=Sizes().ts)

        def run() -> None:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.simulate(record)

        return run

    return make


def as_text(result: dict) -> str:
    """The same as a small table."""
    lines = [f"{name:8} {value:10.2f} us a sample" for name, value in result["microseconds_per_sample"].items()]
    lines.append(f"a million samples: {result['million_samples_s']:.2f} s, {result['megabytes']:.0f} MB")
    lines += [f"{'reached' if ok else 'MISSED'}: {name} {GOALS[name]:g}" for name, ok in result["passed"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
