"""Results show themselves in a notebook: what matters is there, and names from data stay text."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from pages import SCRIPT, small_model

import tausid
from tausid import Record
from tausid.display import html_table
from tausid.training import FitResult


def record() -> Record:
    u = np.sin(np.arange(60) / 3.0)
    y = np.roll(u, 1) * 2
    y[5] = np.nan
    return Record.from_arrays(u, y, ts=0.5, input_names=[SCRIPT], output_names=["<b>"], name="<i>")


def model() -> tausid.Model:
    return dataclasses.replace(small_model(1, 1), input_names=(SCRIPT,), output_names=("<b>",))


def result() -> FitResult:
    fitted = model()
    return FitResult(fitted, fitted, (), "completed", f"done {SCRIPT}", 9, 7, 1.5, tausid.recipes.windows(), 3, {})


def estimate() -> tausid.TauEstimate:
    return tausid.TauEstimate(2.0, np.array([2.0]), 0.5, "bla", f"somehow {SCRIPT}", (1.5, 2.5))


def score() -> tausid.Score:
    return tausid.Score({SCRIPT: 0.123456}, {SCRIPT: 0.1}, {SCRIPT: 90.0}, 5, 55, "diverged", "<i>")


def simulation() -> tausid.Simulation:
    measured = record()
    return tausid.Simulation(measured.t, measured.y, measured.y, 5, "diverged", (SCRIPT,), "free")


def inspection() -> tausid.Inspection:
    return tausid.look(record())


def residuals() -> tausid.residuals.ResidualTest:
    measured = dataclasses.replace(record(), name=SCRIPT)
    flat = tausid.Simulation(measured.t, 0 * measured.y, measured.y, 0, "ok", measured.output_names)
    return tausid.analyse_residuals(flat, measured)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (record, ["60 samples", "Ts = 0.5 s", "-2", "input", "output"]),
        (model, ["states", "2 s (given)", "Ts/tau = 0.25", "rk4"]),
        (result, ["Fit: completed", "done", "9, the best is 7", "seed 3", "2 s (given)"]),
        (estimate, ["tau = 2 s (bla)", "0.25", "1.5 to 2.5 s", "somehow"]),
        (simulation, ["60 samples from 0 to 29.5 s, the first 5 for the initial state (free), diverged", "-2"]),
        (inspection, ["Ts = 0.5 s", "missing", "What to do", "lacks 1 of 60 samples"]),
        (residuals, ["Residuals over", "59 samples", "correlated with"]),
        (score, ["0.1235", "55 samples, 5 skipped", "diverged", "90"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_results_show_themselves(make, words):
    shown = make()._repr_html_()
    for word in words:
        assert word in shown
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "<i>" not in shown
    assert len(shown) < 5000


def test_a_table_escapes_title_header_and_cells():
    shown = html_table("<a>", [("<c>", 1.0)], header=("<d>",))
    for name in "acd":
        assert f"&lt;{name}&gt;" in shown
