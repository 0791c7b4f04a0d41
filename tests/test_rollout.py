"""One grid for all implementations of the rollout, and oracles that know nothing of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from tausid.engine import fused, library
from tausid.engine.choice import Engine
from tausid.engine.engines import describe_engine, evaluate, rollout
from tausid.engine.field import VectorField
from tausid.engine.fused import fused_missing, rollout_fused, why_not_fused
from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import Adaptive, FixedStep
from tausid.engine.library import instruction_sets
from tausid.engine.networks import Network, activate
from tausid.engine.scan import rollout_scan
from tausid.engine.steppers import STEPPERS
from tausid.errors import ConfigError

# Rounding grows with the number of additions; one unit in the last place is 1.2e-7 or 2.2e-16.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}

needs_fused = pytest.mark.skipif(fused_missing() is not None, reason=f"the fused engine is missing: {fused_missing()}")
ENGINES = [
    pytest.param("scan", id="scan"),
    *[pytest.param(isa, id=f"fused-{isa}", marks=needs_fused) for isa in instruction_sets() or ["none"]],
]


RK4 = FixedStep()


@dataclass(frozen=True)
class Case:
    """Sizes and settings of one rollout; the defaults are small and odd."""

    batch: int = 5
    samples: int = 7
    nx: int = 3
    nu: int = 2
    hidden: tuple[int, ...] = (7, 5)
    activation: str = "leaky_relu"
    integrator: FixedStep = RK4


# Every stepper, hold, activation and number of layers, in as few compilations as that takes.
GRID = {
    "paper": Case(64, 12, 4, 1, (64, 64)),
    "all ones": Case(1, 2, 1, 1, (1,), "tanh", FixedStep("euler", hold="first")),
    "no input": Case(nu=0, activation="relu", integrator=FixedStep("heun", substeps=2)),
    "one sample": Case(samples=1),
    "one trajectory": Case(1, 30, 3, 2, (33,), "elu", FixedStep("midpoint", hold="first")),
    "primes": Case(13, 7, 5, 3, (17, 23), "sigmoid", FixedStep("rk4", 3, ("zero", "first", "first"))),
    "one more than a vector": Case(17, 4, 9, 9, (17, 33, 17), "tanh", FixedStep("heun", hold="first")),
    "one less than a tile": Case(63, 3, 8, 1, (8, 31, 20, 15), "leaky_relu", FixedStep("midpoint", 2)),
    "more states than units": Case(6, 5, 40, 3, (3, 4), "relu", FixedStep("rk4", hold="first")),
    "1000 trajectories": Case(1000, 3, 2, 2, (16, 16), "elu", FixedStep("heun", hold=("first", "zero"))),
    "10000 steps": Case(2, 10_001, 1, 1, (4,), "tanh", FixedStep("euler")),
    "wide": Case(10, 3, 2, 1, (130, 70), "sigmoid", FixedStep("euler", 2)),
}


def make_problem(case: Case, dtype: type = np.float64) -> tuple[VectorField, jax.Array, jax.Array, jax.Array]:
    """Random weights, states, inputs and steps; the states decay, so that long rollouts stay finite."""
    rng = np.random.default_rng(1)

    def draw(*shape: int, scale: float = 1.0) -> np.ndarray:
        return scale * rng.normal(size=shape)

    sizes = (case.nx + case.nu, *case.hidden, case.nx)
    weights = tuple(draw(m, k, scale=k**-0.5) for k, m in pairwise(sizes))
    biases = tuple(draw(m) for m in case.hidden)
    linear = draw(case.nx, sizes[0], scale=0.5) - 2 * np.eye(case.nx, sizes[0])
    rate = rng.uniform(0.5, 1.5, case.nx)
    dt = rng.uniform(0.05, 0.2, (case.samples - 1, case.batch))
    x0, u = draw(case.batch, case.nx), draw(case.samples, case.batch, case.nu)
    # Cast by numpy: JAX would compile a program for every shape.
    weights, biases, linear, rate, *rest = jax.tree.map(
        lambda a: jnp.asarray(a.astype(dtype)), (weights, biases, linear, rate, x0, u, dt)
    )
    return VectorField(Network(linear, weights, biases, activation=case.activation), rate), *rest


# Each activation and its slope, in numpy.
NUMPY_ACTIVATIONS = {
    "leaky_relu": (lambda a: np.where(a > 0, a, 0.01 * a), lambda a: np.where(a > 0, 1.0, 0.01)),
    "relu": (lambda a: np.maximum(a, 0), lambda a: np.where(a > 0, 1.0, 0.0)),
    "tanh": (np.tanh, lambda a: 1 / np.cosh(a) ** 2),
    "elu": (lambda a: np.where(a > 0, a, np.expm1(a)), lambda a: np.where(a > 0, 1.0, np.exp(a))),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), lambda a: 1 / (2 + np.exp(a) + np.exp(-a))),
}


def numpy_network(network: Network, z: np.ndarray):
    """The value at the rows of `z`, and what takes its gradient to those of (linear, weights, biases) and `z`."""
    activate, slope = NUMPY_ACTIVATIONS[network.activation]
    weights, biases = network.weights, network.biases
    before, layers = [], [z]
    for weight, bias in zip(weights[:-1], biases, strict=True):
        before.append(layers[-1] @ weight.T + bias)
        layers.append(activate(before[-1]))

    def back(grad: np.ndarray) -> tuple[tuple, np.ndarray]:
        in_weights, in_biases = [grad.T @ layers[-1]], []
        into = grad @ weights[-1]
        for weight, argument, below in zip(weights[-2::-1], before[::-1], layers[-2::-1], strict=True):
            into = into * slope(argument)
            in_weights.insert(0, into.T @ below)
            in_biases.insert(0, into.sum(axis=0))
            into = into @ weight
        return (grad.T @ z, in_weights, in_biases), into + grad @ network.linear

    return z @ network.linear.T + layers[-1] @ weights[-1].T, back


def numpy_rollout(case: Case, problem, grad_x: np.ndarray):
    """A second implementation, straight from the tableau: states, and gradients by hand to all arguments."""
    field, x0, u, dt = jax.tree.map(np.asarray, problem)
    tableau, n, nx = STEPPERS[case.integrator.stepper], case.integrator.substeps, x0.shape[1]
    slopes = np.asarray(hold_slopes(case.integrator.hold, u.shape[2]))
    parts = [(j, i) for j in range(len(dt)) for i in range(n)]
    x, states, tape = x0, [x0], []
    for j, i in parts:
        h, k, backs = dt[j][:, None] / n, [], []
        for row, c in zip(tableau.a, tableau.c, strict=True):
            inside = x + h * sum(weight * stage for weight, stage in zip(row, k, strict=True))
            held = u[j] + (i + c) / n * slopes * (u[j + 1] - u[j])
            y, back = numpy_network(field.network, np.concatenate([inside, held], axis=1))
            k.append(field.rate * y)
            backs.append(back)
        x = x + h * sum(weight * stage for weight, stage in zip(tableau.b, k, strict=True))
        tape.append((h, k, backs))
        states += [x] if i == n - 1 else []

    in_field = [np.zeros_like(array) for array in jax.tree.leaves(field)]
    in_u, in_dt, grad = np.zeros_like(u), np.zeros_like(dt), np.zeros_like(x0)
    for (j, i), (h, k, backs) in zip(parts[::-1], tape[::-1], strict=True):
        grad = grad + grad_x[j + 1] if i == n - 1 else grad
        in_k = [weight * h * grad for weight in tableau.b]
        in_h = sum(weight * stage * grad for weight, stage in zip(tableau.b, k, strict=True))
        for s in reversed(range(len(k))):
            in_network, in_z = backs[s](in_k[s] * field.rate)
            in_rate = np.sum(in_k[s] * k[s] / field.rate, axis=0)
            in_field = [a + b for a, b in zip(in_field, jax.tree.leaves((in_network, in_rate)), strict=True)]
            share = (i + tableau.c[s]) / n * slopes
            in_u[j] += (1 - share) * in_z[:, nx:]
            in_u[j + 1] += share * in_z[:, nx:]
            for r, weight in enumerate(tableau.a[s]):
                in_k[r] = in_k[r] + weight * h * in_z[:, :nx]
                in_h = in_h + weight * k[r] * in_z[:, :nx]
            grad = grad + in_z[:, :nx]
        in_dt[j] += np.sum(in_h, axis=1) / n
    return np.stack(states), (in_field, grad + grad_x[0], in_u, in_dt)


@cache
def compiled(engine: str, integrator: FixedStep, *, threads: int = 1, kept_bytes: int = fused.KEPT_BYTES):
    """The rollout by `scan`, or by the fused engine with the instruction set of that name."""

    def compute(*problem) -> jax.Array:
        if engine == "scan":
            return rollout_scan(*problem, integrator)
        with pytest.MonkeyPatch.context() as patch:  # both are read while JAX traces
            patch.setenv("TAUSID_FUSED_ISA", engine)
            patch.setattr(fused, "KEPT_BYTES", kept_bytes)
            return rollout_fused(*problem, integrator, threads=threads)

    return jax.jit(compute)


@cache
def compiled_gradients(engine: str, integrator: FixedStep, **options: int):
    """States, the gradients of a combination of them to all arguments, and the states without any gradient."""
    compute = compiled(engine, integrator, **options)

    @jax.jit
    def pull(problem, weight):
        x, back = jax.vjp(compute, *problem)
        # Without a gradient the fused engine keeps nothing, and few trajectories take a path of their own.
        return x, back(weight), x if engine == "scan" else compute(*problem)

    return pull


def random_weight(case: Case) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(case.samples, case.batch, case.nx))


def value_and_gradients(engine: str, case: Case, problem, **options: int):
    """States with and without a gradient, and the gradients of a random combination of them."""
    weight = jnp.asarray(random_weight(case).astype(problem[1].dtype))
    return compiled_gradients(engine, case.integrator, **options)(problem, weight)


def assert_close(got, wanted, tolerance: float) -> None:
    """Every array agrees to `tolerance` relative to its largest entry."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        scale = np.max(np.abs(b), initial=1e-30)
        assert np.max(np.abs(a - b), initial=0.0) <= tolerance * scale


