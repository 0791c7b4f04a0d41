"""The suite of plants: its references are those of today's records, and the default recipe holds its promise."""

from __future__ import annotations

import functools
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

import tausid
from tausid import datasets
from tausid.data.plants import PLANTS
from tausid.model.official import evaluate_window
from tausid.results.comparison import read_references
from tausid.study import read_spec

SUITE = Path(__file__).parents[1] / "experiments" / "suite"
SPEC = read_spec(SUITE / "study.toml")
WINDOW = SPEC.settings["window"]
# Short records of plants that ask for different things: nothing beyond the linear model, a state times the input, a
# dead time.
SMALL = ("linear", "bilinear", "transport_delay")
BASELINES = ("mean", "linear", "ARX")


@functools.cache
def reference(data: str, score: str, name: str) -> float:
    found = [r.value for r in read_references(SUITE) if (r.data, r.score, r.name) == (data, score, name)]
    assert len(found) == 1, f"{data} must have one {name} for {score}: run references.py"
    return found[0]


def test_the_suite_has_every_plant():
    assert set(SPEC.sources) == set(datasets.names())
    compared = {r.data for r in read_references(SUITE)}
    assert compared == set(datasets.names())


@pytest.mark.parametrize("name", PLANTS)
def test_references_are_those_of_todays_records(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    data = datasets.load(name)
    for i, output in enumerate(data.test.output_names):
        score = "test_rmse" if data.test.ny == 1 else f"test_rmse:{output}"
        error = np.sqrt(np.mean((data.test.y[WINDOW:, i] - data.train.y[:, i].mean()) ** 2))
        assert reference(name, score, "mean") == pytest.approx(error, rel=1e-5)  # six digits in the file
        assert reference(name, score, "noise") == pytest.approx(data.noise[i], rel=1e-5)
        # No model is better than the noise, but for the scatter of its deviation over some hundred samples.
        assert reference(name, score, "linear") > 0.9 * data.noise[i]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_default_recipe_is_no_worse_than_the_baselines(name):
    data = datasets.load(name)
    model = tausid.fit(data.train, seed=0, progress=None).model
    error = evaluate_window(model, data.tests, WINDOW).records[0].rmse
    for output, value in error.items():
        score = "test_rmse" if data.test.ny == 1 else f"test_rmse:{output}"
        assert value < 1.05 * min(reference(name, score, baseline) for baseline in BASELINES)
