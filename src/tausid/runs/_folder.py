"""The folder of a run: what `tausid fit` leaves there, and how it is read again.

The folder holds its own copy of the records and of the model's free runs over them, so that a report can be made
years later, on another machine, and shows what was scored and not what lies under the same path by then.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tausid.ensembles import AnyModel, EnsembleModel, load_model
from tausid.errors import StorageError, TausidError
from tausid.evaluation import Score, Scores, score_simulation, score_simulations
from tausid.physics import AbstractPhysics
from tausid.records import Record, Records, as_records
from tausid.simulation import Simulation
from tausid.storage import read_arrays, write_arrays, write_text
from tausid.training import FitResult, HistoryRow

MODEL, RESULT, HISTORY, RECORDS = "model.safetensors", "result.json", "history.csv", "records.safetensors"
REPORT = "report.html"


@dataclass(frozen=True, eq=False)
class Experiment:
    """A record, what it was for, and the model's free run over it.

    Args:
        role: `train` or `test`.
        record: what was measured.
        simulation: the free run, on the record's own time stamps.
        skip: leading samples not to score; None for those of the initial state only.
    """

    role: str
    record: Record
    simulation: Simulation
    skip: int | None = None

    @property
    def score(self) -> Score:
        """The score of the free run."""
        return score_simulation(self.simulation, self.record, skip=self.skip)


@dataclass(frozen=True, eq=False)
class Run:
    """A finished fit with all that a report says of it.

    Args:
        model: the best model.
        history: one row per validation.
        experiments: the records and free runs, the training record first.
        summary: how it went: `status`, `message`, `steps`, `best_step` and `seconds`.
        name: what to call the data; empty where the training record's name will do.
        command: the command that repeats it; empty where there was none.
        sources: sha256 of each data file by its name.
        model_file: name of the model file.
    """

    model: AnyModel
    history: tuple[HistoryRow, ...]
    experiments: tuple[Experiment, ...]
    summary: Mapping[str, Any]
    name: str = ""
    command: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    model_file: str = MODEL

    @classmethod
    def from_result(
        cls, result: FitResult, *, train: Records, tests: Records | None = None, skip: int | None = None
    ) -> Run:
        """A run from what `fit` gave back.

        Args:
            result: the fit.
            train: the training records, one or several.
            tests: records to test with.
            skip: leading samples not to score.

        Returns:
            The run, with free runs over all records.
        """
        names = ("status", "message", "steps", "best_step", "seconds")
        held_out = as_records(tests) if tests else ()
        experiments = simulate_all(result.model, train=as_records(train), tests=held_out, skip=skip)
        return cls(result.model, result.history, experiments, {name: getattr(result, name) for name in names})

    def of_role(self, role: str) -> tuple[Experiment, ...]:
        """The experiments of one role.

        Args:
            role: `train` or `test`.

        Returns:
            The experiments.
        """
        return tuple(experiment for experiment in self.experiments if experiment.role == role)

    @property
    def scores(self) -> dict[str, Scores]:
        """Scores by role, each record by itself and all of the role together."""
        roles = dict.fromkeys(experiment.role for experiment in self.experiments)
        return {role: _scores(self.of_role(role)) for role in roles}


def simulate_all(
    model: AnyModel, *, train: Sequence[Record], tests: Sequence[Record] = (), skip: int | None = None
) -> tuple[Experiment, ...]:
    """Free runs of a model over its training and test records; one that diverges says so by its status.

    Args:
        model: the model.
        train: the training records.
        tests: records to test with.
        skip: leading samples not to score.

    Returns:
        The experiments, training records first.
    """
    roles = [("train", record) for record in train] + [("test", record) for record in tests]
    return tuple(Experiment(role, record, model.simulate(record, throw=False), skip) for role, record in roles)


def write_run(folder: Path, run: Run) -> tuple[dict[str, Path], dict[str, Any]]:
    """Write model, history, records and summary of a finished fit.

    Args:
        folder: the run's folder.
        run: the fit with its records and free runs.

    Returns:
        The paths by what they are, and the summary as plain JSON values.

    Raises:
        StorageError: the folder cannot be written.
    """
    paths = {"model": run.model.save(folder / MODEL)}
    scores = run.scores
    summary = {
        **score_dict(scores["train"]),
        **run.summary,
        **describe_model(run.model, paths["model"]),
        "protocol": run.model.config.protocol,
        "recipe": run.model.config.recipe,
        **({"test": score_dict(scores["test"])} if "test" in scores else {}),
        "data": run.name,
        "command": run.command,
        "sources": dict(run.sources),
    }
    write_experiments(folder, run.experiments)
    paths["history"] = write_history(folder, run.history)
    paths["summary"] = write_text(folder / RESULT, json.dumps(summary, indent=2) + "\n")
    return paths, summary


def score_dict(scores: Scores) -> dict[str, Any]:
    """Scores as plain JSON values: those of the first record; with several, of each by name and of all together.

    Args:
        scores: scores of records.

    Returns:
        The values.
    """
    first = scores.records[0].as_dict()
    if len(scores.records) == 1:
        return first
    by_name = {score.record: score.as_dict() for score in scores.records}
    return {**first, "records": by_name, "pooled": scores.pooled.as_dict()}


def describe_model(model: AnyModel, path: Path) -> dict[str, Any]:
    """What is said of a model in every JSON object.

    Args:
        model: the model.
        path: its file.

    Returns:
        Plain JSON values.
    """
    return {
        "tau": model.tau,
        "ts_over_tau": model.ts_over_tau,
        "seed": model.config.seed,
        "model": str(path),
        **({"physics": describe_parameters(model)} if model.physics is not None else {}),
        **({"members": model.provenance.get("members", [])} if isinstance(model, EnsembleModel) else {}),
    }


def describe_parameters(model: AnyModel) -> dict[str, dict[str, Any]]:
    """The fitted parameters of known equations.

    Args:
        model: the model.

    Returns:
        Value, unit and standard deviation (null where it is not known) by name; nothing without known equations.
    """
    found = {} if model.physics is None else model.physics.parameters
    return {
        name: {
            "value": parameter.value,
            "unit": parameter.unit,
            "deviation": parameter.deviation if np.isfinite(parameter.deviation or np.nan) else None,
        }
        for name, parameter in found.items()
    }


def write_experiments(folder: str | os.PathLike[str], experiments: Sequence[Experiment]) -> Path:
    """Store records and free runs in a run's folder.

    Args:
        folder: the folder.
        experiments: the records with their free runs.

    Returns:
        The path of the file.

    Raises:
        StorageError: the folder cannot be written.
    """
    arrays: dict[str, np.ndarray] = {}
    about = []
    for number, experiment in enumerate(experiments):
        record, run = experiment.record, experiment.simulation
        parts = {"t": record.t, "u": record.u, "y": record.y, "simulated": run.y, "x": run.x.astype(np.float32)}
        if run.low is not None and run.high is not None:
            parts |= {"low": run.low, "high": run.high}
        arrays |= {f"{number}.{name}": array for name, array in parts.items()}
        about.append(
            {
                "role": experiment.role,
                "skip": experiment.skip,
                "n_skipped": run.n_skipped,
                "status": run.status,
                "initial_state": run.initial_state,
                **{name: _plain(getattr(record, name)) for name in _texts()},
            }
        )
    return write_arrays(Path(folder) / RECORDS, arrays, kind="records", content={"experiments": about})


def read_run(folder: str | os.PathLike[str], *, physics: AbstractPhysics | type[AbstractPhysics] | None = None) -> Run:
    """Read what `tausid fit` left in a folder.

    Args:
        folder: the folder.
        physics: class of the known equations, where it is not one of the package's own.

    Returns:
        The run.

    Raises:
        StorageError: a file is missing, or not what it should be.
    """
    folder = Path(folder)
    summary = _read_summary(folder / RESULT)
    return Run(
        model=load_model(folder / MODEL, physics=physics),
        history=read_history(folder),
        experiments=_read_experiments(folder),
        summary=summary,
        name=str(summary.get("data", "")),
        command=str(summary.get("command", "")),
        sources=dict(summary.get("sources", {})),
        model_file=str(folder / MODEL),
    )


def history_csv(history: Sequence[HistoryRow]) -> str:
    """The history as a CSV table, one row per validation; several values of tau are separated by blanks.

    Args:
        history: the rows.

    Returns:
        The text.
    """
    names = [entry.name for entry in dataclasses.fields(HistoryRow)]
    rows = (
        [" ".join(map(str, v)) if isinstance(v, tuple) else csv_cell(v) for v in dataclasses.astuple(row)]
        for row in history
    )
    return csv_table(names, rows)


def read_history(folder: str | os.PathLike[str]) -> tuple[HistoryRow, ...]:
    """Read the history of a run.

    Args:
        folder: the run's folder.

    Returns:
        One row per validation.

    Raises:
        StorageError: the file is missing, or no history.
    """
    path = Path(folder) / HISTORY
    try:
        with path.open(newline="") as file:
            return tuple(_history_row(row) for row in csv.DictReader(file))
    except (OSError, TypeError, ValueError, KeyError) as error:
        raise StorageError(
            f"{path} must be the history of a run; it cannot be read ({error}). Give the folder that `tausid fit` "
            "wrote to."
        ) from None


def best_step(folder: str | os.PathLike[str]) -> int | None:
    """The step whose model was kept, from the summary of a run.

    Args:
        folder: the run's folder.

    Returns:
        The step; None where the run is not finished.
    """
    path = Path(folder) / RESULT
    return int(_read_summary(path)["best_step"]) if path.is_file() else None


def file_sums(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Checksums of files, so that it can be said later which data a model came from.

    Args:
        paths: the files.

    Returns:
        sha256 in hexadecimal digits, by the file's name.
    """
    return {Path(path).name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}


