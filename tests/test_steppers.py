from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tausid import ConfigError, FixedStep
from tausid.engine.holds import held_input, hold_slopes
from tausid.engine.scan import rollout_scan

A = np.array([[-0.4, 1.1], [-0.9, -0.2]])
B = np.array([[0.5], [1.0]])


def simulate(u: np.ndarray, dt: float, integrator: FixedStep) -> np.ndarray:
    """States of dx/dt = A x + B u in double precision."""
    with jax.enable_x64(True):
        steps = jnp.full((len(u) - 1, 1), dt)
        inputs = jnp.asarray(u)[:, None]
        x = rollout_scan(lambda x, u: x @ A.T + u @ B.T, jnp.zeros((1, 2)), inputs, steps, integrator)
        return np.asarray(x[:, 0])


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
