"""One grid for both implementations of the normal equations, and an oracle that knows nothing of them.

The oracle simulates in numpy with complex weights: the imaginary part of a step of 1e-30 is the exact derivative.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from types import SimpleNamespace

import numpy as np
import pytest
from problems import wiener_record
from test_physics import Lag, lag_record

from tausid import Model, recipes
from tausid.engine.compiled import CompiledError, Samples, System
from tausid.engine.integrators import FixedStep
from tausid.engine.layout import Shape, why_not
from tausid.engine.library import instruction_sets, missing
from tausid.engine.networks import Network
from tausid.engine.normal_equations import SquaredError
from tausid.engine.steppers import STEPPERS
from tausid.engine.tree import made_of
from tausid.errors import ConfigError
from tausid.model.free_run import rate_of
from tausid.model.initial import FreeState
from tausid.model.state_space import StateSpace
from tausid.model.tau import Tau
from tausid.training.resolve import resolve

needs_library = pytest.mark.skipif(missing() is not None, reason=f"no compiled library: {missing()}")
ENGINES = [
    pytest.param("scan", id="scan"),
    *[pytest.param(isa, id=isa, marks=needs_library) for isa in instruction_sets() or ["none"]],
]
# Sums of some hundred products in double precision.
RELATIVE = 1e-10

Layers = tuple[int, ...]
RK4 = FixedStep()


@dataclass(frozen=True)
class Case:
    """Sizes and settings of one problem; the defaults are small and odd."""

    nx: int = 2
    nu: int = 1
    ny: int = 1
    f: Layers = (5,)
    g: Layers = ()
    activation: str = "tanh"
    degrees: tuple[int, int] = (1, 1)
    bias: bool = True
    feedthrough: bool = True
    integrator: FixedStep = RK4
    lengths: tuple[int, ...] = (23,)
    missing: float = 0.0
    weights: tuple[float, ...] = ()
    limits: tuple[float, float] | None = None


# Every stepper, activation, hold, number of layers and size at which vectors and blocks of rows end.
GRID = {
    "all ones": Case(1, 1, 1, (1,), (1,), "relu", integrator=FixedStep("euler"), lengths=(2,)),
    "one sample": Case(2, 1, 2, (3,), (2,), "sigmoid", lengths=(1,)),
    "primes": Case(
        3, 2, 2, (7, 5), (3,), "elu", integrator=FixedStep("rk4", 3, ("first", "zero")), lengths=(17, 11), missing=0.3,
        weights=(3.0, 0.5), limits=(-0.6, 0.5),
    ),
    "polynomials": Case(
        degrees=(3, 1), f=(), bias=False, feedthrough=False, integrator=FixedStep("midpoint", 2, "first")
    ),
    "a high degree": Case(1, 0, 1, (), (), degrees=(8, 5), integrator=FixedStep("heun")),
    "hidden units and polynomials": Case(2, 1, 2, (8,), (4,), "sigmoid", (2, 3), integrator=FixedStep("heun", 2)),
    "three hidden layers, no inputs": Case(3, 0, 2, (5, 4, 3), (2, 3), "softplus", limits=(-0.4, np.inf)),
    "four hidden layers": Case(2, 1, 1, (3, 9, 2, 4), (2, 1, 2, 3), "leaky_relu", bias=False),
    "one more than a vector": Case(5, 3, 3, (17,), (9,), "leaky_relu", feedthrough=False, lengths=(13,)),
    "many records": Case(2, 1, 1, (4,), (3,), lengths=(1, 2, 3, 5, 7, 1, 11, 13, 2, 4, 6, 1, 9, 17, 3), missing=0.1),
    "more outputs than a block holds": Case(2, 1, 1, (4,), (), "elu", lengths=(300, 141)),
    "many outputs of one state": Case(1, 1, 41, (2,), (3,), integrator=FixedStep("euler"), lengths=(7,)),
    "all missing": Case(2, 1, 1, (3,), (), lengths=(9, 4), missing=1.0),
    "linear": Case(3, 2, 2, (), (), integrator=FixedStep("midpoint", hold="first"), lengths=(19, 8), bias=False),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Made:
    """A case with its numbers."""

    model: StateSpace
    integrator: FixedStep
    samples: Samples
    x0: np.ndarray

    @property
    def system(self) -> System:
        model = self.model
        return System.of(model.f, model.g, rate_of(model), model.limits, self.integrator)

    @property
    def theta(self) -> np.ndarray:
        return self.system.pack(self.model.f, self.model.g)


def draw_network(rng: np.random.Generator, n_in: int, n_out: int, hidden: Layers, degree: int, case: Case) -> Network:
    network = Network.random(
        rng, n_in, n_out, hidden=hidden, activation=case.activation, degree=degree, bias=case.bias, weight_range=0.5,
        bias_range=0.5,
    )  # fmt: skip
    linear = 0.2 * rng.normal(size=(n_out, n_in)) - np.eye(n_out, n_in)
    coefficients = None if network.coefficients is None else 0.05 * network.coefficients
    bias = rng.normal(scale=0.1, size=n_out) if case.bias else None
    return dataclasses.replace(network, linear=linear, bias=bias, coefficients=coefficients)


def make(case: Case) -> Made:
    """Random weights, records and initial states; the states decay, so that nothing diverges."""
    rng = np.random.default_rng(1)
    f = draw_network(rng, case.nx + case.nu, case.nx, case.f, case.degrees[0], case)
    g = draw_network(rng, case.nx + case.nu * case.feedthrough, case.ny, case.g, case.degrees[1], case)
    limits = None if case.limits is None else (case.limits,) * case.ny
    tau = Tau(rng.uniform(0.7, 2.0, case.nx))
    model = StateSpace(f, g, FreeState.unknown(np.zeros((0, case.nx))), tau, limits=limits)
    u, y = ([rng.normal(size=(n, size)) for n in case.lengths] for size in (case.nu, case.ny))
    for outputs in y:
        outputs[rng.random(outputs.shape) < case.missing] = np.nan
    samples = Samples.join(u, y, [rng.uniform(0.05, 0.15, n - 1) for n in case.lengths])
    if case.weights:
        samples = dataclasses.replace(samples, w=samples.w * np.array(case.weights))
    return Made(model, case.integrator, samples, 0.3 * rng.normal(size=(len(case.lengths), case.nx)))


# The oracle


COMPLEX_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "leaky_relu": lambda z: np.where(z.real > 0, z, 0.01 * z),
    "relu": lambda z: np.where(z.real > 0, z, 0.0),
    "tanh": np.tanh,
    "elu": lambda z: np.where(z.real > 0, z, np.expm1(np.where(z.real > 0, 0.0, z))),
    "sigmoid": lambda z: 1.0 / (1.0 + np.exp(-z)),
    "softplus": lambda z: np.log(1.0 + np.exp(z)),
}


def network_at(network: SimpleNamespace, z: np.ndarray) -> np.ndarray:
    """The value at z (Q, n_in) of Q networks at once."""

    def times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return np.einsum("qoi,qi->qo", matrices, vectors)

    value, hidden = times(network.linear, z), z
    for weight, bias in zip(network.weights[:-1], network.biases, strict=True):
        hidden = COMPLEX_ACTIVATIONS[network.activation](times(weight, hidden) + bias)
    if network.weights:
        value = value + times(network.weights[-1], hidden)
    if network.coefficients is not None:
        degrees = range(2, network.degree + 1)
        chosen = [i for d in degrees for i in combinations_with_replacement(range(z.shape[1]), d)]
        value = value + times(network.coefficients, np.stack([z[:, i].prod(axis=1) for i in map(list, chosen)], axis=1))
    return value if network.bias is None else value + network.bias


def batched(network: Network, theta: np.ndarray) -> SimpleNamespace:
    """Q networks, from one that has places in theta (Q, P) where its weights are."""

    def take(places: np.ndarray | None) -> np.ndarray | None:
        return None if places is None else theta[:, places.astype(int)]

    return SimpleNamespace(
        linear=take(network.linear), weights=[take(w) for w in network.weights],
        biases=[take(b) for b in network.biases], bias=take(network.bias), coefficients=take(network.coefficients),
        activation=network.activation, degree=network.degree,
    )  # fmt: skip


def simulate_complex(made: Made, theta: np.ndarray, x: np.ndarray, b: int) -> tuple[np.ndarray, np.ndarray]:
    """States (n, Q, nx) and outputs (n, Q, ny) of record b, for Q weights and initial states at once."""
    model, d, tableau = made.model, made.samples, STEPPERS[made.integrator.stepper]
    f, g = (batched(net, theta) for net in made.system.unpack(np.arange(theta.shape[1], dtype=float), model.f, model.g))
    low, high = np.array(model.limits or [(-np.inf, np.inf)] * model.ny).T
    holds = made.integrator.hold if isinstance(made.integrator.hold, tuple) else (made.integrator.hold,) * model.nu
    slopes = np.array([hold == "first" for hold in holds], float)
    first = d.lengths[:b].sum()
    u, dt, parts = d.u[first : first + d.lengths[b]], d.dt[first : first + d.lengths[b]], made.integrator.substeps
    states, outputs = [], []
    for k, now in enumerate(u):
        together = np.concatenate([x, np.tile(now, (len(x), 1))], axis=1)
        y = network_at(g, together if model.feedthrough else x)
        states.append(x)
        outputs.append(np.where(y.real < low, low, np.where(y.real > high, high, y)))
        if k + 1 == len(u):
            break
        for part in range(parts):
            ks: list[np.ndarray] = []
            for row, c in zip(tableau.a, tableau.c, strict=True):
                held = now + slopes * (part + c) / parts * (u[k + 1] - now)
                at = x + dt[k] / parts * sum((a * s for a, s in zip(row, ks, strict=True)), start=0.0)
                ks.append(rate_of(model) * network_at(f, np.concatenate([at, np.tile(held, (len(x), 1))], axis=1)))
            x = x + dt[k] / parts * sum(w * s for w, s in zip(tableau.b, ks, strict=True))
    return np.array(states), np.array(outputs)


@dataclass(frozen=True, eq=False)
class Oracle:
    """States, outputs, and the dense Jacobian of all residuals by theta and all initial states."""

    x: np.ndarray
    y: np.ndarray
    J: np.ndarray
    r: np.ndarray


@cache
def oracle(name: str) -> Oracle:
    made, tiny = make(GRID[name]), 1e-30
    P, (B, nx), d = len(made.theta), made.x0.shape, made.samples
    x, y, J = [], [], []
    for b in range(B):
        theta = made.theta + 1j * tiny * np.eye(P + nx, P)
        x0 = made.x0[b] + 1j * tiny * np.eye(P + nx, nx, k=-P)
        states, outputs = simulate_complex(made, theta, x0, b)
        x.append(states[:, 0].real)
        y.append(outputs[:, 0].real)
        slopes = outputs.imag.swapaxes(1, 2) / tiny  # (n, ny, P + nx)
        in_states = np.zeros((*slopes.shape[:2], B, nx))
        in_states[:, :, b] = slopes[..., P:]
        J.append(np.concatenate([slopes[..., :P], in_states.reshape(*slopes.shape[:2], B * nx)], axis=2))
    y = np.concatenate(y)
    J = (d.w[..., None] * np.concatenate(J)).reshape(-1, P + B * nx)
    return Oracle(np.concatenate(x), y, J, (d.w * (y - d.y)).ravel())


# The grid


def choose(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library use one instruction set."""
    monkeypatch.setenv("TAUSID_FUSED_ISA", engine)