@cache
def reference(name: str):
    """Value and gradients by numpy in float64, once per case."""
    with jax.enable_x64(True):
        return numpy_rollout(GRID[name], make_problem(GRID[name]), random_weight(GRID[name]))


# Compiling `scan` takes seconds: a few cases tell. The instruction sets share all but the innermost loops, so that
# those which are not taken here by default need only the cases with edges of vectors and tiles.
SCAN_CASES = {
    "paper": [np.float32],
    "no input": [np.float64],
    "one sample": [np.float32, np.float64],
    "one trajectory": [np.float32],
    "1000 trajectories": [np.float64],
    "10000 steps": [np.float32, np.float64],
}
EDGES = ["all ones", "one trajectory", "primes", "one more than a vector", "one less than a tile"]


def is_quick(name: str, engine: str, dtype: type) -> bool:
    if engine == "scan":
        return dtype in SCAN_CASES.get(name, [])
    return name in EDGES or engine == ENGINES[1].values[0]


RUNS = [
    pytest.param(
        name,
        *engine.values,
        dtype,
        id=f"{name}-{engine.id}-{dtype.__name__}",
        marks=[*engine.marks, *([] if is_quick(name, *engine.values, dtype) else [pytest.mark.slow])],
    )
    for name in GRID
    for engine in ENGINES
    for dtype in TOLERANCE
]


