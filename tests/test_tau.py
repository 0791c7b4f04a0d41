from __future__ import annotations

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from tausid import ConfigError, Tau
from tausid.model.tau import EPSILON


def test_tau_starts_at_the_given_seconds():
    assert float(Tau(74.0).seconds) == 74.0
    np.testing.assert_allclose(Tau([1.0, 2.0, 3.0]).seconds, [1.0, 2.0, 3.0])
    assert not Tau(74.0).trainable


def test_a_trained_tau_stays_positive():
    import equinox as eqx

    pushed = eqx.tree_at(lambda t: t.factor, Tau(10.0, trainable=True), jnp.asarray(-3.0))
    np.testing.assert_allclose(float(pushed.seconds), 10.0 * EPSILON, rtol=1e-6)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), [1.0, 0.0], [], "fast", [[1.0]]])
def test_tau_must_be_positive(bad, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, whose types nobody checks
    with pytest.raises(ConfigError, match="`tau` must be a positive number of seconds, or one per state; got"):
        Tau(bad)
