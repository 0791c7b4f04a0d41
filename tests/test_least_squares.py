"""Levenberg-Marquardt by itself: problems with closed answers, and the evidence against what it approximates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from problems import oscillator_record, wiener_record
from scipy.optimize import minimize

import tausid
from tausid import Record, recipes
from tausid.engine.compiled import Samples
from tausid.engine.networks import Network
from tausid.engine.normal_equations import Normal, SquaredError
from tausid.model.state_space import StateSpace
from tausid.training import least_squares
from tausid.training.full_error import expectation, full_error, samples_per_tau, spread_out
from tausid.training.least_squares import Decay, Point, begin, fit_initial_states, iterate, solve
from tausid.training.problem import Problem
from tausid.training.resolve import resolve


@dataclass(frozen=True, eq=False)
class Linear:
    """Errors that are linear in theta and in the initial states: `|A theta + B x0 - b|^2 / n`, record by record."""

    A: np.ndarray  # (B, n, P)
    B: np.ndarray  # (B, n, nx)
    b: np.ndarray  # (B, n)

    @classmethod
    def random(cls, records: int, n: int, P: int, nx: int) -> Linear:
        rng = np.random.default_rng(0)
        return cls(rng.normal(size=(records, n, P)), rng.normal(size=(records, n, nx)), rng.normal(size=(records, n)))

    def _errors(self, theta, x0) -> np.ndarray:
        return (self.A @ theta + (self.B @ x0[..., None])[..., 0] - self.b) / np.sqrt(self.b.size)

    def cost(self, theta, x0) -> float:
        return float(np.sum(self._errors(theta, x0) ** 2))

    def normal(self, theta, x0, *, only_states=False) -> Normal:
        r = self._errors(theta, x0)
        A, B = (J / np.sqrt(self.b.size) for J in (self.A, self.B))
        A = A[..., :0] if only_states else A
        H, G, K = np.einsum("bnp,bnq->pq", A, A), np.einsum("bnp,bnq->bpq", B, A), np.einsum("bnp,bnq->bpq", B, B)
        return Normal(self.cost(theta, x0), H, G, K, np.einsum("bnp,bn->p", A, r), np.einsum("bnp,bn->bp", B, r))

    def states(self, theta, x0) -> np.ndarray:
        return np.concatenate([np.broadcast_to(x, (self.b.shape[1], len(x))) for x in x0])

    def residuals(self, theta, x0) -> list[np.ndarray]:
        return list(self._errors(theta, x0)[..., None])

    def weighted(self, factors) -> Linear:
        f = factors.reshape(self.b.shape)
        return Linear(f[..., None] * self.A, f[..., None] * self.B, f * self.b)

    @property
    def samples(self) -> Samples:
        nothing = np.zeros((self.b.size, 1))
        return Samples(np.full(*self.b.shape), nothing, nothing, nothing, nothing[:, 0])

    def cut(self, length) -> Linear:
        return Linear(*(array.reshape(-1, length, *array.shape[2:]) for array in (self.A, self.B, self.b)))

    @property
    def dense(self) -> np.ndarray:
        """All errors as one matrix of (theta, x0 of the first record, ...)."""
        records, n, nx = self.B.shape
        states = np.zeros((records, n, records, nx))
        states[np.arange(records), :, np.arange(records)] = self.B
        return np.concatenate([self.A, states.reshape(records, n, -1)], axis=2).reshape(records * n, -1)


def without_states(A: np.ndarray, b: np.ndarray) -> Linear:
    """A regression: initial states that nothing depends on."""
    return Linear(A[None], np.zeros((1, len(b), 1)), b[None])


def test_an_undamped_step_solves_linear_least_squares():
    problem = Linear.random(3, 40, 5, 2)
    assert isinstance(problem, SquaredError)
    theta, x0 = np.ones(5), np.ones((3, 2))
    step = solve(problem.normal(theta, x0), 0.0)
    found = np.concatenate([theta + step[0], (x0 + step[1]).ravel()])
    np.testing.assert_allclose(found, np.linalg.lstsq(problem.dense, problem.b.ravel(), rcond=None)[0], rtol=1e-10)


def test_a_damped_step_is_that_of_the_dense_equations():
    problem, damping = Linear.random(3, 40, 5, 2), 0.3
    J = problem.dense / np.sqrt(problem.b.size)
    full, slope = J.T @ J, J.T @ -problem.b.ravel() / np.sqrt(problem.b.size)
    dense = np.linalg.solve(full + damping * np.diag(np.diag(full) + least_squares.FLOOR), -slope)
    theta, x0 = solve(problem.normal(np.zeros(5), np.zeros((3, 2))), damping)
    np.testing.assert_allclose(np.concatenate([theta, x0.ravel()]), dense, rtol=1e-10)


def test_equations_without_a_minimum_have_no_step():
    normal = Linear.random(1, 9, 2, 1).normal(np.zeros(2), np.zeros((1, 1)))
    assert solve(dataclasses.replace(normal, H=-normal.H), 1e-3) is None


def test_a_few_iterations_solve_linear_least_squares():
    problem = Linear.random(2, 30, 4, 1)
    point = begin(problem, np.zeros(4), np.zeros((2, 1)), Decay())
    costs = [point.cost]
    while not point.converged:
        point = iterate(problem, point, Decay())
        costs.append(point.cost)
    best = np.linalg.lstsq(problem.dense, problem.b.ravel(), rcond=None)[0]
    # Damping begins at a hundredth and shrinks to a fifth each time; what converged means is 1e-5 of the cost.
    assert point.iterations == len(costs) - 1 <= 5
    assert point.cost == pytest.approx(np.mean((problem.dense @ best - problem.b.ravel()) ** 2), rel=1e-5)
    assert costs == sorted(costs, reverse=True)


def test_a_linear_problem_gains_what_was_expected():
    """The linearization is exact, so that the gain is the expected one, for any damping."""
    problem, theta, x0 = Linear.random(3, 40, 5, 2), np.ones(5), np.ones((3, 2))
    normal = problem.normal(theta, x0)
    for damping in (1e-6, 1e-2, 10.0):
        step = solve(normal, damping)
        gain = problem.cost(theta, x0) - problem.cost(theta + step[0], x0 + step[1])
        assert least_squares.expected_gain(normal, step, damping) == pytest.approx(gain, rel=1e-6)  # but for FLOOR


def test_damping_falls_where_the_linearization_holds_and_grows_where_it_does_not():
    """All of the expected gain, an eighth of it, next to none."""
    assert least_squares._less_or_more(1.0) == least_squares.LESS
    assert least_squares._less_or_more(0.125) == pytest.approx(1.0)
    assert least_squares._less_or_more(1e-9) == pytest.approx(least_squares.KEPT)
    assert least_squares._less_or_more(30.0) == least_squares.LESS  # better than expected


def test_one_small_gain_does_not_end_a_search():
    problem = Linear.random(2, 30, 4, 1)
    point = begin(problem, np.zeros(4), np.zeros((2, 1)), Decay())
    small = iterate(problem, dataclasses.replace(point, damping=1e9), Decay())  # hardly a step
    assert small.small_gains == 1 and not small.converged
    assert iterate(problem, dataclasses.replace(small, damping=1e-6), Decay()).small_gains == 0


def test_initial_states_move_before_the_parameters_do():
    problem, theta = Linear.random(3, 40, 5, 2), np.ones(5)
    x0 = fit_initial_states(problem, theta, np.full((3, 2), 7.0))
    for b in range(3):
        own = np.linalg.lstsq(problem.B[b], problem.b[b] - problem.A[b] @ theta, rcond=None)[0]
        np.testing.assert_allclose(x0[b], own, rtol=1e-6)
    assert np.array_equal(begin(problem, theta, np.full((3, 2), 7.0), Decay()).x0, x0)


@dataclass(frozen=True, eq=False)
class Cliff(Linear):
    """`(theta - 1)^2`, and NaN from 0.3 on, as where a simulation diverges."""

    tried: list[float] = dataclasses.field(default_factory=list)

    def cost(self, theta, x0) -> float:
        self.tried.append(float(theta[0]))
        return super().cost(theta, x0) if theta[0] < 0.3 else float("nan")


def test_steps_that_diverge_are_not_taken_and_damping_grows():
    problem = Cliff(np.ones((1, 4, 1)), np.zeros((1, 4, 1)), np.ones((1, 4)))
    start = Point(np.zeros(1), np.zeros((1, 1)), 1.0, np.zeros(1))
    found = iterate(problem, start, Decay())
    tried = problem.tried[1:]  # the first is that of the normal equations
    assert found.theta[0] < 0.3 and np.isfinite(found.cost) and found.cost < 1.0
    assert len(tried) > 2 and tried == sorted(tried, reverse=True)  # ever shorter steps
    assert all(step >= 0.3 for step in tried[:-1]) and tried[-1] == found.theta[0]
    stuck = iterate(problem, dataclasses.replace(found, cost=-1.0), Decay())  # nothing is lower
    assert stuck.converged and stuck.theta[0] == found.theta[0] and stuck.damping > found.damping


def test_a_start_that_does_not_simulate_stays_where_it_is():
    problem = Cliff(np.ones((1, 4, 1)), np.zeros((1, 4, 1)), np.ones((1, 4)))
    point = iterate(problem, begin(problem, np.full(1, 0.5), np.zeros((1, 1)), Decay()), Decay())
    assert point.converged and point.theta[0] == 0.5


# Evidence


def likeliest(A: np.ndarray, b: np.ndarray) -> float:
    """The decay of Bayesian linear regression with the highest marginal likelihood, by a search over both variances."""
    n = len(b)

    def surprise(logs: np.ndarray) -> float:
        alpha, beta = np.exp(logs)
        covariance = np.eye(n) / beta + A @ A.T / alpha
        return float(np.linalg.slogdet(covariance)[1] + b @ np.linalg.solve(covariance, b))

    alpha, beta = np.exp(minimize(surprise, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6}).x)
    return alpha / (beta * n)


def after(problem: Linear, decay: Decay, iterations: int = 200) -> Point:
    point = begin(problem, np.zeros(problem.A.shape[2]), np.zeros((1, 1)), decay)
    for _ in range(iterations):
        point = dataclasses.replace(iterate(problem, point, decay), damping=1e-6)  # go on where a search would end
    return point


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_the_evidence_is_the_decay_that_makes_the_data_most_likely(noise):
    rng = np.random.default_rng(2)
    A = rng.normal(size=(60, 12)) * np.geomspace(1.0, 0.1, 12)
    b = A @ rng.normal(size=12) + noise * rng.normal(size=60)
    point = after(without_states(A, b), Decay((np.arange(12),), samples=60.0))
    # MacKay's updates end where the marginal likelihood is highest.
    np.testing.assert_allclose(point.decay, likeliest(A, b), rtol=0.01)


def test_each_group_has_its_own_decay():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(80, 10))
    b = A[:, :5] @ np.ones(5) + 0.3 * rng.normal(size=80)  # nothing depends on the others
    used, useless = np.arange(5), np.arange(5, 10)
    point = after(without_states(A, b), Decay((used, useless), samples=80.0))
    assert len(set(point.decay[used])) == len(set(point.decay[useless])) == 1
    assert point.decay[9] > 20 * point.decay[0]
    fixed = after(without_states(A, b), Decay((used, useless)))
    assert (fixed.decay == least_squares.FIRST_DECAY).all()
    sizes = [[np.linalg.norm(p.theta[group]) for group in (used, useless)] for p in (point, fixed)]
    assert sizes[0][0] > 0.98 * sizes[1][0] and sizes[0][1] < 0.9 * sizes[1][1]


def test_fewer_independent_samples_mean_more_decay():
    rng = np.random.default_rng(4)
    A = rng.normal(size=(100, 8))
    problem = without_states(A, A @ rng.normal(size=8) + rng.normal(size=100))
    decays = [after(problem, Decay((np.arange(8),), samples=n)).decay[0] for n in (100.0, 40.0, 20.0)]
    assert decays == sorted(decays) and decays[2] > 3 * decays[0]


# Of whole records


def make_problem(record: Record | list[Record], settings: dict | None = None, tau="bla", **structure) -> Problem:
    recipe = recipes.default(**{"nx": 2, "hidden": (3,), "network": "mlp", "activation": "tanh", **structure})
    return resolve(recipe.change({"holdout": "none", **(settings or {})}), record, tau=tau, seed=0).problem


def test_a_plant_of_the_same_structure_is_found_to_rounding():
    problem = make_problem(oscillator_record(200), hidden=(), nonlinear_g=False)
    error, truth = full_error(problem), problem.first_weights
    theta, x0 = error.parameters.pack(truth), np.array([[0.3, -0.2]])
    y = problem.initial_model.simulate(problem.split.train[0], x0=x0[0]).y
    (record,) = (dataclasses.replace(record, y=y) for record in problem.split.train)
    split = dataclasses.replace(problem.split, train=(record,))
    error = full_error(dataclasses.replace(problem, split=split))
    assert error.squares.cost(theta, x0) < 1e-28
    off = theta * np.random.default_rng(0).uniform(0.8, 1.2, theta.shape)
    point = error.begin(error.parameters.unpack(off), np.zeros((1, 2)))
    assert point.cost > 1e-3
    for _ in range(40):
        point = iterate(error.squares, point, error.decay)
    # At the truth only the decay of the weights is left, so that a minimum is no higher.
    assert point.cost + np.sum(point.decay * point.theta**2) <= np.sum(point.decay * theta**2)
    assert point.cost < 1e-9


def test_the_error_is_the_mean_square_of_what_a_model_simulates():
    """Against `Model.simulate`, in physical units: holes, weights, limits, several records, and long steps split."""
    records = []
    for seed, samples in ((0, 60), (1, 45)):
        base = wiener_record(samples, seed=seed)
        y = np.hstack([base.y, 3.0 + base.y**2])
        y[::7, 0] = np.nan
        t = np.arange(samples) * 0.5
        t[20:] += 1.5  # three samples are missing
        records.append(Record.from_arrays(base.u, y, t=t, output_names=["a", "b"], name=f"r{seed}"))
    settings = {"trainer.output_weights": (3.0, 1.0), "integration.max_gap": 10.0, "start.nonlinear": "random"}
    problem = make_problem(records, settings, output_limits=((-0.3, 0.5), (None, None)))
    assert len(problem.split.train) == 2
    error, model, x0 = full_error(problem), problem.initial_model, np.array([[0.1, 0.2], [-0.3, 0.0]])
    theta, squares, count = error.parameters.pack(problem.first_weights), 0.0, 0
    states = []
    for record, start in zip(records, x0, strict=True):
        simulated = model.simulate(record, x0=start)
        missed = (simulated.y - record.y) / model.scaling.y_std
        squares += np.nansum([1.5, 0.5] * missed**2)
        count += int((~np.isnan(missed)).sum())
        states.append(simulated.x)
    assert error.squares.cost(theta, x0) == pytest.approx(squares / count, rel=1e-9)
    point = Point(theta, x0, 1.0, np.zeros_like(theta))
    np.testing.assert_allclose(error.states(point), np.concatenate(states), rtol=1e-9, atol=1e-12)


def nonlinearity(network: Network) -> float:
    """The deviation of a network from the best affine map, over inputs of unit deviation."""
    z = np.random.default_rng(1).normal(size=(200, 3))
    line = np.column_stack([z, np.ones(200)])
    value = np.asarray(network(z))
    return float((value - line @ np.linalg.lstsq(line, value, rcond=None)[0]).std())


def test_evidence_leaves_a_linear_plant_linear():
    """What is nonlinear has nothing to explain: its decay grows, and it shrinks to next to nothing."""

    def trained(decay: float | str) -> tuple[StateSpace, dict[str, float]]:
        settings = {"start.nonlinear": "random", "start.weight_range": 0.5, "trainer.decay": decay}
        problem = make_problem(oscillator_record(400, noise=0.05), settings, nonlinear_g=True, hidden=(5,))
        error = full_error(problem)
        point = error.begin(problem.first_weights, np.zeros((1, 2)))
        for _ in range(40):
            point = iterate(error.squares, point, error.decay)
        decays = {name: point.decay[place].max() for name, place in error.parameters.groups.items() if len(place)}
        return error.model(point), decays

    (held_back, decays), (free, fixed) = trained("evidence"), trained(1e-6)
    for part in ("f", "g"):
        # Hidden units and how they are read are factors of one another: one small factor is enough.
        assert max(decays[f"{part}.hidden"], decays[f"{part}.readout"]) > 1e2 * fixed[f"{part}.readout"]
        assert decays[f"{part}.linear"] == least_squares.LEAST_DECAY
        left = nonlinearity(getattr(held_back, part))
        assert left < 0.01 and left < 0.3 * nonlinearity(getattr(free, part))


def test_samples_within_one_tau_count_as_one():
    record = wiener_record(100)
    y = np.where(np.arange(100)[:, None] < 20, np.nan, record.y)
    assert samples_per_tau(make_problem(dataclasses.replace(record, y=y), tau=2.0)) == pytest.approx(80 / 4)
    assert samples_per_tau(make_problem(record, tau=0.1)) == 100


def test_what_is_expected_of_states_is_their_mean_and_covariance():
    rng = np.random.default_rng(0)
    mixed = np.array([[2.0, 0.0], [1.5, 0.5]])
    states = rng.standard_normal((5000, 2)) @ mixed.T + [1.0, -3.0]
    mean, tightness = expectation(states, 0.1)
    np.testing.assert_allclose(mean, states.mean(axis=0))
    np.testing.assert_allclose(tightness.T @ tightness, 0.01 * np.linalg.inv(np.cov(states.T, bias=True)), rtol=1e-8)
    resting = np.column_stack([states, np.full(5000, 7.0)])  # a state that never moved
    assert np.abs(expectation(resting, 0.1)[1][:, 2]).max() == 0.0
    assert not expectation(1e7 * states, 0.1)[1].any() and not spread_out([1e7 * states]).any()  # they have run away


@pytest.fixture(scope="module")
def linear() -> tuple[Record, tausid.FitResult]:
    """A linear model fitted to a linear plant."""
    record = oscillator_record(300, noise=0.05)
    settings = {"structure.hidden": (), "structure.network": "mlp", "trainer.iterations": 20, "holdout": "none",
                "integration.substeps": 2}  # fmt: skip
    return record, tausid.fit(record, seed=0, nx=2, settings=settings, progress=None)


def test_a_linear_plant_reaches_the_floor_of_linear_least_squares(linear):
    record, result = linear
    floor = float(tausid.estimate_bla(record, nx=2).rmse[0])
    # The same model class and the same error; the integrator's 1e-4 is all that differs.
    assert np.sqrt(result.history[-1].loss) * record.y.std() < 1.001 * floor
    losses = [row.loss for row in result.history]
    assert np.all(np.diff(losses) <= 1e-12 * losses[0])  # what falls is the objective, with next to no decay in it
    assert result.message.startswith(f"{result.steps} iteration")


def test_the_estimate_of_an_initial_state_is_that_of_linear_theory(linear):
    """A linear model: the estimate is that of Bayes for a normal expectation and white noise, in closed form."""
    model, space = linear[1].model, linear[1].model.state_space
    judged = dataclasses.replace(space.initial, near_seen=False)
    model = dataclasses.replace(model, state_space=dataclasses.replace(space, initial=judged))
    new = oscillator_record(60, noise=0.05, seed=3)
    initial = model.state_space.initial
    n = model.structure.samples_for_initial_state()
    m, R = np.asarray(initial.expected, float), np.asarray(initial.tightness, float)

    def outputs(x0):
        return model.scaling.normalize_y(model.simulate(new, x0=x0).y)[:n].ravel()

    at_mean = outputs(m)
    slopes = np.column_stack([outputs(m + e) - at_mean for e in np.eye(2)])
    missed = model.scaling.normalize_y(new.y)[:n].ravel() - at_mean
    expected = m + np.linalg.solve(slopes.T @ slopes + R.T @ R, slopes.T @ missed)
    found = model.simulate(new)
    # Tolerances of 1e-6 in the search.
    np.testing.assert_allclose(found.x[0], expected, atol=1e-5)
    assert found.initial_state == "free" and np.linalg.norm(R) > 0