@pytest.mark.parametrize(("name", "engine", "dtype"), RUNS)
def test_values_and_gradients_agree(name, engine, dtype):
    with jax.enable_x64(dtype is np.float64):
        x, gradients, x_alone = value_and_gradients(engine, GRID[name], make_problem(GRID[name], dtype))
    assert x.dtype == dtype
    wanted_x, wanted_gradients = reference(name)
    assert_close((x, x_alone), (wanted_x, wanted_x), TOLERANCE[dtype])
    assert_close(gradients, wanted_gradients, TOLERANCE[dtype])


@needs_fused
@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("name", ["paper", "primes", "one less than a tile"])
def test_recomputed_steps_equal_kept_ones(name, isa):
    with jax.enable_x64(True):
        got = value_and_gradients(isa, GRID[name], make_problem(GRID[name]), kept_bytes=0)
    assert_close(got[:2], reference(name), 1e-12)


@needs_fused
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_are_the_same_from_run_to_run(threads):
    case = Case(100, 20, 4, 1, (20, 20))
    problem = make_problem(case, np.float32)
    first = value_and_gradients(instruction_sets()[0], case, problem, threads=threads)
    for _ in range(3):
        again = value_and_gradients(instruction_sets()[0], case, problem, threads=threads)
        jax.tree.map(np.testing.assert_array_equal, again, first)
    # Threads only change the order of the sums over trajectories.
    assert_close(first, value_and_gradients(instruction_sets()[0], case, problem), 1e-5)


