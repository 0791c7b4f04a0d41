"""Levenberg-Marquardt: its normal equations against a dense Jacobian, its limits, folds, resuming, and bad starts."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problems import oscillator_record, wiener_record
from test_physics import Lag, lag_record

import tausid
from tausid import ConfigError, DataError, Record
from tausid.config import Config
from tausid.tau import Tau
from tausid.training import second_order
from tausid.training.finishing import Search, choose_iterations, finish, pool_iterations, without_stretch
from tausid.training.loop import Problem, start_run
from tausid.training.protocols import Split
from tausid.training.result import FoldCurve
from tausid.training.second_order import FullError, Normal, levenberg_marquardt, normal_equations
from tausid.training.setup import choose_settings, settle, start_problem

# A network that bends from the start, so that every part of the Jacobian is used.
BENT = {"nx": 2, "hidden": (3,), "activation": "tanh", "nonlinear_start": "random", "weight_range": 0.5, "folds": 0}
# What ends within seconds.
QUICK = {"seed": 0, "hidden": (3,), "finish_steps": 3, "folds": 2, "finish_parts": "both", "progress": None}


def make_problem(records: list[Record], *, tau: float | Tau = 2.0, physics: Lag | None = None, **settings) -> Problem:
    config = tausid.recipe_config(**{**BENT, **settings})
    return start_problem(settle(config, records), tau, Split(tuple(records), ()), physics)


def with_missing(record: Record, *, every: int) -> Record:
    y = np.array(record.y)
    y[::every] = np.nan
    return dataclasses.replace(record, y=y)


def two_outputs(samples: int, *, seed: int = 0) -> Record:
    record = wiener_record(samples, seed=seed)
    return Record.from_arrays(record.u, np.hstack([record.y, record.y**2]), ts=0.5, output_names=["a", "b"], name="two")


CASES = {
    "one record": lambda: make_problem([wiener_record(60)]),
    "records of several lengths with holes": lambda: make_problem(
        [with_missing(wiener_record(60), every=7), wiener_record(41, seed=2)], weight_decay=0.1, nonlinear_decay=0.2
    ),
    "weighted outputs": lambda: make_problem([two_outputs(50), two_outputs(30, seed=1)], output_weights=(3.0, 1.0)),
    "limited outputs": lambda: make_problem([wiener_record(60)], output_limits=(-0.3, 0.5)),
    "first-order hold, trained tau": lambda: make_problem(
        [wiener_record(60)], hold="first", tau=Tau(2.0, trainable=True), stepper="heun", substeps=2
    ),
    "corrected equations": lambda: make_problem(
        [lag_record(60)], physics=Lag(), correction="network", init="random", nx=1, hold="zero"
    ),
}


def residuals(error: FullError, theta: jax.Array, x0: jax.Array, unravel) -> jax.Array:
    """What is squared and summed in the objective, from the whole simulation at once."""
    weights = unravel(theta)
    model = error.model(weights)
    y_hat = error.limit(model.output(error.states(weights, x0), error.windows.u))
    scale = jnp.sqrt(error.output_weights / jnp.sum(error.trained)) * error.trained
    missed = jnp.where(error.trained, y_hat - error.windows.y, 0.0)
    return jnp.concatenate([(scale * missed).ravel(), jnp.sqrt(error.decay(weights)) * theta])


# The least chunks are of eight samples: states and sensitivities are carried from one to the next.
@pytest.mark.parametrize(("name", "chunk"), [("one record", second_order.CHUNK), *((name, 1) for name in CASES)])
def test_the_normal_equations_are_those_of_the_dense_jacobian(name, chunk, monkeypatch):
    monkeypatch.setattr(second_order, "CHUNK", chunk)
    problem = CASES[name]()
    search = Search.over(problem, problem.initial_model.state_space, "both")
    with jax.enable_x64(True):
        theta, unravel = ravel_pytree(search.weights)
        found = normal_equations.__wrapped__(search.error, search.weights, search.x0)  # not compiled: CHUNK is no key
        J, Jx = jax.jacfwd(lambda t, x: residuals(search.error, t, x, unravel), (0, 1))(theta, search.x0)
        r = residuals(search.error, theta, search.x0, unravel)
        expected = Normal(
            H=J.T @ J,
            G=jnp.einsum("np,nbq->bpq", J, Jx),
            K=jnp.einsum("nbp,nbq->bpq", Jx, Jx),
            h=J.T @ r,
            k=jnp.einsum("nbq,n->bq", Jx, r),
        )
        objective, squares = float(search.error(search.weights, search.x0).objective), float(r @ r)
    assert objective == pytest.approx(squares, rel=1e-12)
    for part in ("H", "G", "K", "h", "k"):
        a, b = np.asarray(getattr(found, part)), np.asarray(getattr(expected, part))
        # Double precision over some hundred samples.
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10 * np.abs(b).max(), err_msg=part)
    assert np.abs(np.asarray(found.h)).max() > 0


def test_the_step_is_that_of_the_dense_equations():
    rng = np.random.default_rng(0)
    P, B, nx, n = 5, 3, 2, 40
    J = np.zeros((B, n, P + B * nx))
    for b in range(B):  # the errors of a record depend on its own initial state only
        J[b, :, :P] = rng.standard_normal((n, P))
        J[b, :, P + b * nx : P + (b + 1) * nx] = rng.standard_normal((n, nx))
    J, r, damping = J.reshape(-1, P + B * nx), rng.standard_normal(B * n), 0.3
    full = J.T @ J
    dense = np.linalg.solve(full + damping * np.diag(np.diag(full) + second_order.FLOOR), -J.T @ r)
    states = [slice(P + b * nx, P + (b + 1) * nx) for b in range(B)]
    with jax.enable_x64(True):
        normal = Normal(
            H=jnp.asarray(full[:P, :P]),
            G=jnp.asarray(np.stack([full[:P, s] for s in states])),
            K=jnp.asarray(np.stack([full[s, s] for s in states])),
            h=jnp.asarray((J.T @ r)[:P]),
            k=jnp.asarray(np.stack([(J.T @ r)[s] for s in states])),
        )
        theta, x0 = normal.solve(jnp.asarray(damping))
    np.testing.assert_allclose(np.concatenate([theta, np.ravel(x0)]), dense, rtol=1e-10)


def quadratic_with_a_cliff(steps: list[float]) -> FullError:
    """Not a simulation but what the search sees of one: (w - 1)^2, and NaN from 0.3 on."""

    class Cliff(eqx.Module):
        def __call__(self, weights, x0):
            steps.append(float(weights[0]))
            value = jnp.where(weights[0] < 0.3, (weights[0] - 1.0) ** 2, jnp.nan)
            return second_order.Errors(value, value, value)

    return Cliff()


def test_steps_that_lead_to_nan_are_not_taken_and_damping_grows(monkeypatch):
    tried: list[float] = []

    def equations(error, weights, x0):
        K, k = jnp.eye(1)[None], jnp.zeros((1, 1))
        return Normal(jnp.eye(1), jnp.zeros((1, 1, 1)), K, (weights - 1.0), k)

    monkeypatch.setattr(second_order, "normal_equations", equations)
    monkeypatch.setattr(second_order, "_errors", lambda error, weights, x0: error(weights, x0))
    monkeypatch.setattr(second_order, "fit_initial_states", lambda error, weights, x0: x0)
    with jax.enable_x64(True):
        points = levenberg_marquardt(quadratic_with_a_cliff(tried), jnp.zeros(1), jnp.zeros((1, 1)))
        first = next(points)
    assert float(first.weights[0]) < 0.3 and np.isfinite(float(first.errors.objective))
    assert len(tried) > 3 and tried[1] > tried[2] > tried[3]  # ever shorter steps, all but the last beyond the cliff
    assert all(step >= 0.3 for step in tried[1:-1])


def test_a_linear_plant_reaches_the_floor_of_linear_least_squares():
    record = oscillator_record(300, noise=0.05)
    result = tausid.fit(record, seed=0, nx=2, hidden=(), weight_decay=0.0, folds=0, finish_steps=20, substeps=2,
                        progress=None)  # fmt: skip
    floor = float(tausid.estimate_bla(record, nx=2).rmse[0])
    # The same model class and the same error; the integrator's 1e-4 is all that differs.
    assert np.sqrt(result.history[-1].loss) * record.y.std() < 1.001 * floor
    losses = [row.loss for row in result.history]
    assert all(after <= before for before, after in itertools.pairwise(losses))
    assert result.message.startswith(f"{result.steps} iteration") and " of lm." in result.message


def test_folds_choose_whose_nonlinear_parts_are_trained():
    fits = {
        parts: tausid.fit(wiener_record(150), **{**QUICK, "finish_parts": parts}) for parts in ("f", "both", "auto")
    }
    lowest = {parts: min(result.folds.pooled) for parts, result in fits.items()}
    assert lowest["auto"] == min(lowest["f"], lowest["both"])
    assert fits["auto"].folds.parts == min(("f", "both"), key=lambda parts: lowest[parts])
    bent = {parts: float(jnp.abs(result.model.state_space.g.readout).max()) for parts, result in fits.items()}
    assert bent["f"] == 0.0 and bent["both"] > 0.0
    without = tausid.fit(wiener_record(150), **{**QUICK, "finish_parts": "auto", "folds": 0, "finish_steps": 1})
    assert float(jnp.abs(without.model.state_space.g.readout).max()) > 0.0  # nothing decides: both


def test_initial_states_move_before_the_weights_do():
    problem = make_problem([wiener_record(60)])
    search = Search.over(problem, problem.initial_model.state_space, "both")
    with jax.enable_x64(True):
        wrong = search.x0 + 3.0
        found = second_order.fit_initial_states(search.error, search.weights, wrong)
        before, after = (float(search.error(search.weights, x0).objective) for x0 in (wrong, found))
        equations = normal_equations(search.error, search.weights, found)
    assert after < 0.5 * before
    assert np.abs(np.asarray(equations.k)).max() < 1e-4  # the slope is gone: nothing is left to gain


def test_the_order_is_that_of_the_linear_approximation():
    record = oscillator_record(200, noise=0.02)
    result = tausid.fit(record, seed=0, hidden=(), folds=0, finish_steps=1, progress=None)
    assert result.config.nx == tausid.estimate_bla(record, nx="auto").order == result.model.state_space.nx


def fold_problem(record: Record, k: int) -> Problem:
    kept = without_stretch(record, k, 2, 50)
    return make_problem([kept])


def test_a_fold_never_sees_the_outputs_it_is_scored_on():
    record = wiener_record(200)
    y = np.array(record.y)
    y[100:] += 5.0  # the second stretch
    changed = dataclasses.replace(record, y=y)
    ends = []
    for data in (record, changed):
        fold = fold_problem(data, 1)
        search = Search.over(fold, fold.initial_model.state_space, "both", [data])
        ends.append(list(itertools.islice(search.points(), 3))[-1])
    assert eqx.tree_equal(ends[0].weights, ends[1].weights)
    assert float(ends[0].errors.trained) == float(ends[1].errors.trained)
    assert float(ends[1].errors.held_out) > 10 * float(ends[0].errors.held_out)


def test_a_fold_that_cannot_be_trained_says_so():
    record = wiener_record(120)
    y = np.array(record.y)
    y[:15] = y[30:] = 0.0  # all that varies lies in the first quarter, and not in the half of it that stays
    with pytest.raises(DataError, match=r"each of 4 folds must .* fold 1 is not: .* constant .* Use fewer folds"):
        tausid.fit(dataclasses.replace(record, y=y), **{**QUICK, "nx": 2, "folds": 4})


def test_held_out_stretches_cover_a_record_but_for_its_first_samples():
    record = wiener_record(90)
    missing = [np.isnan(without_stretch(record, k, 4, 10).y[:, 0]) for k in range(4)]
    assert np.array_equal(np.sum(missing, axis=0), np.arange(90) >= 10)
    short = [np.isnan(without_stretch(record, k, 4, 50).y[:, 0]) for k in range(4)]
    assert np.array_equal(np.sum(short, axis=0), np.arange(90) >= 90 // 8)  # half a stretch stays


def test_iterations_are_chosen_by_the_pooled_error_and_divergence_counts():
    curves = pool_iterations([FoldCurve((3.0, 1.0), 10, 1.0), FoldCurve((1.0, 2.0, np.nan), 30, 2.0)], 3)
    # sqrt((10 * 3^2 + 30 * 1^2) / 40), and so on; the first fold stays at its last error.
    np.testing.assert_allclose(curves.pooled, [np.sqrt(3.0), np.sqrt(3.25), np.inf])
    assert (curves.steps, curves.chosen, curves.seconds) == ((1, 2, 3), 1, 3.0)
    assert pool_iterations([FoldCurve((np.nan,), 10, 1.0)], 2).chosen == 0
    nothing = FoldCurve((np.nan, np.nan, np.nan), 0, 1.0)  # a fold whose stretch has no measured output says nothing
    assert pool_iterations([FoldCurve((3.0, 1.0, 2.0), 10, 1.0), nothing], 3).chosen == 2
    with pytest.raises(ConfigError, match="`folds` must hold out measured outputs; none of 1 folds does"):
        pool_iterations([nothing], 3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A fit with folds that was never stopped, with what it said, and its folder."""
    said: list = []
    folder = tmp_path_factory.mktemp("run")
    return tausid.fit(wiener_record(150), **{**QUICK, "progress": said.append}, out=folder), said, folder