def error_of(made: Made, engine: str, monkeypatch) -> tuple[SquaredError, np.ndarray]:
    """The squared error by one implementation, and where the weights of the compiled one lie in its vector."""
    system, model = made.system, made.model
    if engine != "scan":
        choose(engine, monkeypatch)
        return CompiledError(system, made.samples), np.arange(system.parameters)
    import jax

    from tausid.training.scan_error import ScanError
    from tausid.training.trainable import trainable

    trained = trainable(model)
    trained = dataclasses.replace(trained, initial=jax.tree.map(lambda _: False, trained.initial))
    error = ScanError(model, trained, made.samples, made.integrator)
    f, g = system.unpack(np.arange(system.parameters, dtype=float), model.f, model.g)
    return error, error.pack(dataclasses.replace(model, f=f, g=g)).astype(int)


def close(found: np.ndarray | float, expected: np.ndarray | float, what: str) -> None:
    scale = np.abs(expected).max(initial=0.0) if np.ndim(expected) else abs(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=RELATIVE * scale, err_msg=what)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", GRID)
def test_the_normal_equations_are_those_of_the_dense_jacobian(name, engine, monkeypatch):
    made, known = make(GRID[name]), oracle(name)
    error, places = error_of(made, engine, monkeypatch)
    theta, x0, P, (B, nx) = made.theta[places], made.x0, len(places), made.x0.shape
    J = np.concatenate([known.J[:, places], known.J[:, P:]], axis=1)
    H, h, cost = J.T @ J, J.T @ known.r, known.r @ known.r
    assert isinstance(error, SquaredError)
    found, alone = error.normal(theta, x0), error.normal(theta, x0, only_states=True)
    close(found.H, H[:P, :P], "H")
    close(found.h, h[:P], "h")
    close(found.G, H[P:, :P].reshape(B, nx, P), "G")
    blocks = H[P:, P:].reshape(B, nx, B, nx)[np.arange(B), :, np.arange(B)]
    for normal in (found, alone):
        close(normal.K, blocks, "K")
        close(normal.k, h[P:].reshape(B, nx), "k")
        close(normal.cost, cost, "cost of the normal equations")
    assert (alone.H.size, alone.h.size, alone.G.shape) == (0, 0, (B, nx, 0))
    close(error.cost(theta, x0), cost, "cost")
    close(error.states(theta, x0), known.x, "states")
    residuals = np.concatenate(error.residuals(theta, x0))
    measured = made.samples.w > 0
    assert np.array_equal(~np.isnan(residuals), measured)
    close(residuals[measured], (made.samples.w * (known.y - made.samples.y))[measured], "residuals")
    factors = np.random.default_rng(1).uniform(0.1, 1.0, residuals.shape)
    close(error.weighted(factors).cost(theta, x0), np.nansum((factors * residuals) ** 2), "weighted cost")
    close(error.cost(theta, x0), cost, "cost after another one was weighted")
    # Stretches that begin with the states of the whole records go the same way.
    stretches = error.cut(3)
    lengths = stretches.samples.lengths
    assert lengths.sum() == made.samples.lengths.sum() and lengths.max() <= 3
    assert set(np.cumsum(made.samples.lengths)) <= set(np.cumsum(lengths))
    begin = known.x[np.cumsum(lengths) - lengths]
    close(stretches.cost(theta, begin), cost, "cost of stretches")
    close(stretches.states(theta, begin), known.x, "states of stretches")


