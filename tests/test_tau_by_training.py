from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from problems import wiener_record

import tausid
from tausid import ConfigError, DivergenceError
from tausid.linear.tau_estimation import TauTrial
from tausid.study import read_results
from tausid.study.tau_by_training import _conclude, _next_values, cross_validate_tau, estimate_tau

SETTINGS = {
    "structure.hidden": (8,),
    "trainer.horizon": 20,
    "trainer.batch": 8,
    "trainer.steps": 40,
    "trainer.validate_every": 20,
}
QUICK = {"recipe": "windows", "nx": 2, "settings": SETTINGS}


def test_a_trained_tau_is_reported_with_its_late_range():
    settings = {**SETTINGS, "trainer.learning_rate": 1e-2, "holdout": "none"}
    estimate = estimate_tau(wiener_record(200), method="trained", nx=2, settings=settings, progress=None)
    low, high = estimate.spread
    assert low <= estimate.tau <= high
    assert estimate.tau != 5.0  # it starts at ten sampling times
    assert estimate.tau_per_state.shape == (2,)
    assert "trained with all weights" in estimate.description


@pytest.fixture(scope="module")
def grid_search(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("search")
    seen: list[TauTrial] = []
    arguments = {"seed": 0, "out": folder, "search": "grid", "trials": 6, "bounds": (0.3, 4.0), "workers": 1}
    estimate = cross_validate_tau(wiener_record(200), report=seen.append, **arguments, **QUICK)
    return {"estimate": estimate, "seen": seen, "arguments": arguments}


def test_a_grid_search_scores_every_value_and_takes_the_best(grid_search):
    estimate = grid_search["estimate"]
    assert [trial.ts_over_tau for trial in estimate.trials] == pytest.approx(np.geomspace(0.3, 4.0, 6).tolist())
    best = min(estimate.trials, key=lambda trial: trial.score)
    assert estimate.ts_over_tau == pytest.approx(best.ts_over_tau)
    assert len(grid_search["seen"]) == 6
    assert {row["run"] for row in read_results(grid_search["arguments"]["out"]).rows} == {
        f"ts_over_tau={trial.ts_over_tau}" for trial in estimate.trials
    }  # it is a study like any other
    # The same fit by hand gives the same score: the held-out free run, and nothing else.
    result = tausid.fit(wiener_record(200), tau=0.5 / best.ts_over_tau, seed=0, progress=None, **QUICK)
    assert min(row.validation for row in result.history) == pytest.approx(best.score, rel=1e-6)


def test_a_finished_search_is_not_run_again(grid_search):
    seen: list[TauTrial] = []
    again = cross_validate_tau(wiener_record(200), report=seen.append, **grid_search["arguments"], **QUICK)
    assert seen == []
    assert again.tau == grid_search["estimate"].tau


def test_a_search_is_not_resumed_with_other_settings(grid_search):
    with pytest.raises(ConfigError, match="must keep its settings and data; `trainer.steps` was 40 and is now 60"):
        cross_validate_tau(
            wiener_record(200), **grid_search["arguments"], **{**QUICK, "settings": {**SETTINGS, "trainer.steps": 60}}
        )
    with pytest.raises(ConfigError, match="must keep its settings and data; `data` was"):
        cross_validate_tau(wiener_record(200, seed=1), **grid_search["arguments"], **QUICK)


def test_refinement_halves_intervals_with_good_ends_until_the_trials_are_spent():
    """On a valley with its floor at 0.1 the search ends within a twentieth of a decade of it."""
    done: list[TauTrial] = []
    while values := _next_values(done, "refine", 20, (1e-3, 10.0)):
        assert set(values).isdisjoint(trial.ts_over_tau for trial in done)
        new = [TauTrial(value, 0.2 + abs(np.log10(value / 0.1)), "completed") for value in values]
        done = sorted([*done, *new], key=lambda trial: trial.ts_over_tau)
    assert len(done) == 20
    assert min(trial.score for trial in done) < 0.25
    assert len(_next_values([], "refine", 20, (1e-3, 10.0))) == 10  # half of them on a grid
    assert _next_values([TauTrial(v, np.inf, "failed") for v in (0.1, 1.0)], "refine", 20, (0.1, 1.0)) == ()


SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
from problems import wiener_record
from tausid.study.tau_by_training import cross_validate_tau
if __name__ == "__main__":
    cross_validate_tau(wiener_record(200), seed=0, out={out!r}, trials=3, workers=1, **{quick!r})
"""


@pytest.mark.slow
def test_a_killed_search_goes_on_without_losing_or_repeating_a_finished_fit(tmp_path):
    script = tmp_path / "search.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent), out=str(tmp_path / "s"), quick=QUICK))
    pipes = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([sys.executable, script], **pipes) as process:
        first = process.stderr.readline()  # one trial is done
        os.killpg(process.pid, signal.SIGKILL)
    assert "held-out NRMSE" in first
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    later = [line for line in done.stderr.splitlines() if "held-out NRMSE" in line]
    assert 1 <= len(later) <= 2  # the one that was reported, or one more that ended meanwhile, is not repeated
    assert first.split(":")[0] not in {line.split(":")[0] for line in later}


def test_the_spread_covers_the_valley_and_a_hopeless_search_says_so():
    trials = [TauTrial(0.01, 0.5, "completed"), TauTrial(0.1, 0.2, "completed"), TauTrial(0.2, 0.21, "completed")]
    estimate = _conclude(trials, 4.0, "grid")
    assert estimate.tau == pytest.approx(40.0)
    assert estimate.spread == pytest.approx((20.0, 40.0))
    with pytest.raises(DivergenceError, match="none of 1 fits did"):
        _conclude([TauTrial(40.0, np.inf, "diverged")], 4.0, "grid")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "guess"}, "unknown method 'guess'"),
        ({"method": "bla", "trials": 3}, "method 'bla' must have no further options; got trials"),
        ({"search": "random"}, "unknown search 'random'"),
        ({"trials": 0}, "`trials` must be a whole number of at least 1; got 0"),
        ({"bounds": (1.0, 0.1)}, "`bounds` must be two rising positive values"),
        ({"settings": {"holdout": "none"}}, "a cross-validation of tau must hold data out"),
        ({"holdout": None}, "unknown option of a cross-validation of tau 'holdout'"),
        ({"out": None}, "must have a folder for its study; got none"),
        ({"method": "trained", "tau": 3.0, "progress": None, **QUICK}, "a trained tau must be trainable; got tau=3.0"),
        ({"test": wiener_record(50)}, "unknown option of a cross-validation of tau 'test'"),
    ],
)
def test_bad_searches_are_refused(changes, message, tmp_path):
    arguments = {"method": "cv", "out": tmp_path, **changes}
    if arguments["method"] != "cv":
        del arguments["out"]
    with pytest.raises(ConfigError, match=message):
        estimate_tau(wiener_record(100), **arguments)


def test_no_worker_is_left_behind(grid_search):
    deadline = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not multiprocessing.active_children()
