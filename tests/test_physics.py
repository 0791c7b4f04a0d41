"""Known equations: declarations, the fit of their parameters, corrections, files."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import tausid
from tausid import ConfigError, Dataset, Record, recipes
from tausid.data.plants import TankParameters, simulate_tanks, tanks_response
from tausid.model.physics import (
    AbstractPhysics,
    CascadedTanks,
    KnownPart,
    MassWithFriction,
    Parameter,
    State,
    check_physics,
    describe_physics,
    restore_physics,
)
from tausid.training.greybox import fit_known, free_deviations
from tausid.training.holdout import Split
from tausid.training.resolve import resolve, start_problem

# The simulated tanks' parameters: both of them have the same rim.
TANKS = {**asdict(TankParameters()), "upper_rim": 10.0}
# Least squares finds everything; the one iteration after it belongs to the program's flow.
WHOLE = {"trainer": tausid.LevenbergMarquardt(iterations=1), "holdout": None, "progress": None, "tau": 10.0}


@dataclass(frozen=True)
class Lag(AbstractPhysics):
    """`dx/dt = rate (gain u - x)`, a plant whose answer is known in closed form."""

    rate: float | Parameter = Parameter(1.0, 0.01, 10.0, "1/s")
    gain: float | Parameter = Parameter(1.0, unit="mm/V")

    states: ClassVar[dict[str, State]] = {"x": State(0.0, "mm")}

    def derivative(self, x: Any, u: Any, p: Any) -> Any:
        return (p.rate * (p.gain * u[0] - x[0]),)

    def output(self, x: Any, u: Any, p: Any) -> Any:
        return (x[0],)


@dataclass(frozen=True)
class Twice(Lag):
    """The same, measured twice."""

    def output(self, x: Any, u: Any, p: Any) -> Any:
        return (x[0], x[0])


def lag_record(samples: int = 200, *, noise: float = 0.05, seed: int = 0, bend: float = 0.0) -> Record:
    """The exact response for rate 0.3 and gain 2, sampled each second; `bend` adds a cubic outflow."""
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.uniform(-1.7, 1.7, size=-(-samples // 8)), 8)[:samples]
    x = np.zeros(samples)
    for k in range(samples - 1):
        x[k + 1] = 2.0 * u[k] + (x[k] - 2.0 * u[k]) * np.exp(-0.3)
        if bend:
            x[k + 1] = x[k]
            for _ in range(100):  # Euler: at most 1 % off in time, far less than what the cubic does
                x[k + 1] += 0.01 * (0.3 * (2.0 * u[k] - x[k + 1]) - bend * x[k + 1] ** 3)
    return Record.from_arrays(u, x + noise * rng.normal(size=samples), ts=1.0, units={"u": "V", "y": "mm"}, name="lag")


BOUNDS = [(None, None), (0.0, None), (None, 5.0), (-1.0, 4.0)]


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(share=st.floats(0.02, 0.98))
def test_parameters_and_free_numbers_are_inverse(lower, upper, share):
    parameter = Parameter(2.0, lower, upper)
    low = -10.0 if lower is None else lower
    value = low + share * ((10.0 if upper is None else upper) - low)
    # Single precision: six digits of the largest number involved.
    assert float(parameter.value(parameter.free(value))) == pytest.approx(value, rel=1e-5, abs=1e-5)
    assert parameter.free(parameter.start) == pytest.approx(parameter.free(2.0))


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@pytest.mark.parametrize("free", [-30.0, -1.0, 0.0, 2.0, 30.0])
def test_values_stay_within_their_bounds(lower, upper, free):
    value = float(Parameter(2.0, lower, upper).value(free))
    assert (lower is None or value >= lower) and (upper is None or value <= upper)


@pytest.mark.parametrize("numbers", [(2.0, 3.0, None), (2.0, None, 1.0), (2.0, 2.0, None), (float("nan"), None, None)])
def test_a_start_outside_of_its_bounds_is_refused(numbers):
    with pytest.raises(ConfigError, match="lower < start < upper"):
        Parameter(*numbers)


def test_the_equations_of_the_tanks_agree_with_their_simulator():
    u = simulate_tanks(seed=3, samples=500).train.u[:, 0]
    plant = CascadedTanks(**TANKS, weir=5.0)

    @jax.jit
    def step(x, pump):
        def slope(x):
            return jnp.stack(plant.derivative(tuple(x), (pump,), plant))

        def half(x, _):
            a = slope(x)
            b = slope(x + 0.05 * a)
            return x + 0.1 * b, None

        return jax.lax.scan(half, x, length=40)[0], plant.output(tuple(x), (pump,), plant)[0]

    level = jax.lax.scan(step, jnp.array([6.795, 5.188]), jnp.asarray(u))[1]
    # A weir of 0.2 s instead of none: what overflows comes that much later, at up to 0.2 V/s, so 0.04 V at most.
    assert np.max(np.abs(level - tanks_response(u, ts=4.0))) < 0.04


def test_normalized_equations_are_the_physical_ones():
    """The derivative in normalized units is that in physical ones over the deviation of the states."""
    record = lag_record(50)
    known = KnownPart.start(Lag(), tausid.Scaling.from_records(record), trainable=True)
    units = known.units
    x_mean, x_std = np.array([0.5]), np.array([3.0])
    known = replace(known, units=replace(units, x_mean=x_mean, x_std=x_std))
    x, u = jnp.array([[0.2], [-1.0]]), jnp.array([[0.7], [0.1]])
    physical_x, physical_u = np.asarray(x) * x_std + x_mean, np.asarray(u) * units.u_std + units.u_mean
    slope = 1.0 * (1.0 * physical_u - physical_x) / x_std
    np.testing.assert_allclose(known.derivative(x, u), slope, rtol=1e-5)  # single precision
    np.testing.assert_allclose(known.output(x, u), (physical_x - units.y_mean) / units.y_std, rtol=1e-5)


def test_a_closed_form_is_recovered_without_noise(lag):
    found = lag[0].physics.parameters
    # RK4 at a step of 0.3 time constants errs by about 0.3^5 / 120; single precision leaves five digits.
    assert found["rate"].value == pytest.approx(0.3, rel=1e-4)
    assert found["gain"].value == pytest.approx(2.0, rel=1e-4)
    assert (found["gain"].unit, found["rate"].lower, found["rate"].upper) == ("mm/V", 0.01, 10.0)


def test_deviations_are_those_of_repeated_experiments():
    """Over 20 noises, errors over their stated deviations have a root mean square near one."""
    found, clean = [], lag_record(noise=0.0)
    for seed in range(20):
        noisy = replace(clean, y=clean.y + 0.1 * np.random.default_rng(seed).normal(size=clean.y.shape))
        values = fit_known(Lag(), (noisy,), recipes.greybox()).known.parameters
        found.append([(values["rate"].value - 0.3) / values["rate"].deviation,
                      (values["gain"].value - 2.0) / values["gain"].deviation])  # fmt: skip
    spread = np.sqrt(np.mean(np.square(found), axis=0))
    # A chi-square of 20 degrees lies between 8.3 and 37.6 in 98 % of all cases.
    assert np.all((spread > np.sqrt(8.3 / 20)) & (spread < np.sqrt(37.6 / 20)))


def test_deviations_of_a_linear_problem_are_the_textbook_s():
    rng = np.random.default_rng(0)
    jacobian, variance = rng.normal(size=(50, 3)), 1.7
    expected = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)) * variance)
    np.testing.assert_allclose(free_deviations(jacobian.T @ jacobian, variance), expected)
    unseen = np.concatenate([jacobian, jacobian[:, :1]], axis=1)  # the same effect twice
    assert np.isinf(free_deviations(unseen.T @ unseen, variance)).tolist() == [True, False, False, True]


@functools.cache
def simulated_tanks() -> Dataset:
    return simulate_tanks(seed=0, samples=400)


@pytest.fixture(scope="module")
def tanks():
    return tausid.fit(simulated_tanks().train, physics="CascadedTanks", seed=0, **WHOLE).model


def test_the_simulated_tanks_are_recovered_within_their_uncertainty(tanks):
    assert tanks.physics.parameters.keys() == TANKS.keys()
    for name, found in tanks.physics.parameters.items():
        # Four deviations, and 3 % for the weir of one second and steps of two, which the simulator has not.
        assert abs(found.value - TANKS[name]) < 4 * found.deviation + 0.03 * abs(TANKS[name]), name
    # Noise of 0.05 V, and 20 % for the same and for the estimate of the initial state from 50 samples.
    assert tausid.evaluate(tanks, simulated_tanks().test).rmse["y"] < 1.2 * 0.05


def mass_record(samples: int = 400, *, seed: int, spring: float = 0.0, name: str = "mass") -> Record:
    """A mass of 2 kg on 5 N s/m and 1.5 N, driven with 4 N/V; `spring` is a cubic one that the physics do not know."""
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.normal(size=-(-samples // 10)), 10)[:samples]

    def slope(t: float, x: np.ndarray) -> list[float]:
        force = 4.0 * u[min(int(t / 0.02 + 1e-9), samples - 1)]
        return [x[1], (force - 5.0 * x[1] - 1.5 * np.tanh(x[1] / 0.05) - spring * x[0] ** 3) / 2.0]

    times = 0.02 * np.arange(samples)
    run = solve_ivp(slope, (0.0, times[-1]), [0.0, 0.0], t_eval=times, max_step=0.01, rtol=1e-6)
    return Record.from_arrays(u, run.y[0] + 5e-4 * rng.normal(size=samples), ts=0.02, name=name)


def test_a_mass_with_friction_is_recovered_within_its_uncertainty():
    physics = MassWithFriction(gain=4.0, creep=0.05)
    result = tausid.fit(mass_record(seed=0), physics=physics, seed=0, **WHOLE)
    for name, true in {"mass": 2.0, "viscous": 5.0, "coulomb": 1.5, "offset": 0.0}.items():
        found = result.model.physics.parameters[name]
        assert abs(found.value - true) < 4 * found.deviation, name
        assert found.deviation < 0.3


def test_the_default_recipe_fits_equations_alone_and_says_how_well_they_hold_where_nothing_was_seen():
    record = lag_record(noise=0.05)
    result = tausid.fit(record, physics=Lag(), seed=0, progress=None)
    found = result.model.physics.parameters
    for name, true in {"rate": 0.3, "gain": 2.0}.items():
        assert 0 < found[name].deviation < 0.1 * true
        assert abs(found[name].value - true) < 4 * found[name].deviation, name
    assert (result.recipe.name, len(result.folds.scores), result.folds.chosen) == ("default", 4, 0)
    assert result.message.startswith("the parameters of the known equations were fitted to whole records by least")
    assert result.trust.held_out == result.folds.lowest and result.trust.linear is None
    # The noise is 0.05; a quarter more for the parameters of folds, which see three quarters of 200 samples.
    assert 0.8 * 0.05 < min(result.folds.pooled) * result.model.scaling.y_std[0] < 1.25 * 0.05


def test_the_default_recipe_corrects_equations_from_where_they_are():
    """On a plant that the equations do not describe, a network that starts at zero makes up for what they lack."""
    train, test = (lag_record(300, bend=0.1, noise=0.02, seed=seed) for seed in (0, 2))
    # The nonlinear part of a tanh is smooth as the cubic outflow is.
    recipe = recipes.greybox(hidden=(6,), activation="tanh").change({"holdout.count": 2, "trainer.iterations": 12})
    options = {"physics": Lag(), "tau": 3.0, "seed": 0, "progress": None}
    alone = tausid.fit(train, recipe=recipe, **options)
    helped = tausid.fit(train, recipe=recipe.with_structure(correction="network"), **options)
    errors = [tausid.evaluate(result.model, test).rmse["y"] for result in (alone, helped)]
    assert errors[0] > 0.1  # a lag is not what it is
    assert errors[1] < 2 * 0.02  # the noise is 0.02
    assert min(helped.folds.pooled) < 0.5 * min(alone.folds.pooled)
    start = start_problem(helped.recipe, 0, 3.0, Split((train,), ()), Lag()).initial_model.state_space
    x, u = jnp.ones((1, 1)), jnp.ones((1, 1))
    np.testing.assert_array_equal(start.derivative(x, u), start.physics.derivative(x, u))


def test_equations_without_any_parameter_have_their_initial_state_fitted():
    result = tausid.fit(lag_record(noise=0.0), physics=Lag(rate=0.3, gain=2.0), seed=0, holdout=None, progress=None)
    assert result.model.physics.parameters == {}
    # RK4 at a step of 0.3 time constants, and an encoder in single precision.
    assert tausid.evaluate(result.model, lag_record(noise=0.0, seed=1)).rmse["y"] < 1e-3


def test_a_correction_starts_at_zero_and_does_no_harm():
    """On a plant that the equations do not describe, the network helps; before its first step it is not there."""
    train, held_out, test = (lag_record(400, bend=0.1, noise=0.02, seed=seed) for seed in (0, 1, 2))
    recipe = recipes.windows(nx=1, na=2, nb=2, hidden=(16,), activation="tanh").change(
        {"start.weight_range": 0.1, "trainer.horizon": 40, "trainer.learning_rate": 0.01, "trainer.steps": 100}
    )
    options = {"physics": Lag(), "seed": 0, "tau": 3.0, "validation": held_out, "progress": None}
    alone = tausid.fit(train, recipe=recipe, **options)
    settings = {"structure.correction": "network", "trainer.steps": 500}
    helped = tausid.fit(train, recipe=recipe, settings=settings, **options)
    split = Split((train,), (held_out,))
    untrained = start_problem(helped.recipe, 0, 3.0, split, Lag()).initial_model
    errors = [tausid.evaluate(model, test).rmse["y"] for model in (alone.model, untrained, helped.model)]
    assert errors[1] == pytest.approx(errors[0], rel=0.05)  # training the encoder makes the difference
    assert errors[2] < 0.6 * errors[0]
    assert alone.model.physics.parameters["rate"].deviation is not None
    assert helped.model.physics.parameters["rate"].deviation is None  # trained with a network


def test_an_encoder_s_linear_map_starts_from_the_fitted_states():
    record = lag_record(noise=0.0)
    recipe = recipes.find("windows", known=True).change(
        {"trainer.horizon": 20, "start.weight_range": 1e-6, "holdout": "none"}
    )
    model = resolve(recipe, record, tau=3.0, seed=0, plant=Lag()).problem.initial_model
    # The state is the output, so that past samples say all of it: what is left is the RK4's and the precision's.
    assert tausid.evaluate(model, record).rmse["y"] < 0.01 * np.std(record.y)


def test_a_model_file_holds_the_equations_by_name(tanks, tmp_path):
    again = tausid.load_model(tanks.save(tmp_path / "model.safetensors"))
    assert again.physics.plant == CascadedTanks()
    assert again.physics.parameters == tanks.physics.parameters
    record = simulated_tanks().test
    np.testing.assert_array_equal(again.simulate(record).y, tanks.simulate(record).y)


@pytest.fixture(scope="module")
def lag(tmp_path_factory):
    """Known equations fitted without noise, and the folder of the run."""
    folder = tmp_path_factory.mktemp("lag")
    return tausid.fit(lag_record(noise=0.0), physics=Lag(), seed=0, out=folder, **WHOLE).model, folder


def test_equations_of_one_s_own_are_given_when_loading(lag, tmp_path):
    path = lag[0].save(tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"load_model\(path, physics=Lag\)"):
        tausid.load_model(path)
    with pytest.raises(ConfigError, match="fitted with, 'Lag'; got 'CascadedTanks'"):
        tausid.load_model(path, physics=CascadedTanks)
    assert tausid.load_model(path, physics=Lag).physics.parameters.keys() == {"rate", "gain"}
    assert tausid.load_model(path, physics=Lag()).physics.plant == Lag()


def test_a_run_resumes_only_with_the_same_equations(lag):
    with pytest.raises(ConfigError, match=r"`physics[\w.]*` was"):
        tausid.fit(lag_record(noise=0.0), physics=Lag(gain=2.0), seed=0, out=lag[1], resume=True, **WHOLE)


def test_folds_have_equations_of_their_own():
    """Folds choose the number of steps with the equations fitted to what each of them trains on."""
    settings = {"structure.hidden": (4,), "trainer.horizon": 20, "trainer.steps": 4, "trainer.validate_every": 2}
    options = {"recipe": "windows", "settings": settings, "holdout": tausid.Folds(2), "tau": 3.0, "progress": None}
    result = tausid.fit(lag_record(noise=0.0), physics=Lag(), seed=0, **options)
    # A network without these equations is off by about one deviation after four steps.
    assert np.max(result.folds.pooled[1:]) < 0.05
    assert result.model.physics.parameters["rate"].value == pytest.approx(0.3, rel=1e-3)


def test_more_states_belong_to_the_network_and_parts_of_recipes_go_with_equations():
    parts = {"network": "polynomial", "dae": True, "encoder": "mlp", "correction": "network", "hidden": (4,)}
    recipe = recipes.windows(nx=3, **parts).change(
        {"start.nonlinear": "zero", "trainer.dae_weight": 1.0, "trainer.horizon": 20, "trainer.steps": 2}
    )
    record = lag_record(150)
    model = tausid.fit(record, physics=Lag(), recipe=recipe, tau="trained", seed=0, progress=None).model
    # The equations say nearly all; an encoder that is hardly trained begins up to a deviation off, for three seconds.
    assert tausid.evaluate(model, record).nrmse["y"] < 0.3
    assert model.simulate(record).x.shape == (150, 3)


def test_outputs_count_in_least_squares_as_they_are_weighted():
    """Two outputs that contradict each other, one lag each: the parameter is that of the output that counts."""
    one, other = lag_record(noise=0.0), lag_record(noise=0.0)
    record = Record.from_arrays(one.u, np.concatenate([one.y, 2.0 * other.y], axis=1), ts=1.0)
    for weights, gain in (([1.0, 0.0], 2.0), ([0.0, 1.0], 4.0)):
        recipe = recipes.greybox().change({"trainer.output_weights": weights})
        known = fit_known(Twice(), (record,), recipe).known
        assert known.parameters["gain"].value == pytest.approx(gain, rel=1e-3)  # RK4, single precision


def test_descriptions_restore():
    plant = MassWithFriction(gain=35.0, stiffness=Parameter(1.0, 0.0))
    assert restore_physics(MassWithFriction, describe_physics(plant)["fields"]) == plant


@dataclass(frozen=True)
class Wrong(AbstractPhysics):
    what: Any = 1.0
    states: ClassVar[dict[str, State]] = {"x": State()}

    def derivative(self, x: Any, u: Any, p: Any) -> Any:
        return (x[0], x[0]) if p.what == "two" else (u[1] * x[0],) if p.what == "input" else (x[0],)

    def output(self, x: Any, u: Any, p: Any) -> Any:
        return (jnp.exp(1e3 * x[0] + 1e3),) if p.what == "lost" else (x[0],)


@dataclass
class Thawed(AbstractPhysics):
    derivative = output = Lag.output
    states: ClassVar[dict[str, State]] = {"x": State()}


@dataclass(frozen=True)
class Stateless(AbstractPhysics):
    derivative = output = Lag.output


@pytest.mark.parametrize(
    ("physics", "message"),
    [
        (CascadedTanks, "must be a plant"),
        ("Tanks", "unknown physics 'Tanks'"),
        (Wrong("two"), r"`Wrong.derivative` must give one value per state, 1; got 2"),
        (Wrong("input"), r"must take 1 states and the records' 1 inputs"),
        (Wrong([1.0]), "field `what` of Wrong must be a Parameter"),
        (Thawed(), "must be a plant: an object of a frozen dataclass"),
        (Stateless(), "`states` of Stateless must name each state with a State; got None"),
        (Wrong("lost"), "Wrong diverges"),
    ],
)
def test_wrong_declarations_are_refused(physics, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, whose types nobody checks
    with pytest.raises(ConfigError, match=message):
        tausid.fit(lag_record(60), physics=physics, seed=0, **WHOLE)


def test_outputs_are_counted():
    with pytest.raises(ConfigError, match="one value per output of the records, 2; got 1"):
        check_physics(Lag(), nu=1, ny=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nx": 2}, "`nx` must be 1, the states of Lag, or more with structure.correction=network; got 2"),
        ({"start": tausid.FromLinear()}, "`start` must be random with known equations, as these have a start of their"),
        ({"recipe": "paper", "settings": {"structure.correction": "network"}}, "`barrier` must be none .* Set it so"),
        ({"settings": {"structure.feedthrough": False}}, "`feedthrough` must be true with known equations"),
        ({"settings": {"structure.output_limits": [0, 1]}}, "`output_limits` must be none with known equations"),
        (
            {"recipe": "windows", "settings": {"integration.engine": "fused", "trainer.horizon": 20}},
            "engine 'fused' is not available",
        ),
        ({"tau": "trained"}, "`tau` must not be trained where no network corrects known equations"),
        (
            {"physics": None, "settings": {"structure.correction": "network"}},
            "`correction` must have known equations to correct; got 'network'",
        ),
    ],
)
def test_settings_that_do_not_go_with_equations_are_refused(settings, message):
    options = {"physics": Lag(), "seed": 0, "holdout": None, "tau": 10.0, "progress": None, **settings}
    with pytest.raises(ConfigError, match=message):
        tausid.fit(lag_record(60), **options)