def test_the_grid_is_not_flat():
    """What the oracle compares depends on every weight, and outputs rest at their limits now and then."""
    for name in GRID.keys() - {"all missing", "one sample", "all ones"}:
        assert (np.abs(oracle(name).J).max(axis=0) > 0).all(), name
    case, y = GRID["primes"], oracle("primes").y
    at_limits = np.isin(y, case.limits).mean()
    assert 0.05 < at_limits < 0.7
    assert not oracle("all missing").J.any()


@pytest.mark.parametrize("engine", ENGINES)
def test_what_diverges_has_an_infinite_cost(engine, monkeypatch):
    made = make(GRID["primes"])
    error, places = error_of(made, engine, monkeypatch)
    theta, x0 = made.theta[places], made.x0
    wild = dataclasses.replace(made.model, f=dataclasses.replace(made.model.f, linear=1e4 * np.eye(3, 5)))
    for bad, states in ((made.system.pack(wild.f, wild.g)[places], x0), (theta, x0 * np.nan), (theta * np.nan, x0)):
        assert error.cost(bad, states) == error.normal(bad, states).cost == np.inf
        assert error.normal(bad, states, only_states=True).cost == np.inf
    u = np.array(made.samples.u)
    u[5] = np.nan
    broken = dataclasses.replace(made, samples=dataclasses.replace(made.samples, u=u))
    error, _ = error_of(broken, engine, monkeypatch)
    assert error.cost(theta, x0) == error.normal(theta, x0).cost == np.inf
    x = error.states(theta, x0)
    assert np.isfinite(x[:5]).all() and np.isnan(x[5:17]).all()  # one input moves towards its next sample
    assert np.isfinite(x[17:]).all()  # another record