# One compiled function of `scan` is like another; the fused engine has code of its own for each of these.
NAN_RUNS = [pytest.param("scan", "leaky_relu", 20, id="scan")] + [
    pytest.param(*engine.values, activation, batch, id=f"{engine.id}-{activation}-{batch}", marks=engine.marks)
    for engine in ENGINES[1:]
    for activation in fused.FUSED_ACTIVATIONS
    for batch in (1, 20)
]


def with_nan(array, *place: int) -> jax.Array:
    array = np.array(array)
    array[place] = np.nan
    return jnp.asarray(array)


@pytest.mark.parametrize(("engine", "activation", "batch"), NAN_RUNS)
def test_nan_in_nan_out(engine, activation, batch):
    case = Case(batch=batch, activation=activation)
    field, x0, u, dt = make_problem(case, np.float32)
    with_gradient, _, alone = value_and_gradients(engine, case, (field, with_nan(x0, 0, 0), u, dt))
    for x in map(np.asarray, (with_gradient, alone)):
        assert np.isnan(x[1:, 0]).all()
        assert np.isfinite(x[:, 1:]).all()
    with_gradient, _, alone = value_and_gradients(engine, case, (field, x0, with_nan(u, 3, -1), dt))
    for x in map(np.asarray, (with_gradient, alone)):
        assert np.isnan(x[4:, -1]).all()
        assert np.isfinite(x[:4]).all()
    _, gradients, _ = value_and_gradients(engine, case, (field, x0, u, with_nan(dt, ...)))
    assert np.isnan(gradients[0].rate).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_overflow_is_no_crash(engine):
    field, x0, u, dt = make_problem(Case(samples=50), np.float32)
    x = compiled(engine, RK4)(field, x0, u, 1e6 * dt)
    assert not np.isfinite(np.asarray(x)[-1]).any()