def same(a: tausid.FitResult, b: tausid.FitResult) -> bool:
    arrays = (jax.tree.leaves(eqx.filter(r.model.state_space, eqx.is_array)) for r in (a, b))
    return all(np.array_equal(x, y) for x, y in zip(*arrays, strict=True))


def test_folds_choose_the_iterations_and_say_how_they_go(whole):
    result, said, _ = whole
    assert result.status == "completed" and result.steps == result.folds.chosen
    assert result.message.startswith(f"{result.steps} iteration{'s' * (result.steps > 1)} of lm, chosen by 2 folds.")
    notes = [update.note for update in said]
    assert notes[0] == "fold 1 of 2, iteration 1" and notes[-1].startswith("lm, iteration")
    assert [u.step for u in said] == sorted(u.step for u in said) and said[-1].step == said[-1].max_steps
    assert all(np.isfinite([u.loss, u.validation, u.best]).all() and u.status == "running" for u in said)
    assert [row.validation for row in result.history] == list(result.folds.pooled[: result.steps])
    assert np.isnan([row.learning_rate for row in result.history]).all()


def test_a_finished_fit_is_read_and_not_trained_again(whole):
    result, _, folder = whole
    said: list = []
    again = tausid.fit(wiener_record(150), **{**QUICK, "progress": said.append}, out=folder, resume=True)
    assert not said and same(again, result)
    assert again.folds == result.folds and again.seconds == result.seconds
    with pytest.raises(ConfigError, match="holds one. Resume it"):
        tausid.fit(wiener_record(150), **QUICK, out=folder)
    with pytest.raises(ConfigError, match="`finish_steps` was 3 and is now 4"):
        tausid.fit(wiener_record(150), **{**QUICK, "finish_steps": 4}, out=folder, resume=True)


