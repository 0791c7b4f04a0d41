"""The paper's configuration, as data and as tausid's optimiser step, shared by all benchmarks.

Import this module before numpy, JAX or torch: it asks them for one thread each, and they read that only once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import numpy as np  # noqa: E402


@dataclass(frozen=True)
class Sizes:
    """Sizes of the paper's cascaded-tanks runs."""

    nx: int = 4
    nu: int = 1
    ny: int = 1
    past: int = 5  # samples of u and of y that the encoder sees
    hidden: int = 64
    layers: int = 2
    batch: int = 64
    samples: int = 128  # J
    record: int = 1024  # samples of the training record
    ts: float = 0.03  # Ts / tau


def pin(core: int) -> None:
    """Keep this process and its threads on one core."""
    os.sched_setaffinity(0, {core})


def make_record(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Input and output of one record, from which windows are cut; float32."""
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=(sizes.record, sizes.nu)), rng.normal(size=(sizes.record, sizes.ny))
    return u.astype(np.float32), y.astype(np.float32)


def cut_windows(sizes: Sizes, starts, u, y):
    """Past of each window as the encoder sees it, and its inputs and outputs; numpy, JAX or torch arrays.

    Args:
        sizes: sizes of the problem.
        starts: first sample of each window, at least `sizes.past`.
        u: inputs of the record.
        y: outputs of the record.

    Returns:
        Past (B, ...), inputs (J, B, nu), outputs (J, B, ny).
    """
    index = starts[None, :] + np.arange(-sizes.past, sizes.samples)[:, None]
    u, y = u[index], y[index]
    past = [*u[: sizes.past], *y[: sizes.past]]
    return past, u[sizes.past :], y[sizes.past :]


def network_products(sizes: Sizes, n_in: int, n_out: int) -> int:
    """Multiplications of one evaluation of a residual network."""
    hidden = n_in * sizes.hidden + (sizes.layers - 1) * sizes.hidden**2
    return hidden + sizes.hidden * n_out + n_in * n_out


def rollout_flop(sizes: Sizes) -> float:
    """Additions and multiplications of a rollout by RK4 and its gradient, which costs twice the rollout."""
    evaluations = 4 * (sizes.samples - 1) * sizes.batch
    return 3 * 2 * evaluations * network_products(sizes, sizes.nx + sizes.nu, sizes.nx)


def step_flop(sizes: Sizes) -> float:
    """The same of a whole optimiser step: encoder, rollout, output network."""
    encoder = sizes.batch * network_products(sizes, sizes.past * (sizes.nu + sizes.ny), sizes.nx)
    outputs = sizes.samples * sizes.batch * network_products(sizes, sizes.nx + sizes.nu, sizes.ny)
    return rollout_flop(sizes) + 3 * 2 * (encoder + outputs)


# On a core of its own both tell the same; on a shared one, only processor time leaves the others' work out.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def seconds(run: Callable[[], object], clock: str = "wall") -> float:
    """How long one call takes."""
    start = CLOCKS[clock]()
    run()
    return CLOCKS[clock]() - start


def megabytes_of(run: Callable[[], object]) -> float:
    """How far the memory of this process rises above its present state during a call (Linux).

    `getrusage` would not do: its peak covers the whole past, even that of the process this one came from.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    before = _status_kilobytes("VmRSS")
    run()
    return (_status_kilobytes("VmHWM") - before) / 1024


def _status_kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def sgemm_gflops(clock: str = "wall", n: int = 1024, repeats: int = 5) -> float:
    """The rate of numpy's own product of two large matrices in float32, best of a few."""
    a = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)
    return 2 * n**3 / min(seconds(lambda: a @ a, clock) for _ in range(repeats)) / 1e9


def make_networks(sizes: Sizes):
    """State network, output network and encoder."""
    from tausid.engine.networks import Network

    rng = np.random.default_rng(0)
    ends = [
        (sizes.nx + sizes.nu, sizes.nx),
        (sizes.nx + sizes.nu, sizes.ny),
        (sizes.past * (sizes.nu + sizes.ny), sizes.nx),
    ]
    options = {"hidden": (sizes.hidden,) * sizes.layers, "weight_range": 0.1, "dtype": np.float32}
    return tuple(Network.random(rng, n_in, n_out, **options) for n_in, n_out in ends)


