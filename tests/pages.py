"""Runs and studies for tests of reports, without any training."""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path

import numpy as np

import tausid
from tausid import Record
from tausid.model.course import Simulation
from tausid.results.runs import Experiment, Run
from tausid.results.runs._run import linear_rmse
from tausid.training import HistoryRow

SCRIPT = "<script>alert(1)</script>"


@functools.cache
def small_model(inputs: int, outputs: int) -> tausid.Model:
    """A model of so many channels after two steps of training."""
    rng = np.random.default_rng(0)
    train = Record.from_arrays(rng.normal(size=(80, inputs)), rng.normal(size=(80, outputs)), ts=0.5, name="small")
    settings = {"structure.hidden": [4], "trainer.horizon": 20, "trainer.steps": 2}
    return tausid.fit(train, tau=2.0, seed=3, recipe="windows", nx=2, settings=settings, progress=None).model


def run_with(records: list[tuple[str, Record, float]], **changes: object) -> Run:
    """A run whose free runs miss the measured outputs by a sine of given size."""
    first = records[0][1]
    texts = {name: getattr(first, name) for name in ("input_names", "output_names", "input_units", "output_units")}
    model = dataclasses.replace(small_model(first.nu, first.ny), **texts)
    experiments = tuple(Experiment(role, record, _missed_by(record, size)) for role, record, size in records)
    history = (HistoryRow(50, 0.04, 0.5, 3e-3, 2.0, 1.0, 0.1), HistoryRow(100, 0.01, 0.3, 1e-3, 2.1, 2.0, 0.05))
    summary = {"status": "completed", "message": "all steps taken.", "steps": 200, "best_step": 100, "seconds": 2.0}
    values = {"name": "plant", "command": "tausid fit log.csv", "sources": {"log.csv": "00ff"}, **changes}
    return Run(model, history, experiments, summary, **values)


def with_linear(run: Run) -> Run:
    """The run with the score of a linear model, as `Run.from_result` has it."""
    train = [experiment.record for experiment in run.of_role("train")]
    return dataclasses.replace(run, linear_rmse=linear_rmse(run.recipe, train, run.experiments))


def with_recipe(run: Run, **parts: object) -> Run:
    """The run as if it had been made by a recipe with other parts."""
    recipe = dataclasses.replace(run.recipe, **parts).as_dict()
    model = dataclasses.replace(run.model, provenance={**run.model.provenance, "recipe": recipe})
    return dataclasses.replace(run, model=model)


def _missed_by(record: Record, size: float) -> Simulation:
    y = record.y + size * np.sin(np.arange(len(record)) / 7.0)[:, None]
    y[:5] = np.nan
    return Simulation(record.t, y, np.zeros((len(record), 2)), 5, "ok", record.output_names)


def sines(samples: int, *, input: str = "pump", output: str = "level", name: str = "log") -> Record:
    """A smooth record of any length."""
    t = np.arange(samples) * 2.0
    u = np.sin(t / 37.0)
    return Record.from_arrays(u, 3.0 + np.sin(t / 37.0 - 0.5), ts=2.0, input_names=[input], output_names=[output],
                              units={input: "V", output: "mm"}, name=name)  # fmt: skip


def write_study(folder: Path, *, seeds: int = 5) -> Path:
    """A study of three taus, the last of which fails for two seeds."""
    rng = np.random.default_rng(0)
    with (folder / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ts_over_tau", "seed", "status", "steps", "seconds", "test_rmse", "version", "message"])
        for ratio, size in ((0.01, 0.6), (0.1, 0.3), (4.0, 1.0)):
            for seed in range(seeds):
                failed = ratio == 4.0 and seed < 2
                score = "" if failed else repr(size + 0.1 * rng.uniform())
                message = "training diverged <b>" if failed else ""
                status = "diverged" if failed else "completed"
                writer.writerow([ratio, seed, status, 100, 1.5, score, "0.1.0", message])
    return folder
