"""The description of a model and its interpreter, against the model itself and finite differences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import CASES, delayed, make_ensemble, make_model

from tausid import ConfigError, FixedStep, Scaling
from tausid.engine.networks import ACTIVATIONS
from tausid.export import describe, operations
from tausid.export.description import step_function
from tausid.export.interpreter import evaluate, jacobian, simulate, step
from tausid.model.physics import CascadedTanks, KnownPart


@pytest.mark.parametrize("case", CASES)
def test_the_interpreter_reproduces_the_simulation(case):
    model, record = make_model(case)
    x0 = np.linspace(0.2, 0.6, model.state_space.nx)
    with jax.enable_x64(True):  # known equations are simulated by JAX, in single precision otherwise
        expected = model.simulate(record, x0=x0)
    x, y = simulate(describe(model), x0, record.u, record.t)
    # Rounding of 240 stages and more; the states have unit size.
    np.testing.assert_allclose(x, expected.x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(y, expected.y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ["leaky", "tanh", "cubic"])
def test_delays_are_those_of_the_simulation(case):
    model, record = delayed(case)
    expected, without = (replace(model, delays=d).simulate(record, x0=np.full(3, 0.2)) for d in (model.delays, ()))
    x, y = simulate(describe(model), np.full(3, 0.2), record.u, record.t)
    np.testing.assert_allclose(x, expected.x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(y, expected.y, rtol=1e-12, atol=1e-12)
    assert np.abs(expected.y - without.y).max() > 1e-3


def test_limits_and_several_parts_of_a_step_are_met_in_these_cases():
    limited, record = make_model("both")
    y = limited.simulate(record, x0=np.zeros(3)).y
    low, high = np.array([-0.3, 0.4])[:, None] * limited.scaling.y_std + limited.scaling.y_mean
    assert np.isclose(y, low).any() and np.isclose(y, high).any() and (~np.isclose(y, low) & ~np.isclose(y, high)).any()
    assert np.diff(record.t).max() > 2 * limited.longest_step


def test_an_ensemble_is_its_members_side_by_side_and_their_trimmed_mean():
    ensemble, record = make_ensemble()
    starts = [np.full(3, 0.1 * i) for i in range(5)]
    every = [m.simulate(record, x0=x0) for m, x0 in zip(ensemble.members, starts, strict=True)]
    x, y = simulate(describe(ensemble), np.concatenate(starts), record.u, record.t)
    np.testing.assert_allclose(x, np.concatenate([run.x for run in every], axis=1), rtol=1e-12, atol=1e-12)
    middle = np.sort([run.y for run in every], axis=0)[1:4].mean(axis=0)
    np.testing.assert_allclose(y, middle, rtol=1e-12)


def test_members_with_other_integrations_are_refused():
    ensemble, _ = make_ensemble(2)
    other = replace(ensemble.members[1], integration=replace(ensemble.members[1].integration, substeps=4))
    with pytest.raises(ConfigError, match="must be integrated alike.*1 substeps of rk4; 4 substeps of rk4"):
        describe(replace(ensemble, members=(ensemble.members[0], other)))


@pytest.mark.parametrize("case", CASES)
def test_jacobians_are_those_of_central_differences(case):
    description = describe(make_model(case)[0])
    rng = np.random.default_rng(0)
    x, u, h = rng.normal(0.3, 0.1, description.nx), rng.normal(3.0, 0.3, description.nu), 1e-6
    for function in (description.f, description.g):
        z = np.concatenate([x, u])
        ends = [evaluate(function, *np.split(z + s * h * np.eye(len(z)), [len(x)], axis=1)) for s in (1, -1)]
        expected = (ends[0] - ends[1]).T / (2 * h)
        # Differences of values of size one round at 1e-16 / h.
        np.testing.assert_allclose(np.concatenate(jacobian(function, x, u), axis=1), expected, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("case", ["tanh", "cubic", "autonomous", "tanks"])
def test_a_step_is_a_function_as_well(case):
    description = describe(make_model(case)[0])
    rng = np.random.default_rng(1)
    x, u, u_next = rng.normal(0.4, 0.1, description.nx), *rng.normal(3.0, 1.0, (2, description.nu))
    dt = description.ts
    got = evaluate(step_function(description), x, np.concatenate([u, u_next, [dt]]))
    np.testing.assert_allclose(got, step(description, x, u, u_next, dt), rtol=1e-14)


def test_every_activation_has_its_operations():
    assert set(operations.ACTIVATIONS) == set(ACTIVATIONS)


def test_what_the_result_does_not_need_is_left_out():
    description = describe(make_model("linear g")[0])
    assert [op.kind for op in description.g.operations] == [
        "state", "input", "linear", "constant", "multiply", "constant", "add"
    ]  # fmt: skip
    assert description.g.varying == (True, True, True, False, True, False, True)


def test_the_start_is_the_mean_of_the_states_seen_in_training():
    model, _ = make_model("leaky")
    free = replace(model.state_space.initial, expected=np.array([1.0, 2.0, 3.0]))
    started = replace(model, state_space=replace(model.state_space, initial=free))
    np.testing.assert_array_equal(describe(started).x0, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(describe(model).x0, 0.0)


@dataclass(frozen=True)
class OneTank(CascadedTanks):
    """Other equations, with what is asked for in `shape`."""

    shape: str = "powers"

    def derivative(self, x: Any, u: Any, p: Any) -> Any:
        bend = {
            "powers": lambda a: a**3 - a**-2 + jnp.square(a) + jax.nn.sigmoid(a) + jnp.sin(a) * 0.0 - (-a),
            "where": lambda a: jnp.where(a > 1.0, a, 0.0),
            "arrays": lambda a: jnp.stack([a, a]).sum(),
        }[p.shape]
        return bend(x[0]), jax.lax.clamp(0.0, u[0], 1.0)


def with_physics(plant: CascadedTanks) -> Any:
    model, record = make_model("tanks")
    known = KnownPart.start(plant, Scaling.from_records(record), trainable=False)
    return replace(model, state_space=replace(model.state_space, physics=known))


def test_equations_of_one_s_own_are_traced():
    description = describe(with_physics(OneTank()))
    got = evaluate(description.f, np.array([2.0, 0.0]), np.array([3.0]))
    sigmoid = 1.0 / (1.0 + np.exp(-2.0))
    np.testing.assert_allclose(got, [8.0 - 0.25 + 4.0 + sigmoid + 2.0, 1.0], rtol=1e-14)


@pytest.mark.parametrize(("shape", "missing"), [("where", "gt"), ("arrays", "arrays")])
def test_equations_that_no_target_has_are_refused_with_what_is_missing(shape, missing):
    with pytest.raises(ConfigError, match=f"`OneTank.derivative` must be written.* uses {missing}.*Write it with"):
        describe(with_physics(OneTank(shape=shape)))


def test_another_integrator_would_differ():
    """The tolerance above tells steppers apart."""
    model, record = make_model("tanh")
    other = model.simulate(record, x0=np.zeros(3), integrator=FixedStep("heun", 2)).x
    assert np.abs(other - simulate(describe(model), np.zeros(3), record.u, record.t)[0]).max() > 1e-6
