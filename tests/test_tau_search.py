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
from tausid.study.tau_search import _conclude, estimate_tau, search_tau

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
    estimate = search_tau(wiener_record(200), report=seen.append, **arguments, **QUICK)
    return {"estimate": estimate, "seen": seen, "arguments": arguments}


def test_a_grid_search_scores_every_value_and_takes_the_best(grid_search):
    estimate = grid_search["estimate"]
    assert [trial.ts_over_tau for trial in estimate.trials] == pytest.approx(np.geomspace(0.3, 4.0, 6).tolist())
    best = min(estimate.trials, key=lambda trial: trial.score)
    assert estimate.ts_over_tau == pytest.approx(best.ts_over_tau)
    assert len(grid_search["seen"]) == 6
    assert "stopped early" not in {trial.status for trial in estimate.trials}  # a grid is tried to its end
    # The same fit by hand gives the same score: the held-out free run, and nothing else.
    result = tausid.fit(wiener_record(200), tau=0.5 / best.ts_over_tau, seed=0, progress=None, **QUICK)
    assert min(row.validation for row in result.history) == pytest.approx(best.score, rel=1e-6)


def test_a_finished_search_is_not_run_again(grid_search):
    seen: list[TauTrial] = []
    again = search_tau(wiener_record(200), report=seen.append, **grid_search["arguments"], **QUICK)
    assert seen == []
    assert again.tau == grid_search["estimate"].tau


def test_a_search_is_not_resumed_with_other_settings(grid_search):
    with pytest.raises(ConfigError, match="settings and data it began with; `trainer.steps` was 40 and is now 60"):
        search_tau(
            wiener_record(200), **grid_search["arguments"], **{**QUICK, "settings": {**SETTINGS, "trainer.steps": 60}}
        )
    with pytest.raises(ConfigError, match="settings and data it began with; `data` was"):
        search_tau(wiener_record(200, seed=1), **grid_search["arguments"], **QUICK)


SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
from problems import wiener_record
from tausid.study.tau_search import search_tau
if __name__ == "__main__":
    search_tau(wiener_record(200), seed=0, out={out!r}, trials=3, workers=1, **{quick!r})
"""


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
    with pytest.raises(DivergenceError, match="none of 1 trials did"):
        _conclude([TauTrial(40.0, np.inf, "diverged")], 4.0, "grid")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "guess"}, "unknown method 'guess'"),
        ({"method": "bla", "trials": 3}, "method 'bla' must have no further options; got trials"),
        ({"search": "random"}, "unknown search 'random'"),
        ({"trials": 0}, "`trials` must be at least 1; got 0"),
        ({"bounds": (1.0, 0.1)}, "`bounds` must be two rising positive values"),
        ({"settings": {"holdout": "none"}}, "a search for tau must hold data out to score with"),
        ({"holdout": None}, "a search for tau must hold data out to score with"),
        ({"out": None}, "must have a folder for its journal; got none"),
        ({"method": "trained", "tau": 3.0, "progress": None, **QUICK}, "a trained tau must be trainable; got tau=3.0"),
        ({"test": wiener_record(50)}, "a search for tau decides `test` itself"),
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