def refine(u, dt, parts: int, hold: str):
    """The same input on a grid `parts` times as fine: many small steps without unrolling substeps."""
    u, dt = np.asarray(u), np.asarray(dt)
    share = np.arange(parts)[:, None, None] / parts * (hold == "first")
    between = u[:-1, None] + share * (u[1:, None] - u[:-1, None])
    fine = np.concatenate([between.reshape(-1, *u.shape[1:]), u[-1:]])
    return fine, np.repeat(dt / parts, parts, axis=0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("hold", ["zero", "first"])
def test_linear_field_follows_the_matrix_exponential(engine, hold):
    with jax.enable_x64(True):
        field, x0, u, dt = make_problem(Case(samples=6))
        field = eqx.tree_at(lambda f: f.network.weights[-1], field, replace_fn=jnp.zeros_like)
        x = np.asarray(compiled(engine, FixedStep(hold=hold))(field, x0, *refine(u, dt, 50, hold)))[::50]
    # RK4 with steps h up to 0.004 s and rates below 10 / s: an error of (10 h)^5 / 120 a step, 250 steps.
    assert_close(x, exact_linear(*jax.tree.map(np.asarray, (field, x0, u, dt)), hold), 3e-7)


def exact_linear(field, x0, u, dt, hold):
    """States of `dx/dt = A x + B u` at the samples: the augmented system [x; u; du/dt] is autonomous."""
    matrix = np.asarray(field.rate[:, None] * field.network.linear)
    nx, nu = x0.shape[1], u.shape[2]
    augmented = np.zeros((nx + 2 * nu, nx + 2 * nu))
    augmented[:nx, : nx + nu] = matrix
    augmented[nx : nx + nu, nx + nu :] = np.eye(nu)
    x = [np.asarray(x0)]
    for j, step in enumerate(np.asarray(dt)):
        slope = (u[j + 1] - u[j]) / step[:, None] * (hold == "first")
        z = np.concatenate([x[-1], u[j], slope], axis=1)
        x.append(np.stack([(expm(augmented * h) @ row)[:nx] for h, row in zip(step, z, strict=True)]))
    return np.stack(x)


def stand_still(u, dt, steps: int):
    """The same input with steps of no length at its end, so that one compiled function serves several grids."""
    u_end, dt_end = np.repeat(u[-1:], steps, axis=0), np.zeros((steps, dt.shape[1]))
    return np.concatenate([u, u_end]), np.concatenate([dt, dt_end])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stepper", STEPPERS.values(), ids=STEPPERS)
def test_order_of_convergence(engine, stepper):
    integrator = FixedStep(stepper.name, hold="first")
    with jax.enable_x64(True):
        field, x0, u, dt = make_problem(Case(batch=3, samples=4, activation="tanh"))
        fine, finest = (refine(u, dt, parts, "first") for parts in (32, 256))
        coarse = stand_still(*refine(u, dt, 16, "first"), 16 * len(dt))
        ends = [np.asarray(compiled(engine, integrator)(field, x0, *grid))[-1] for grid in (coarse, fine)]
    exact, _ = numpy_rollout(Case(integrator=FixedStep(hold="first")), (field, x0, *finest), 0 * finest[0][..., :1])
    errors = [np.max(np.abs(end - exact[-1])) for end in ends]
    # The error falls by 2^order; at 16 parts the next order still shows a little.
    assert np.log2(errors[0] / errors[1]) == pytest.approx(stepper.order, abs=0.15)


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_agree_with_finite_differences(engine):
    case = Case(batch=3, samples=5, activation="tanh", integrator=FixedStep("heun", substeps=2, hold="first"))
    with jax.enable_x64(True):
        problem = make_problem(case)
        direction = jax.tree.map(lambda a: np.cos(3.0 * np.arange(a.size)).reshape(a.shape), problem)

        def states(step: float) -> np.ndarray:
            moved = jax.tree.map(lambda a, d: jnp.asarray(np.asarray(a) + step * d), problem, direction)
            return np.asarray(value_and_gradients(engine, case, moved)[0])

        _, gradients, _ = value_and_gradients(engine, case, problem)
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: np.sum(np.asarray(g) * d), gradients, direction)))
        # Central differences: 1e-5^2 of truncation and 1e-16 / 1e-5 of rounding.
        assert np.sum(random_weight(case) * (states(1e-5) - states(-1e-5))) / 2e-5 == pytest.approx(slope, rel=1e-8)