@pytest.mark.parametrize("note", ["fold 1 of 2, iteration 2", "fold 2 of 2, iteration 1", "lm, iteration 1 of"])
def test_an_interrupted_fit_goes_on_as_if_never_stopped(whole, note, tmp_path):
    import signal

    def stop(update) -> None:
        if update.note.startswith(note):
            signal.raise_signal(signal.SIGINT)

    stopped = tausid.fit(wiener_record(150), **{**QUICK, "progress": stop}, out=tmp_path)
    assert stopped.status == "interrupted" or stopped.steps == whole[0].steps
    if stopped.status == "interrupted":
        assert "resume to go on, bit for bit" in stopped.message
        assert np.isfinite(tausid.evaluate(stopped.model, wiener_record(100, seed=1)).rmse["y"])
    said: list = []
    again = tausid.fit(wiener_record(150), **{**QUICK, "progress": said.append}, out=tmp_path, resume=True)
    assert again.status == "completed" and same(again, whole[0])
    assert not any(update.note.startswith("fold 1") for update in said) or note.startswith("fold 1")


def test_members_of_an_ensemble_are_ranked_by_their_folds():
    options = {**QUICK, "finish_steps": 2, "workers": 1}
    result = tausid.fit(wiener_record(150), ensemble=2, keep=1, **options)
    pooled = [min(member.folds.pooled) for member in result.members]
    assert pooled == sorted(pooled) and result.model.scores == (pooled[0],)
    figure = tausid.plots.plot_history(result.history)  # without a panel for rates, as there are none
    assert len(figure.axes) == 1 and figure.axes[0].get_xlabel() == "iteration"