@needs_library
def test_initial_states_out_of_all_bounds_are_no_perfect_fit():
    made = make(GRID["one sample"])
    for far in (1e9, np.inf, np.nan):
        error = CompiledError(made.system, made.samples)
        assert error.cost(made.theta, made.x0 + far) == error.normal(made.theta, made.x0 + far).cost == np.inf


@pytest.mark.parametrize("engine", ENGINES)
def test_the_slope_of_the_cost_is_twice_its_gradient(engine, monkeypatch):
    """Finite differences, which need neither a Jacobian nor a second simulation."""
    made = make(dataclasses.replace(GRID["hidden units and polynomials"], lengths=(40, 30), missing=0.2))
    error, places = error_of(made, engine, monkeypatch)
    theta, x0, rng, step = made.theta[places], made.x0, np.random.default_rng(3), 1e-5
    normal = error.normal(theta, x0)
    for _ in range(3):
        p, q = rng.normal(size=theta.shape), rng.normal(size=x0.shape)
        ends = [error.cost(theta + s * step * p, x0 + s * step * q) for s in (-1, 1)]
        expected = 2 * (normal.h @ p + np.sum(normal.k * q))
        # The third derivative times the square of the step.
        np.testing.assert_allclose((ends[1] - ends[0]) / (2 * step), expected, rtol=1e-6)