def csv_cell(value: float) -> str:
    """A number as a CSV cell that gives the same number when it is read; empty for NaN.

    Args:
        value: the number.

    Returns:
        The text.
    """
    return "" if value != value else repr(value)


def csv_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A CSV table.

    Args:
        header: names of the columns.
        rows: the cells of each row.

    Returns:
        The text.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def write_history(folder: str | os.PathLike[str], history: Sequence[HistoryRow]) -> Path:
    """Store the history in a run's folder.

    Args:
        folder: the folder.
        history: the rows.

    Returns:
        The path of the file.

    Raises:
        StorageError: the folder cannot be written.
    """
    return write_text(Path(folder) / HISTORY, history_csv(history))


def _scores(experiments: Sequence[Experiment]) -> Scores:
    simulations = [experiment.simulation for experiment in experiments]
    return score_simulations(simulations, [experiment.record for experiment in experiments], skip=experiments[0].skip)


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text())
        if not isinstance(summary, dict) or "status" not in summary:
            raise ValueError("it has no status")
        return summary
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} must be the summary of a finished run; it cannot be read ({error}). Give the folder that "
            "`tausid fit` wrote to."
        ) from None


def _read_experiments(folder: Path) -> tuple[Experiment, ...]:
    arrays, content = read_arrays(folder / RECORDS, kind="records")
    try:
        return tuple(_experiment(number, about, arrays) for number, about in enumerate(content["experiments"]))
    except (KeyError, TypeError, TausidError) as error:
        raise StorageError(f"{folder / RECORDS} must hold records; it does not ({error}). Fit again.") from None


