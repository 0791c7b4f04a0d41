"""The trainer Levenberg-Marquardt: iterations and validations, what folds hold out, states and tau, how it ends."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from problems import oscillator_record, wiener_record

import tausid
from tausid import ConfigError, DataError, Record, recipes
from tausid.model.tau import Tau
from tausid.training import levenberg_marquardt
from tausid.training.fitting import change_recipe
from tausid.training.holdout import Split, cut_folds, stretch
from tausid.training.jobs import endures, lasts
from tausid.training.levenberg_marquardt import VALIDATED
from tausid.training.outcome import advise_ensemble, describe_trust, make_result
from tausid.training.parts import Folds, Given, LastShare, PaperTestHalf
from tausid.training.pooling import pool
from tausid.training.problem import Problem, validation_score
from tausid.training.resolve import Task, _resolve_states_of_tau, resolve, resolve_holdout
from tausid.training.result import FoldCurve, FoldCurves, HistoryRow, Trust
from tausid.training.run_state import RunState, Status

# A network that bends from the start.
BENT = {"structure.nx": 2, "structure.hidden": (3,), "structure.activation": "tanh", "start.nonlinear": "random",
        "start.weight_range": 0.5, "holdout": "none"}  # fmt: skip
# What ends within seconds: one structure and nothing held out.
SMALL = {"structure.hidden": (3,), "structure.nonlinear_g": True, "structure.network": "mlp",
         "structure.activation": "leaky_relu", "trainer.iterations": 3, "holdout": "none"}  # fmt: skip


def quick_fit(record: Record, settings: dict | None = None, **changes) -> tausid.FitResult:
    arguments = {"seed": 0, "nx": 2, "progress": None, **changes}
    return tausid.fit(record, settings={**SMALL, **(settings or {})}, **arguments)


def make_task(records: list[Record], settings: dict | None = None, *, tau: float | str | list | Tau = 2.0) -> Task:
    return resolve(recipes.default().change({**BENT, **(settings or {})}), records, tau=tau, seed=0)


def make_problem(records: list[Record], settings: dict | None = None, **arguments) -> Problem:
    return make_task(records, settings, **arguments).problem


def with_validation(problem: Problem, record: Record) -> Problem:
    return dataclasses.replace(problem, split=Split(problem.split.train, (record,)))


def train(problem: Problem) -> RunState:
    run = levenberg_marquardt.init(problem)
    while run.status == Status.RUNNING:
        run = levenberg_marquardt.step(problem, run)
    return run


# Iterations


def test_held_out_data_are_simulated_after_ever_fewer_iterations():
    assert VALIDATED[:5] == (1, 2, 3, 5, 8) and list(VALIDATED) == sorted(set(VALIDATED))
    assert all(b - a <= 0.4 * b + 1 for a, b in itertools.pairwise(VALIDATED))
    problem = with_validation(make_problem([wiener_record(60)], {"trainer.iterations": 6}), wiener_record(60, seed=1))
    run = train(problem)
    assert [row.step for row in run.history] == [1, 2, 3, 5, 6]  # the last one is always among them
    assert (run.step, run.status) == (6, "completed")
    losses = [run.first_loss, *(row.loss for row in run.history)]
    assert losses == sorted(losses, reverse=True)
    scores = [run.first_score, *(row.validation for row in run.history)]
    assert run.best_score == min(scores) and run.best_step == int(np.argmin(scores))


def test_the_best_model_is_the_one_that_was_scored():
    problem = with_validation(make_problem([wiener_record(60)], {"trainer.iterations": 4}), wiener_record(60, seed=1))
    run = train(problem)
    assert levenberg_marquardt._score(problem, run.best_weights) == run.best_score
    model = problem.model_with(run.best_weights)
    assert {a.dtype for a in (model.state_space.f.linear, model.state_space.initial.x0)} == {np.dtype(float)}


def test_held_out_data_choose_the_iteration_and_do_not_end_training():
    record = wiener_record(80)
    noise = dataclasses.replace(record, y=np.random.default_rng(0).normal(size=record.y.shape))
    problem = make_problem([record], {"trainer.iterations": 20})
    run, alone = train(with_validation(problem, noise)), train(problem)
    assert run.status == "completed" and run.step == alone.step
    assert run.best_score == min(run.first_score, *(row.validation for row in run.history))


def test_no_model_is_better_on_held_out_data_than_on_its_own():
    """The score is the larger one of both errors, of records that are simulated like new ones."""
    problem, easy = make_problem([wiener_record(100)], {"trainer.iterations": 2}), wiener_record(60, seed=1)
    easy = dataclasses.replace(easy, y=1e-3 * easy.y + wiener_record(100).y.mean())  # hardly moves
    run = train(with_validation(problem, easy))
    model = problem.model_with(run.weights)
    held_out, own = (validation_score(model, [r], output_weights=None) for r in (easy, wiener_record(100)))
    assert run.history[-1].validation == max(held_out, own)
    assert np.isnan(levenberg_marquardt._score(problem, run.weights))  # nothing is held out
    short = make_problem([wiener_record(100), wiener_record(21, seed=2)], {"trainer.iterations": 2})
    assert len(levenberg_marquardt._own_records(short)) == 1  # no sample is left to be scored in the other one


def test_training_goes_on_from_other_weights():
    problem = make_problem([wiener_record(60)], {"trainer.iterations": 2})
    first = train(problem)
    run = levenberg_marquardt.init(problem, first.best_weights)
    assert run.first_loss <= first.history[-1].loss  # as it was, but for the initial states, which move first
    assert levenberg_marquardt.step(problem, run).inner.cost < first.history[-1].loss


# What is left open


@pytest.fixture(scope="module")
def alone() -> tausid.FitResult:
    """A fit for which nothing is held out."""
    return quick_fit(
        wiener_record(100),
        {"structure.network": "auto", "structure.activation": "auto", "structure.nonlinear_g": "auto",
         "trainer.iterations": 1},
    )  # fmt: skip


def test_what_nothing_decides_has_a_rule(alone):
    structure = alone.recipe.structure
    assert (structure.network, structure.activation, structure.nonlinear_g) == ("mlp", "leaky_relu", True)
    assert np.abs(alone.model.state_space.g.readout).max() > 0.0


def test_validation_records_choose_the_iteration():
    result = quick_fit(wiener_record(120), {"holdout": "auto", "trainer.iterations": 6}, search="fixed",
                       validation=wiener_record(80, seed=5))  # fmt: skip
    assert (result.recipe.holdout, result.folds) == (Given(), None)
    scores = [row.validation for row in result.history]
    assert result.best_step == result.history[int(np.argmin(scores))].step
    assert f"iterations, of which validation chose number {result.best_step}." in result.message
    assert result.trust.held_out == min(scores)


def test_a_linear_g_has_no_hidden_layers():
    result = quick_fit(wiener_record(60), {"structure.nonlinear_g": False, "trainer.iterations": 1})
    assert result.model.state_space.g.nonlinear == ((), (), None)


def test_a_structure_that_runs_away_with_larger_inputs_does_not_endure():
    # dx/dt = -x + x^3 + u stays near zero for |u| < 0.38 and runs away beyond: a polynomial can learn this exactly.
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-0.35, 0.35, 8), 50)[:, None]
    x = np.zeros(len(u))
    for k in range(len(u) - 1):
        x[k + 1] = x[k] + 0.1 * (-x[k] + x[k] ** 3 + u[k, 0])
    record = Record.from_arrays(u, x[:, None] + 1e-3 * rng.standard_normal(u.shape), ts=0.1)
    settings = {"structure.network": "polynomial", "structure.nonlinear_g": False, "trainer.iterations": 15}
    result = quick_fit(record, settings, nx=1)
    assert result.status == "completed"  # it was asked for
    model = result.model
    assert model.simulate(record).status == "ok" and not endures(model, [record])
    f = dataclasses.replace(model.state_space.f, coefficients=np.zeros_like(model.state_space.f.coefficients))
    tame = dataclasses.replace(model.state_space, f=f)
    assert endures(dataclasses.replace(model, state_space=tame), [record])


@pytest.mark.parametrize(("growth", "stays"), [(-3.0, True), (0.0, True), (0.1, True), (1.0, False)])
def test_a_mode_that_grows_with_each_record_runs_away_in_the_end(growth, stays):
    """An integral of the inputs may grow, and so may what a record says too little of."""
    record = oscillator_record(200)
    model = quick_fit(record, {"structure.hidden": (), "holdout": "none"}, nx=1).model
    seconds = record.t[-1] - record.t[0]
    f = dataclasses.replace(model.state_space.f, linear=np.array([[growth * model.tau / seconds, 1.0]]))
    changed = dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, f=f))
    assert changed.simulate(record).status == "ok" and lasts(changed, [record]) == stays


def test_the_order_is_that_of_the_linear_approximation():
    record = oscillator_record(200, noise=0.02)
    problem = make_problem([record], {"structure.nx": "auto"})
    order = tausid.estimate_bla(record, nx="auto").order
    assert problem.recipe.structure.nx == order == problem.initial_model.state_space.nx


# Folds


def test_a_fold_never_trains_on_the_outputs_it_is_scored_on():
    record = wiener_record(120)
    y = np.array(record.y)
    y[60:] += 5.0  # the second stretch
    ends = []
    for data in (record, dataclasses.replace(record, y=y)):
        fold = cut_folds(Split((data,), ()), recipes.default().change({"holdout": Folds(2)}))[1]
        assert np.array_equal(fold.validation[0].y, data.y[60:])
        problem = make_problem(list(fold.train))
        run = levenberg_marquardt.init(problem)
        for _ in range(3):
            run = levenberg_marquardt.step(problem, run)
        ends.append(run.inner)
    assert np.array_equal(ends[0].theta, ends[1].theta) and ends[0].cost == ends[1].cost


def test_held_out_stretches_cover_a_record_but_for_its_first_samples():
    assert [stretch(90, k, 4, 10) for k in range(4)] == [(10, 22), (22, 45), (45, 68), (68, 90)]
    assert stretch(90, 0, 4, 50) == (90 // 8, 22)  # half a stretch stays


TWO_FOLDS = recipes.default(nx=2).change({"holdout": Folds(2)})


def test_folds_hold_out_what_can_be_scored():
    long, short = wiener_record(200), wiener_record(60, seed=1)
    unmeasured = dataclasses.replace(long, y=np.where(np.arange(200)[:, None] < 100, long.y, np.nan))
    first, second = cut_folds(Split((long, short), ()), TWO_FOLDS)
    assert [len(r) for r in (*first.validation, *second.validation)] == [80, 100, 30]  # 20 samples stay, or 15 of 60
    assert np.isnan(second.train[0].y[100:]).all() and np.array_equal(second.train[0].u, long.u)
    assert len(cut_folds(Split((long, unmeasured), ()), TWO_FOLDS)[1].validation) == 1
    late = dataclasses.replace(unmeasured, y=np.where(np.arange(200)[:, None] < 20, np.nan, unmeasured.y))
    assert [len(fold.validation) for fold in cut_folds(Split((long, late), ()), TWO_FOLDS)] == [1, 1]
    with pytest.raises(ConfigError, match="none of 2 parts has 20"):
        cut_folds(Split((wiener_record(40),), ()), TWO_FOLDS)


def test_where_validation_records_decide_long_records_are_tried_in_part():
    long, held_out, recipe = wiener_record(3 * 4096), wiener_record(100, seed=1), recipes.default(nx=2)
    (trial,) = cut_folds(Split((long,), (held_out,)), recipe)
    assert [len(part) for part in trial.train] == [1024] * 4 and trial.validation == (held_out,)
    assert cut_folds(Split((long,), ()), recipe) == ()


def curve(*errors: float, scored: int = 10) -> FoldCurve:
    return FoldCurve(tuple(range(len(errors))), errors, scored, 1.0)


def test_iterations_are_chosen_by_the_pooled_error_and_divergence_counts():
    curves = pool([curve(4.0, 3.0, 1.0), curve(4.0, 1.0, 2.0, np.nan, scored=30)])
    # (3^10 1^30)^(1/40), and so on; the first fold stays at its last error.
    np.testing.assert_allclose(curves.pooled, [4.0, 3**0.25, 2**0.75, np.inf])
    assert (curves.steps, curves.chosen) == ((0, 1, 2, 3), 1)
    assert np.isinf(pool([curve(np.nan)]).lowest)


def test_a_fold_that_holds_out_what_no_other_shows_does_not_outweigh_the_rest():
    alike, apart = curve(0.2, 0.1, 0.03), curve(0.45, 0.4, 0.42)
    assert pool([alike, alike, alike, apart]).chosen == 2


def test_the_start_is_a_choice_and_what_is_as_good_as_nothing_is_not_lowered():
    assert pool([curve(1.0, 1.1, 1.2)]).chosen == 0
    curves = pool([curve(1.0, 5e-5, 1e-6)])
    assert curves.chosen == 1 and curves.lowest == pytest.approx(1e-6)


# Tau and states


def test_one_tau_per_state_says_how_many_states_there_are():
    auto = {"structure.nx": "auto", "start": "random"}
    problem = make_problem([wiener_record(60)], auto, tau=[1.0, 2.0, 3.0])
    assert problem.recipe.structure.nx == 3 and len(problem.initial_model.tau) == 3
    windows = recipes.windows(nx="auto", na=5, nb=0)
    structure = resolve(windows, wiener_record(200), tau=[1.0, 2.0, 3.0], seed=0).problem.recipe.structure
    assert (structure.nx, structure.na, structure.nb) == (3, 6, 0)
    recipe = recipes.default()
    assert all(_resolve_states_of_tau(recipe, tau) is recipe for tau in ("trained-per-state", 2.0, Tau(2.0)))


def test_structures_with_a_tau_per_state_may_differ_in_their_states():
    task = make_task([wiener_record(60)], {"start": "random"}, tau="trained-per-state")
    split, scaling = task.problem.split, task.problem.initial_model.scaling
    for nx in (1, 3):
        recipe = task.problem.recipe.with_structure(nx=nx)
        assert task.start(recipe, split, scaling).initial_model.tau == (5.0,) * nx


# How it ends


def ended(problem: Problem, status: str, history: tuple[HistoryRow, ...] = (), curves: FoldCurves | None = None) -> str:
    weights = problem.first_weights
    run = RunState(None, weights, len(history), weights, np.inf, 0, history, 0.0, Status(status))
    return make_result(problem, run, curves).message


def test_messages_say_what_happened():
    problem = make_problem([wiener_record(60)])
    rows = (HistoryRow(1, 0.1, np.inf, np.nan, 2.0, 0.0),)
    lost = pool([curve(1.0, 1.0), curve(np.inf, np.inf)])
    assert "diverged in fold 2 of 2, so" in ended(problem, "diverged", curves=lost)
    never = pool([curve(np.inf, 1.0), curve(1.0, np.inf)])
    assert "at each iteration" in ended(problem, "diverged", curves=never)
    assert ended(problem, "diverged", rows).startswith("every simulation of the validation records diverged, so")
    assert ended(problem, "diverged").startswith("every simulation of the whole training records diverged")
    some = pool([curve(2.0, 1.0)] * 3)
    assert "1 iteration, chosen by 3 folds." in ended(problem, "completed", rows, some)
    said = ended(with_validation(problem, wiener_record(60, seed=1)), "completed", rows)
    assert "1 iteration, and validation prefers the model that training began with." in said


def test_messages_say_how_far_a_model_can_be_trusted():
    assert describe_trust(None) == describe_trust(Trust()) == ""
    assert describe_trust(Trust(0.031)) == "Held-out error 3.1 % of the outputs' standard deviation."
    said = describe_trust(Trust(0.031, 1.4, 8, 0.0123))
    assert said == (
        "Held-out error 3.1 % of the outputs' standard deviation; the linear model has 140 %. "
        "8 models trained independently agree within 1.2 % on other inputs."
    )
    assert describe_trust(Trust(0.1, 0.1)).endswith("; no nonlinear model is clearly better.")
    said = describe_trust(Trust(0.1, 0.1, doubt=0.77))
    assert said.endswith("they lie apart by 77 % of what sets them apart from this linear model.")


def test_an_ensemble_is_advised_where_nonlinear_fits_lie_far_apart():
    recipe = recipes.default()
    linear = recipe.with_structure(network="mlp", hidden=())
    far, near = (Trust(0.01, 0.1, 5, distance) for distance in (0.27, 0.02))
    assert advise_ensemble(far, recipe).startswith("As fits lie 27 % apart, an ensemble (ensemble=5, or --ensemble 5)")
    assert [advise_ensemble(*asked) for asked in ((near, recipe), (far, linear), (Trust(), recipe))] == [""] * 3


def test_no_finite_score_of_validation_records_is_a_divergence():
    beyond = wiener_record(60, seed=1)
    beyond = dataclasses.replace(beyond, u=1e30 * beyond.u)  # its cube is far beyond a normalized state
    settings = {"structure.network": "polynomial", "start.weight_range": 0.01, "trainer.iterations": 2}
    run = train(with_validation(make_problem([wiener_record(60)], settings), beyond))
    assert run.status == "diverged" and np.isfinite(run.history[-1].loss)


def test_a_start_that_does_not_simulate_ends_as_diverged():
    problem = make_problem([wiener_record(60)], {"trainer.iterations": 2})
    model = problem.initial_model
    f = dataclasses.replace(model.state_space.f, linear=np.nan * model.state_space.f.linear)
    model = dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, f=f))
    problem = dataclasses.replace(problem, initial_model=model)
    assert train(problem).status == "diverged"
    run = train(with_validation(problem, wiener_record(60, seed=1)))
    assert run.status == "diverged" and np.isinf([run.first_score, run.best_score]).all()


def test_a_fit_whose_start_does_not_simulate_says_so():
    # A thousandth of the fastest time constant per step of the clock: RK4 is far outside of its stability region.
    rng = np.random.default_rng(0)
    u = rng.standard_normal((400, 1))
    record = Record.from_arrays(u, u + 0.1 * rng.standard_normal(u.shape), ts=1.0)
    start = tausid.Random(A="-I", weight_range=1.0, bias_range=1.0, nonlinear="zero")
    result = quick_fit(record, {"trainer.iterations": 2, "holdout": "none"}, tau=1e-3, start=start)
    assert result.status == "diverged"
    assert "every simulation of the whole training records diverged" in result.message


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"structure.initial_state": "encoder", "structure.encoder": "mlp"}, "`encoder` must be 'residual'"),
        ({"structure.dae": True}, "`dae` must be false with Levenberg-Marquardt"),
        ({"start.bias_range": -1.0}, "`bias_range` must be a zero or positive number"),
        ({"structure.nx": "many"}, "`nx` must be a whole number of at least 1"),
        ({"structure.nx": 0}, "`nx` must be a whole number of at least 1"),
        ({"trainer": "lbfgs"}, "unknown trainer 'lbfgs'"),
        ({"trainer.steps": 10}, "`trainer.steps` is a setting of Adam"),
        ({"trainer.iterations": 0}, "`iterations` must be a whole number of at least 1"),
        ({"trainer.decay": "much"}, "`decay` must be"),
        ({"trainer.decay": -1.0}, "`decay` must be"),
        ({"trainer.independent": "all"}, "unknown independent 'all'"),
        ({"start.kind": "random"}, "unknown setting 'start.kind'"),
    ],
)
def test_settings_are_checked(settings, rule):
    with pytest.raises(ConfigError) as refused:
        recipes.default().change(settings)
    assert rule in str(refused.value)


def test_the_order_must_be_known_where_no_records_are():
    with pytest.raises(ConfigError, match="`nx` must be a number where there are no records; got 'auto'"):
        _ = recipes.default().structure.order


AUTONOMOUS = Record.from_arrays(np.zeros((9, 0)), np.arange(9.0), ts=1.0)


@pytest.mark.parametrize(
    ("given", "samples", "recipe", "holdout"),
    [
        ({}, 400, "default", Folds(4)),
        ({}, 100, "default", Folds(2)),
        ({}, 60, "default", None),
        ({}, 20_001, "default", LastShare()),
        ({"validation": wiener_record(60)}, 400, "default", Given()),
        ({"settings": {"holdout.share": 0.1}}, 400, "default", LastShare(0.1)),
        ({"protocol": "paper"}, 400, "default", PaperTestHalf()),
        ({"physics": "CascadedTanks"}, 400, "default", Folds(4)),
        ({"physics": "CascadedTanks", "settings": {"holdout": "none"}}, 400, "default", None),
        ({}, 0, "windows", LastShare()),
    ],
)
def test_the_default_recipe_gives_way_to_what_it_cannot_do(given, samples, recipe, holdout):
    records = [wiener_record(samples) if samples else AUTONOMOUS]
    changes = {name: value for name, value in given.items() if name != "validation"}
    found = resolve_holdout(change_recipe("default", records, **changes), records, given.get("validation"))
    assert (found.name, found.holdout) == (recipe, holdout)


def test_a_constant_channel_has_no_remedy_but_its_own():
    record = wiener_record(200)
    with pytest.raises(DataError, match=r"^input 'u' must vary .* Leave the channel out, or excite it\.$"):
        quick_fit(dataclasses.replace(record, u=np.ones_like(record.u)))


def test_an_initial_state_must_have_something_to_be_estimated_from(alone):
    record, model = wiener_record(100), alone.model
    late = dataclasses.replace(record, y=np.where(np.arange(100)[:, None] < 20, np.nan, record.y), name="late")
    for ask in (model.simulate, model.check):
        with pytest.raises(DataError, match="'late' must have measured outputs among samples 0 to 19, for the initial"):
            ask(late)
    assert model.simulate(late, x0=np.zeros(2)).status == "ok"
    # A stretch that begins so is not held out.
    gap = dataclasses.replace(record, y=np.where(np.abs(np.arange(100) - 60)[:, None] <= 10, np.nan, record.y))
    recipe = alone.recipe.change({"holdout": Folds(2)})
    assert [len(fold.validation) for fold in cut_folds(Split((wiener_record(200), gap), ()), recipe)] == [2, 1]


def test_a_final_fit_goes_on_until_its_error_is_as_low_as_that_of_the_folds():
    problem = make_problem([wiener_record(120)])

    def losses(**end: float) -> list[float]:
        run = train(dataclasses.replace(problem, **end))
        return [run.first_loss, *(row.loss for row in run.history)]

    whole = losses()
    assert losses(last_step=1) == whole[:2]
    low = 0.5 * (whole[2] + whole[3])
    assert losses(last_step=1, last_loss=low) == whole[:4]
    assert losses(last_step=5, last_loss=low) == whole[:5]
    assert losses(last_step=1, last_loss=0.0) == whole  # it ends by itself