# What only JAX computes


def jax_only(name: str) -> Model:
    """Models whose parameters are more than the weights of supported networks."""
    if name == "known equations":
        settings = {"structure.correction": "network", "structure.nx": 1, "structure.hidden": (3,)}
        recipe, record, tau = recipes.greybox().change(settings), lag_record(30), 2.0
    else:
        recipe = recipes.default(nx=2, hidden=(3,), activation="gelu" if name == "gelu" else "tanh", network="mlp")
        record, tau = wiener_record(30), Tau(2.0 if name == "gelu" else [1.5, 2.0], trainable=name != "gelu")
    plant = Lag() if name == "known equations" else None
    task = resolve(recipe.change({"holdout": "none"}), record, tau=tau, seed=0, plant=plant)
    return task.problem.initial_model


@pytest.mark.parametrize("name", ["gelu", "trained tau", "known equations"])
def test_normal_equations_of_other_parameters_are_those_of_finite_differences(name, monkeypatch):
    """In chunks of eight samples: states and sensitivities are carried from one to the next."""
    from tausid.training import scan_error

    monkeypatch.setattr(scan_error, "CHUNK", 1)
    model, rng = jax_only(name), np.random.default_rng(0)
    nu, ny, nx = model.state_space.nu, model.state_space.ny, model.state_space.nx
    u, y = [rng.normal(size=(n, nu)) for n in (21, 11)], [rng.normal(size=(n, ny)) for n in (21, 11)]
    samples = Samples.join(u, y, [np.full(n - 1, 0.3) for n in (21, 11)])
    error = scan_error.ScanError.of(model, samples)
    theta, x0 = error.pack(model.state_space), 0.3 * rng.normal(size=(2, nx))
    theta = theta + 0.1 * rng.normal(size=theta.shape)
    P = len(theta)

    def residuals(point: np.ndarray) -> np.ndarray:
        return np.concatenate(error.residuals(point[:P], point[P:].reshape(2, nx))).ravel()

    point = np.concatenate([theta, x0.ravel()])
    J = np.stack([(residuals(point + s) - residuals(point - s)) / 2e-6 for s in 1e-6 * np.eye(len(point))], axis=1)
    H, h, found = J.T @ J, J.T @ residuals(point), error.normal(theta, x0)
    # Rounding of 1e-16 divided by the step.
    assert np.abs(found.H - H[:P, :P]).max() < 1e-7 * np.abs(H).max()
    assert np.abs(found.h - h[:P]).max() < 1e-7 * np.abs(h).max()
    assert np.abs(found.G.reshape(2 * nx, P) - H[P:, :P]).max() < 1e-7 * np.abs(H).max()
    assert found.cost == pytest.approx(np.sum(residuals(point) ** 2), rel=1e-12)
    again = error.unpack(theta)
    assert np.array_equal(error.pack(again), theta) and again.limits == model.state_space.limits