def test_validation_records_take_the_place_of_folds():
    result = tausid.fit(
        wiener_record(150), validation=wiener_record(80, seed=5), seed=0, hidden=(3,), finish_steps=3, progress=None
    )
    assert (result.config.folds, result.folds) == (0, None)
    scores = [row.validation for row in result.history]
    assert result.best_step == result.history[int(np.argmin(scores))].step


def test_a_start_that_does_not_simulate_ends_as_diverged():
    problem = make_problem([wiener_record(60)])
    start = problem.initial_model.state_space
    broken = eqx.tree_at(lambda m: m.f.linear, start, replace_fn=lambda a: a * jnp.nan)
    problem = dataclasses.replace(problem, initial_model=dataclasses.replace(problem.initial_model, state_space=broken))
    never = threading.Event()
    run = finish(problem, start_run(problem), most=3, parts="both", report=lambda before, now: None, interrupted=never)
    assert run.status == "diverged"
    chosen = choose_iterations(
        dataclasses.replace(problem, config=dataclasses.replace(problem.config, folds=2)),
        lambda records: dataclasses.replace(problem, split=Split(tuple(records), ())),
        report=lambda at: None,
        interrupted=never,
    ).chosen  # fmt: skip
    assert chosen == 0


def test_a_fit_whose_start_does_not_simulate_says_so():
    # A thousandth of the fastest time constant per step of the clock: RK4 is far outside of its stability region.
    rng = np.random.default_rng(0)
    u = rng.standard_normal((400, 1))
    record = Record.from_arrays(u, np.zeros_like(u) + u + 0.1 * rng.standard_normal(u.shape), ts=1.0)
    settings = {"init": "random", "A_start": "-I", "nx": 2, "hidden": (3,), "finish_steps": 2, "progress": None}
    result = tausid.fit(record, tau=1e-3, seed=0, folds=0, **settings)
    assert result.status == "diverged"
    assert "no simulation of the whole training records stayed finite" in result.message


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"finish": "none"}, "`max_steps` must be at least 1 with finish='none'"),
        ({"max_steps": 10}, "`max_steps` must be 0 where folds choose the iterations of finish='lm'; got 10"),
        ({"encoder": "mlp", "init": "random"}, "`finish` must have encoder='residual'"),
        ({"initial_state": "free", "horizon": "full", "folds": 0}, "`nx` must be a number with initial_state='free'"),
        ({"bias_range": -1.0}, "`bias_range` must be a zero or positive number"),
        ({"nx": "many"}, "`nx` must be a whole number of at least 1"),
        ({"nx": 0}, "`nx` must be a whole number of at least 1"),
        ({"finish": "lbfgs"}, "finish"),
        ({"finish_steps": 0}, "`finish_steps` must be a whole number of at least 1"),
    ],
)
def test_settings_of_the_second_order_are_checked(settings, rule):
    with pytest.raises(ConfigError) as refused:
        tausid.recipe_config(**settings)
    assert rule in str(refused.value)


def test_the_order_must_be_known_where_no_records_are():
    with pytest.raises(ConfigError, match="`nx` must be a number where no records are at hand; got 'auto'"):
        _ = tausid.recipe_config().order


@pytest.mark.parametrize(
    ("given", "recipe", "folds"),
    [
        ({"settings": {}}, "default", 4),
        ({"settings": {}, "validation": wiener_record(60)}, "default", 0),
        ({"settings": {"validation_fraction": 0.1}}, "default", 0),
        ({"settings": {"protocol": "paper"}}, "default", 0),
        ({"settings": {}, "physics": "CascadedTanks"}, "default", 4),
        ({"settings": {"folds": 0}, "physics": "CascadedTanks"}, "default", 0),
        ({"settings": {}, "records": [Record.from_arrays(np.zeros((9, 0)), np.arange(9.0), ts=1.0)]}, "windows", 0),
    ],
)
def test_the_default_recipe_gives_way_to_what_it_cannot_do(given, recipe, folds):
    config = choose_settings("default", **given)
    assert (config.recipe, config.folds) == (recipe, folds)
    assert isinstance(config, Config)