def make_jax_steps(sizes: Sizes, steps: int, rollout, evaluate) -> Callable[[], object]:
    """A call that takes `steps` optimiser steps, in one compiled loop.

    Args:
        sizes: sizes of the problem.
        steps: how many optimiser steps a call takes.
        rollout: states from (state network, x0, u).
        evaluate: value of a network at points.

    Returns:
        The call; parameters and optimiser live on from one call to the next.
    """
    import jax
    import jax.numpy as jnp
    import optax

    record = tuple(jnp.asarray(array) for array in make_record(sizes))
    optimiser = optax.adam(1e-3)

    def loss(networks, starts):
        f, g, encoder = networks
        past, u, y = cut_windows(sizes, starts, *record)
        x = rollout(f, evaluate(encoder, jnp.concatenate(past, axis=-1)), u)
        return jnp.mean((evaluate(g, jnp.concatenate([x, u], axis=-1)) - y) ** 2)

    def step(_, carry):
        networks, state, key = carry
        key, here = jax.random.split(key)
        starts = jax.random.randint(here, (sizes.batch,), sizes.past, sizes.record - sizes.samples)
        updates, state = optimiser.update(jax.grad(loss)(networks, starts), state)
        return optax.apply_updates(networks, updates), state, key

    advance = jax.jit(lambda carry: jax.lax.fori_loop(0, steps, step, carry))
    networks = make_networks(sizes)
    carry = [(networks, optimiser.init(networks), jax.random.key(1))]

    def run() -> None:
        carry[0] = jax.block_until_ready(advance(carry[0]))

    return run


def make_tausid_steps(sizes: Sizes, steps: int, engine: str) -> Callable[[], object]:
    """tausid's own optimiser step, as `tausid.fit` takes it, with one of its engines."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from tausid import Record, recipes
    from tausid.engine.choice import Engine
    from tausid.training.adam import Moments, run_steps
    from tausid.training.resolve import resolve

    structure = {"nx": sizes.nx, "hidden": (sizes.hidden,) * sizes.layers, "na": sizes.past, "nb": sizes.past}
    settings = {"trainer.horizon": sizes.samples, "trainer.batch": sizes.batch, "holdout": "none"}
    recipe = recipes.windows(**structure).change(settings)
    u, y = make_record(sizes)
    problem = resolve(recipe, Record.from_arrays(u, y, ts=sizes.ts), tau=1.0, seed=1).problem
    model, source = problem.initial_model, problem.windows(problem.split.train, horizon=sizes.samples)
    fixed = eqx.partition(model.state_space, problem.trained)[1]
    state = [(problem.first_weights, Moments.start(problem.first_weights))]

    def run() -> None:
        weights, inner, _, _ = run_steps(
            *state[0],
            fixed,
            source,
            jnp.asarray(0, jnp.int32),
            jnp.asarray(steps, jnp.int32),
            jax.random.key(1),
            recipe.trainer,
            model.integrator,
            Engine(engine),
        )
        state[0] = jax.block_until_ready((weights, inner))

    return run


def make_rollout_gradient(sizes: Sizes, engine: str, repeats: int = 1) -> Callable[[], object]:
    """A call of the rollout alone and its gradient to all weights and the initial states.

    Args:
        sizes: sizes of the problem.
        engine: tausid's engine.
        repeats: how many times in one call, in a compiled loop, as a training does.

    Returns:
        The call.
    """
    import jax
    import jax.numpy as jnp

    from tausid.engine.choice import Engine
    from tausid.engine.engines import rollout
    from tausid.engine.field import VectorField
    from tausid.engine.integrators import FixedStep

    u = jnp.ones((sizes.samples, sizes.batch, sizes.nu))
    dt = jnp.full((sizes.samples - 1, sizes.batch), sizes.ts)
    start = VectorField(make_networks(sizes)[0], jnp.ones(())), jnp.ones((sizes.batch, sizes.nx))

    def total(arguments):
        return jnp.sum(rollout(*arguments, u, dt, FixedStep(), engine=Engine(engine)))

    def descend(_, arguments):
        return jax.tree.map(lambda a, d: a - 1e-9 * d, arguments, jax.grad(total)(arguments))

    run = jax.jit(lambda arguments: jax.lax.fori_loop(0, repeats, descend, arguments))
    return lambda: jax.block_until_ready(run(start))
