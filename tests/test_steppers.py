from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from tausid import ConfigError, FixedStep
from tausid.holds import held_input, hold_slopes
from tausid.rollout import rollout_scan
from tausid.steppers import STEPPERS, get_stepper

A = np.array([[-0.4, 1.1], [-0.9, -0.2]])
B = np.array([[0.5], [1.0]])


def linear_field(x, u):
    return x @ A.T + u @ B.T


def exact_states(u: np.ndarray, dt: float, *, first_order: bool) -> np.ndarray:
    """States of dx/dt = A x + B u by the matrix exponential of the augmented system, u held or interpolated."""
    augmented = np.zeros((4, 4))
    augmented[:2, :2], augmented[:2, 2:3] = A, B
    augmented[2, 3] = 1.0 / dt  # the input moves by its fourth state within one step
    transition = expm(augmented * dt)
    states = [np.zeros(2)]
    for now, following in zip(u[:-1, 0], u[1:, 0], strict=True):
        slope = following - now if first_order else 0.0
        states.append((transition @ np.concatenate([states[-1], [now, slope]]))[:2])
    return np.array(states)


def simulate(u: np.ndarray, dt: float, integrator: FixedStep) -> np.ndarray:
    with jax.enable_x64(True):
        steps = jnp.full((len(u) - 1, 1), dt)
        x = rollout_scan(linear_field, jnp.zeros((1, 2)), jnp.asarray(u)[:, None], steps, integrator)
        return np.asarray(x[:, 0])


@pytest.mark.parametrize("hold", ["zero", "first"])
def test_linear_systems_follow_the_matrix_exponential(hold):
    u = np.random.default_rng(0).normal(size=(40, 1))
    exact = exact_states(u, 0.1, first_order=hold == "first")
    # RK4's local error is about (0.1 / 8)^5 here: a global error of 1e-8 leaves a margin of ten.
    np.testing.assert_allclose(simulate(u, 0.1, FixedStep("rk4", 8, hold)), exact, atol=1e-8)


@pytest.mark.parametrize("name", STEPPERS)
@pytest.mark.parametrize("hold", ["zero", "first"])
def test_each_stepper_converges_with_its_order(name, hold):
    u = np.random.default_rng(1).normal(size=(10, 1))
    exact = exact_states(u, 0.5, first_order=hold == "first")
    errors = [np.abs(simulate(u, 0.5, FixedStep(name, n, hold)) - exact).max() for n in (8, 16)]
    # Halving the step divides the error by 2^order; higher terms still show at this step, hence 0.2.
    assert np.log2(errors[0] / errors[1]) == pytest.approx(get_stepper(name).order, abs=0.2)


def test_substeps_are_the_same_as_a_finer_clock_with_a_held_input():
    u = np.random.default_rng(2).normal(size=(6, 1))
    fine = simulate(np.repeat(u, 3, axis=0)[:-2], 0.1, FixedStep("heun", 1))
    np.testing.assert_allclose(simulate(u, 0.3, FixedStep("heun", 3)), fine[::3], rtol=1e-12)


def test_each_trajectory_has_its_own_time_steps():
    u = jnp.zeros((2, 2, 1))
    x = rollout_scan(lambda x, u: -x, jnp.ones((2, 1)), u, jnp.array([[0.1, 0.7]]), FixedStep("euler"))
    np.testing.assert_allclose(x[1, :, 0], [0.9, 0.3], rtol=1e-6)


def test_holds_can_differ_per_input():
    slopes = hold_slopes(("zero", "first"), 2)
    u = held_input(slopes, jnp.array([1.0, 1.0]), jnp.array([3.0, 3.0]), 0.5)
    np.testing.assert_allclose(u, [1.0, 2.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stepper": "rk5"}, "unknown stepper 'rk5'.*Did you mean 'rk4'"),
        ({"hold": "zoh"}, "unknown hold 'zoh'"),
        ({"substeps": 0}, "`substeps` must be at least 1; got 0"),
    ],
)
def test_unknown_integrations_are_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        FixedStep(**settings)


def test_a_hold_per_input_needs_one_name_each():
    with pytest.raises(ConfigError, match="one name, or one per input; got 2 for 3 inputs"):
        hold_slopes(("zero", "first"), 3)