# What only the library promises


@needs_library
@pytest.mark.parametrize("name", ["many records", "primes", "more outputs than a block holds"])
def test_threads_give_the_same_bits(name):
    made = make(GRID[name])
    one = made.system.normal(made.theta, made.x0, made.samples)
    for threads in (2, 3, 8, 100):
        many = made.system.normal(made.theta, made.x0, made.samples, threads=threads)
        for part in ("cost", "H", "G", "K", "h", "k"):
            assert np.array_equal(getattr(one, part), getattr(many, part)), (part, threads)


@needs_library
def test_records_add_up():
    """The equations of several records are the sum of those of each."""
    made = make(GRID["many records"])
    d, ends = made.samples, np.cumsum(made.samples.lengths)
    together, H, h, cost = made.system.normal(made.theta, made.x0, d), 0.0, 0.0, 0.0
    for b, (n, end) in enumerate(zip(d.lengths, ends, strict=True)):
        here = slice(end - n, end)
        alone = Samples(np.array([n]), d.u[here], d.y[here], d.w[here], d.dt[here])
        found = made.system.normal(made.theta, made.x0[b : b + 1], alone)
        H, h, cost = H + found.H, h + found.h, cost + found.cost
        close(together.G[b], found.G[0], "G")
        close(together.K[b], found.K[0], "K")
    for a, b in ((together.H, H), (together.h, h), (together.cost, cost)):
        close(a, b, "sums")


@needs_library
def test_no_records_are_no_error():
    made = make(GRID["linear"])
    nothing = Samples(np.array([0, 1]), np.ones((1, 2)), np.ones((1, 2)), np.zeros((1, 2)), np.zeros(1))
    found = made.system.normal(made.theta, made.x0, nothing)
    assert found.cost == 0.0 and not found.H.any() and not found.K.any()


LONG = """
import resource
import numpy as np
from tausid.engine.compiled import Samples, System
from tausid.engine.integrators import FixedStep
from tausid.engine.networks import Network

rng = np.random.default_rng(0)
f = Network.random(rng, 3, 2, hidden=(16,), activation="tanh", bias=True, weight_range=0.3, bias_range=0.3)
f.linear[:, :2] -= np.eye(2)
g = Network.random(rng, 3, 1, hidden=(8,), activation="tanh", bias=True, weight_range=0.3)
system = System.of(f, g, 1.0, None, FixedStep())
theta, x0 = system.pack(f, g), np.zeros((1, 2))

def made(n):
    return Samples.join([rng.normal(size=(n, 1))], [rng.normal(size=(n, 1))], [np.full(n - 1, 0.1)])

short, long = made(1000), made(100_000)
system.normal(theta, x0, short), long.as_struct
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
normal = system.normal(theta, x0, long)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
p, step = rng.normal(size=theta.shape), 1e-6
ends = [system.cost(theta + s * step * p, x0, long) for s in (-1, 1)]
slope = (ends[1] - ends[0]) / (2 * step)
print(grown, slope / (2 * normal.h @ p), normal.cost / system.cost(theta, x0, long), len(theta))
"""


@needs_library
def test_memory_does_not_grow_with_the_samples():
    """The Jacobian of 10^5 samples would take 100 MB; rounding of its sums stays small, too."""
    printed = subprocess.check_output([sys.executable, "-c", LONG], text=True).split()
    grown, slope, cost, count = map(float, printed)
    assert count > 100
    assert grown < 3000  # kB
    assert slope == pytest.approx(1.0, rel=1e-5) and cost == pytest.approx(1.0, rel=1e-12)