def _experiment(number: int, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Experiment:
    texts: dict[str, Any] = {
        name: about[name] if isinstance(about[name], str) else tuple(about[name]) for name in _texts() if name in about
    }
    u, y, t = (arrays[f"{number}.{name}"] for name in ("u", "y", "t"))
    record = Record(u, y, t, **texts)
    x = arrays[f"{number}.x"].astype(float)
    names = record.output_names
    run = Simulation(
        record.t,
        arrays[f"{number}.simulated"],
        x,
        about["n_skipped"],
        about["status"],
        names,
        about.get("initial_state", "encoder"),
        arrays.get(f"{number}.low"),
        arrays.get(f"{number}.high"),
    )
    return Experiment(about["role"], record, run, about["skip"])


def _texts() -> list[str]:
    """The fields of a record that are no arrays: names and units."""
    return [entry.name for entry in dataclasses.fields(Record) if entry.name not in ("u", "y", "t")]


def _plain(value: str | tuple[str, ...]) -> str | list[str]:
    return value if isinstance(value, str) else list(value)


def _history_row(row: Mapping[str, str]) -> HistoryRow:
    numbers = {name: float(text) if text else math.nan for name, text in row.items() if name != "tau"}
    taus = tuple(float(value) for value in row["tau"].split())
    step = int(numbers.pop("step"))
    return HistoryRow(step=step, tau=taus[0] if len(taus) == 1 else taus, **numbers)
