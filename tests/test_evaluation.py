from __future__ import annotations

import numpy as np
import pytest

from tausid import DataError, Record
from tausid.model.course import Simulation
from tausid.model.evaluation import score_simulation


def simulation(y_hat, skipped: int = 1, status: str = "ok") -> Simulation:
    y = np.asarray(y_hat, float)
    return Simulation(np.arange(len(y)) * 1.0, y, np.zeros((len(y), 1)), skipped, status, ("y",))


RECORD = Record.from_arrays(np.arange(5.0), [9.0, 1.0, 2.0, 3.0, 4.0], ts=1.0, name="test")


def test_the_papers_formula_on_a_hand_computed_example():
    # Errors after one skipped sample: 1, 0, -1, 2. sqrt((1 + 0 + 1 + 4) / 4) = sqrt(1.5).
    score = score_simulation(simulation([[np.nan], [0.0], [2.0], [4.0], [2.0]]), RECORD)
    assert score.rmse["y"] == pytest.approx(np.sqrt(1.5), rel=1e-15)
    # The measured 1, 2, 3, 4 have deviation sqrt(1.25).
    assert score.nrmse["y"] == pytest.approx(np.sqrt(1.5 / 1.25), rel=1e-15)
    assert score.fit_percent["y"] == pytest.approx(100 * (1 - np.sqrt(1.2)), rel=1e-12)
    assert (score.n_skipped, score.n_scored) == (1, 4)


def test_more_samples_can_be_skipped_but_never_fewer():
    sim = simulation([[np.nan], [0.0], [2.0], [4.0], [2.0]])
    assert score_simulation(sim, RECORD, skip=3).rmse["y"] == pytest.approx(np.sqrt((1 + 4) / 2))
    assert score_simulation(sim, RECORD, skip=0).n_skipped == 1


def test_missing_outputs_are_not_scored():
    record = Record.from_arrays(np.arange(4.0), [0.0, 1.0, np.nan, 3.0], ts=1.0)
    score = score_simulation(simulation([[0.0], [2.0], [77.0], [5.0]], skipped=0), record)
    assert score.rmse["y"] == pytest.approx(np.sqrt((0 + 1 + 4) / 3))
    assert score.n_scored == 3


def test_several_outputs_are_scored_apart_and_together():
    y = np.array([[0.0, 10.0], [1.0, 20.0], [2.0, 30.0]])
    record = Record.from_arrays(np.arange(3.0), y, ts=1.0)
    score = score_simulation(simulation(y + np.array([3.0, 4.0]), skipped=0), record)
    assert score.rmse == pytest.approx({"y1": 3.0, "y2": 4.0})
    assert score.total_rmse == pytest.approx(5.0)  # sqrt of the mean of 3^2 + 4^2


def test_a_diverged_simulation_has_an_infinite_error_and_valid_json():
    score = score_simulation(simulation([[0.0], [1.0], [np.nan], [np.inf], [0.0]], status="diverged"), RECORD)
    assert score.rmse["y"] == np.inf
    assert score.as_dict()["rmse"]["y"] is None
    assert score.as_dict()["simulation"] == "diverged"


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(DataError, match="must have the record's 5 samples to be scored; got 3. Simulate without `dt`"):
        score_simulation(simulation(np.zeros((3, 1))), RECORD)
    with pytest.raises(DataError, match="measured outputs after the 5 skipped samples; it has none"):
        score_simulation(simulation(np.zeros((5, 1))), RECORD, skip=5)