@needs_library
@pytest.mark.parametrize("name", GRID)
def test_weights_survive_packing(name):
    made = make(GRID[name])
    system, model = made.system, made.model
    f, g = system.unpack(made.theta, model.f, model.g)
    for a, b in ((f, model.f), (g, model.g)):
        z = np.random.default_rng(0).normal(size=(5, a.linear.shape[1]))
        assert np.array_equal(a(z), b(z))
    places = np.concatenate([*system.f.groups.values(), *(p + system.f.parameters for p in system.g.groups.values())])
    assert sorted(places) == list(range(system.parameters))
    marked = np.zeros(system.parameters)
    marked[system.f.groups["linear"]] = 1.0
    only = system.unpack(marked, model.f, model.g)[0]
    assert only.linear.all() and not any(np.any(w) for w in (*only.weights, *only.biases))


def changed(given: Samples | System, **values) -> Samples | System:
    """With other values, past the checks of shapes that only tests have."""
    own = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    return made_of(type(given), {**own, **values})


@needs_library
def test_wrong_shapes_are_refused():
    made = make(GRID["primes"])
    system, theta, x0, d = made.system, made.theta, made.x0, made.samples
    wrong = [
        ("theta", system, theta[:-1], x0, d),
        ("x0", system, theta, x0[:1], d),
        ("x0", system, theta, x0[:, :2], d),
        ("u", system, theta, x0, changed(d, u=d.u[:, :1])),
        ("y", system, theta, x0, changed(d, y=d.y[:-1])),
        ("w", system, theta, x0, changed(d, w=d.w[:, :1])),
        ("dt", system, theta, x0, changed(d, dt=d.dt[:-1])),
        ("rate", changed(system, rate=system.rate[:1]), theta, x0, d),
        ("limits", changed(system, limits=system.limits[:1]), theta, x0, d),
    ]
    for name, asked, *arguments in wrong:
        for ask in (asked.normal, asked.simulate, asked.cost):
            with pytest.raises(ValueError, match=f"`{name}` must have shape"):
                ask(*arguments)
    negative = changed(d, lengths=np.array([d.lengths.sum() + 5, -5]))
    with pytest.raises(RuntimeError, match="sizes out of range"):
        system.normal(theta, x0, negative)
    strange = changed(system, g=Shape(4, 2))  # neither the states nor states and inputs
    with pytest.raises(RuntimeError, match="sizes out of range"):
        strange.normal(np.zeros(strange.parameters), x0, d)


@needs_library
def test_arrays_of_any_layout_and_type_give_the_same():
    made = make(GRID["primes"])
    d = made.samples
    other = Samples(d.lengths.astype(np.int32), np.asfortranarray(d.u), np.asfortranarray(d.y), d.w[::-1][::-1], d.dt)
    expected = made.system.normal(made.theta, made.x0, d)
    found = made.system.normal(made.theta[::-1][::-1], np.asfortranarray(made.x0), other)
    assert found.cost == expected.cost and np.array_equal(found.H, expected.H)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Network.random(None, 2, 1, hidden=(1,) * 5, weight_range=0.0), "at most 4 hidden layers; got 5"),
        (Network.random(None, 2, 1, hidden=(3,), activation="gelu", weight_range=0.0), "activation must be.*got gelu"),
        (Network.random(None, 2, 1, degree=9, weight_range=0.0), "at most degree 8; got 9"),
        (Network.random(None, 2, 1, activation="gelu", degree=3, weight_range=0.0), None),  # it has no hidden units
    ],
)
def test_what_is_not_supported_is_said_in_words(network, words):
    said = why_not(network)
    assert said is None if words is None else re.search(words, said)


@needs_library
def test_an_unknown_instruction_set_is_refused(monkeypatch):
    choose("avx1024", monkeypatch)
    made = make(GRID["linear"])
    with pytest.raises(ConfigError, match="unknown TAUSID_FUSED_ISA 'avx1024'"):
        made.system.cost(made.theta, made.x0, made.samples)