@needs_fused
@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize(
    ("points", "activation"),
    [((1,), "tanh"), ((100,), "leaky_relu"), ((7, 9), "sigmoid"), ((2, 2, 2), "elu")],
)
def test_network_alone(isa, points, activation, monkeypatch):
    monkeypatch.setenv("TAUSID_FUSED_ISA", isa)
    with jax.enable_x64(True):
        network = make_problem(Case(nx=4, nu=2, hidden=(20, 9), activation=activation))[0].network
        z = np.random.default_rng(3).normal(size=(*points, 6))

        def pull(network, z):
            y, back = jax.vjp(lambda network, z: evaluate(network, z, engine=Engine("fused")), network, z)
            return y, back(jnp.cos(y)), evaluate(network, z, engine=Engine("fused"))

        y, back = numpy_network(jax.tree.map(np.asarray, network), z.reshape(-1, 6))
        in_network, in_z = back(np.cos(y))
        y = y.reshape(*points, 4)
        wanted = (y, (in_network, in_z.reshape(z.shape)), y)
        for kept_bytes in (fused.KEPT_BYTES, 0):
            monkeypatch.setattr(fused, "KEPT_BYTES", kept_bytes)
            assert_close(jax.jit(lambda *arguments: pull(*arguments))(network, z), wanted, 1e-12)


@needs_fused
@pytest.mark.parametrize("activation", fused.FUSED_ACTIVATIONS)
@pytest.mark.parametrize("isa", instruction_sets())
def test_activation_far_from_zero(activation, isa, monkeypatch):
    monkeypatch.setenv("TAUSID_FUSED_ISA", isa)
    with jax.enable_x64(True):
        one = jnp.ones((1, 1))
        network = Network(0 * one, (one, one), (jnp.zeros(1),), activation=activation)
        small = jnp.geomspace(1e-12, 1, 99)
        z = jnp.concatenate([jnp.linspace(-800, 800, 801), small, -small])
        got = evaluate(network, z[:, None], engine=Engine("fused"))[:, 0]
        # A few units in the last place; the sigmoid's tail is 1 - (1 - small), good to 1e-16 of its range.
        atol = 1e-16 if activation == "sigmoid" else 0.0
        np.testing.assert_allclose(got, activate(activation, z), rtol=1e-14, atol=atol)


@needs_fused
def test_vmap_calls_one_after_the_other():
    case = Case()
    field, x0, u, dt = make_problem(case, np.float32)
    stacked = jnp.stack([x0, 2 * x0])
    got = jax.vmap(lambda x: rollout_fused(field, x, u, dt, case.integrator))(stacked)
    assert_close(got[1], rollout_scan(field, 2 * x0, u, dt, case.integrator), 1e-5)


@needs_fused
def test_scalar_rate_and_mixed_types():
    case = Case()
    with jax.enable_x64(True):
        field, x0, u, dt = make_problem(case)
        field = eqx.tree_at(lambda f: f.rate, field, jnp.float32(0.5))
        wanted = rollout_scan(field, x0, u, dt, case.integrator)
        assert_close(rollout_fused(field, x0, u, dt, case.integrator), wanted, 1e-12)


def unsupported() -> dict[str, tuple[VectorField, object, str]]:
    field = make_problem(Case(), np.float32)[0]
    polynomial = Network.random(np.random.default_rng(0), 5, 3, degree=2, weight_range=0.1)
    deep = make_problem(Case(hidden=(2,) * 5), np.float32)[0]
    biased = VectorField(dataclasses.replace(field.network, bias=jnp.zeros(3)), field.rate)
    return {
        "function": (lambda x, u: x, FixedStep(), "must be a `VectorField`; got function"),
        "adaptive": (field, Adaptive(), "must take fixed steps; got Adaptive"),
        "polynomial": (VectorField(polynomial, jnp.ones(3)), FixedStep(), "must have no monomials"),
        "deep": (deep, FixedStep(), "1 to 4 hidden layers; got 5"),
        "biased": (biased, FixedStep(), "no bias of its values"),
        "gelu": (make_problem(Case(activation="gelu"), np.float32)[0], FixedStep(), "got gelu"),
    }


