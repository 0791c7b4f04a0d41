"""Starts from short stretches of the records that grow."""

from __future__ import annotations

import numpy as np
import pytest

import tausid
from tausid import recipes
from tausid.training.full_error import full_error
from tausid.training.resolve import resolve
from tausid.training.stretched_start import _growing, join_stretches


def relay_loop(samples: int, seed: int) -> tausid.Record:
    """An oscillator whose feedback saturates, with a set point that steps: once out of step, a simulation stays so."""
    rng, ts, substeps = np.random.default_rng(seed), 0.1, 10
    u = np.repeat(rng.uniform(-1.0, 1.0, samples // 30 + 1), 30)[:samples]
    x, y = np.zeros(3), np.zeros(samples)
    for k in range(samples):
        y[k] = x[0]
        for _ in range(substeps):
            x = x + ts / substeps * np.array([x[1], x[2], -2 * x[2] - 3 * x[1] - 8 * np.tanh(3 * (x[0] - u[k]))])
    return tausid.Record.from_arrays(u, y + 0.02 * rng.normal(size=samples), ts=ts)


SETTINGS = {"structure.nx": 3, "structure.activation": "tanh", "search": "fixed", "holdout": "none"}


def test_an_oscillator_is_identified_from_stretches_where_whole_records_lead_astray():
    record = relay_loop(1200, seed=0)
    errors = {}
    for stretches in (False, True):
        settings = {**SETTINGS, "start.stretches": stretches}
        model = tausid.fit(record, seed=0, settings=settings, progress=None).model
        errors[stretches] = tausid.evaluate(model, record, skip=50).rmse["y"]
    assert errors[True] < 1.5 * 0.02 < 10 * 0.02 < errors[False]


def test_stretches_double_up_to_half_of_the_longest_record():
    assert _growing(1200, 20) == [38, 75, 150, 300, 600]
    assert _growing(1001, 500) == [501] and _growing(30, 20) == []


@pytest.mark.parametrize(("shortest", "over"), [(100, False), (20, True)])
def test_a_record_too_short_for_stretches_or_an_interruption_leaves_the_weights_as_they_are(shortest, over):
    recipe = recipes.default().change({**SETTINGS, "start.stretches": True})
    problem = resolve(recipe, relay_loop(120, seed=1), tau=1.0, seed=0).problem
    error, start = full_error(problem), problem.first_weights
    joined = join_stretches(error, start, shortest, lambda: over)
    np.testing.assert_array_equal(error.parameters.pack(joined), error.parameters.pack(start))