@pytest.mark.parametrize("name", unsupported())
def test_unsupported_models_are_named(name):
    field, integrator, message = unsupported()[name]
    assert message in why_not_fused(field, integrator)


def test_supported_model_has_no_reason():
    assert why_not_fused(make_problem(Case(), np.float32)[0], FixedStep()) is None


def test_auto_falls_back_to_scan():
    case = Case(activation="gelu")
    problem = make_problem(case, np.float32)
    got = rollout(*problem, case.integrator, engine=Engine("auto"))
    assert_close(got, rollout_scan(*problem, case.integrator), 0.0)
    assert "got gelu" in describe_engine(problem[0], case.integrator) or fused_missing()
    assert describe_engine(problem[0], case.integrator).startswith("scan, because")


@needs_fused
def test_auto_takes_fused_where_it_can():
    problem = make_problem(GRID["paper"], np.float32)
    jaxpr = str(jax.make_jaxpr(lambda *p: rollout(*p, FixedStep()))(*problem))
    assert "tausid_rollout_forward_f32" in jaxpr
    assert describe_engine(problem[0], FixedStep()) == "fused, which supports this model here"


def test_fused_engine_says_why_it_cannot():
    case = Case(activation="gelu")
    with pytest.raises(ConfigError, match=r"engine 'fused' is not available: .*Use engine='auto'"):
        rollout(*make_problem(case, np.float32), case.integrator, engine=Engine("fused"))


def test_unknown_engine():
    case = Case()
    with pytest.raises(ConfigError, match="unknown engine 'fast'"):
        rollout(*make_problem(case, np.float32), case.integrator, engine=Engine("fast"))


def test_environment_switches_the_engine_off(monkeypatch):
    monkeypatch.setenv("TAUSID_NO_FUSED", "1")
    assert "TAUSID_NO_FUSED" in fused_missing()
    with pytest.raises(ConfigError, match="TAUSID_NO_FUSED"):
        rollout_fused(*make_problem(Case(), np.float32), FixedStep())


@needs_fused
def test_unknown_instruction_set(monkeypatch):
    monkeypatch.setenv("TAUSID_FUSED_ISA", "avx1024")
    with pytest.raises(ConfigError, match="unknown TAUSID_FUSED_ISA 'avx1024'"):
        rollout_fused(*make_problem(Case(), np.float32), FixedStep())


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    library.load.cache_clear()
    try:
        assert "not compiled" in fused_missing() or "TAUSID_NO_FUSED" in fused_missing()
        assert instruction_sets() == ()
    finally:
        library.load.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from Linux's /proc")
@needs_fused
def test_long_free_run_needs_little_memory():
    code = """
import jax.numpy as jnp, numpy as np, pathlib
from tausid.engine.networks import Network
from tausid.engine.integrators import FixedStep
from tausid.engine.field import VectorField
from tausid.engine.fused import rollout_fused
network = Network.random(np.random.default_rng(0), 5, 4, hidden=(64, 64), weight_range=0.1)
field = VectorField(network, jnp.ones(()))
def run(samples):
    u, dt = jnp.ones((samples, 1, 1)), jnp.full((samples - 1, 1), 0.03)
    rollout_fused(field, jnp.zeros((1, 4)), u, dt, FixedStep()).block_until_ready()
def kilobytes(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
run(10)
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = kilobytes("VmRSS")
run(1_000_000)
print(kilobytes("VmHWM") - before)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    # x alone is 16 MB, so that less would mean a measurement that measures nothing; all activations are 2 GB.
    assert 16e6 < int(out.stdout) * 1024 < 200e6
