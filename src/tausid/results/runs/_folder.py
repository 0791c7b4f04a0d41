"""The folder of a run: the names of all its files, and how each is written and read."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tausid.errors import StorageError
from tausid.locks import RUN_LOCK
from tausid.model.ensembles import MODEL_FILE, AnyModel, load_model
from tausid.model.physics import AbstractPhysics
from tausid.results.runs._experiments import from_arrays, to_arrays
from tausid.results.runs._history import COLUMNS, from_cells, to_cells
from tausid.results.runs._run import Experiment, Run
from tausid.results.summary import describe_model, score_dict
from tausid.schema import Count, SchemaError, as_schema, parse_json
from tausid.storage import described, read_arrays, write_arrays, write_table, write_text
from tausid.training.checkpoint import ALL_FILES
from tausid.training.ensemble import member_folder
from tausid.training.result import HistoryRow


class Errors(msgspec.Struct, kw_only=True):
    """Scores by output, as far as they are read again; null where a simulation diverged."""

    rmse: dict[str, float | None] = {}
    fit_percent: dict[str, float | None] = {}


class Summary(Errors, kw_only=True):
    """The summary of a run, as far as it is read again; it says more."""

    status: str
    message: str
    steps: Count
    best_step: Count
    seconds: float
    test: Errors | None = None
    data: str = ""
    command: str = ""
    sources: dict[str, str] = {}
    linear_rmse: dict[str, float | None] | None = None
    reading: dict[str, Any] = {}


class RunFolder:
    """The files of one run: model, records with free runs, history, summary and report.

    The folder holds its own copy of the records and of the model's free runs over them, so that a report can be made
    years later, on another machine, and shows what was scored and not what lies under the same path by then.
    Checkpoints in it belong to the training.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.model_file = self.path / MODEL_FILE
        self.records_file = self.path / "records.safetensors"
        self.history_file = self.path / "history.csv"
        self.summary_file = self.path / "result.json"
        self.report_file = self.path / "report.html"
        self.lock_file = self.path / RUN_LOCK

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds a finished run."""
        return self.summary_file.is_file()

    @property
    def is_used(self) -> bool:
        """Whether the folder holds a run, finished or not."""
        files = (self.model_file, self.records_file, self.history_file, self.summary_file)
        folders = (self.path, member_folder(self.path, 0))
        return any(file.exists() for file in files) or any(any(folder.glob(ALL_FILES)) for folder in folders)

    def write(self, run: Run) -> dict[str, Any]:
        """Write model, records, history and summary of a finished fit; gives the summary as plain JSON values.

        Args:
            run: the fit with its records and free runs.
        """
        run.model.save(self.model_file)
        self.write_records(run.experiments)
        self.write_history(run.history)
        scores = run.scores
        summary = {
            **score_dict(scores["train"]),
            **run.summary,
            **describe_model(run.model, self.model_file),
            "protocol": run.recipe.protocol,
            "recipe": run.recipe.name,
            "linear_rmse": run.linear_rmse,
            **({"test": score_dict(scores["test"])} if "test" in scores else {}),
            "data": run.name,
            "command": run.command,
            "sources": dict(run.sources),
            "reading": dict(run.reading),
        }
        write_text(self.summary_file, json.dumps(summary, indent=2) + "\n")
        return summary

    def read(self, *, physics: AbstractPhysics | type[AbstractPhysics] | None = None) -> Run:
        """Read a finished run.

        Args:
            physics: class of the known equations, where it is not one of the package's own.
        """
        summary = self.read_summary()
        return Run(
            model=self.load_model(physics=physics),
            history=self.read_history(),
            experiments=self.read_records(),
            summary=summary,
            name=str(summary.get("data", "")),
            command=str(summary.get("command", "")),
            sources=dict(summary.get("sources", {})),
            linear_rmse=summary.get("linear_rmse"),
            reading=dict(summary.get("reading", {})),
        )

    def load_model(self, *, physics: AbstractPhysics | type[AbstractPhysics] | None = None) -> AnyModel:
        """Load the model.

        Args:
            physics: class of the known equations, where it is not one of the package's own.
        """
        return load_model(self.model_file, physics=physics)

    def write_records(self, experiments: Sequence[Experiment]) -> None:
        """Write the records with their free runs.

        Args:
            experiments: the records and free runs.
        """
        arrays, content = to_arrays(experiments)
        write_arrays(self.records_file, arrays, kind="records", content=content)

    def read_records(self) -> tuple[Experiment, ...]:
        """Read the records with their free runs."""
        arrays, content = read_arrays(self.records_file, kind="records")
        with described(self.records_file, "records"):
            return from_arrays(arrays, content)

    def write_history(self, history: Sequence[HistoryRow]) -> None:
        """Write the history, one line per validation.

        Args:
            history: the rows.
        """
        write_table(self.history_file, COLUMNS, [to_cells(row) for row in history])

    def read_history(self) -> tuple[HistoryRow, ...]:
        """Read the history."""
        try:
            with self.history_file.open(newline="") as file:
                return tuple(from_cells(row) for row in csv.DictReader(file))
        except (OSError, TypeError, ValueError, KeyError, ArithmeticError, csv.Error) as error:
            raise StorageError(
                f"{self.history_file} must be the history of a run; it cannot be read ({error}). Give the folder that "
                "`tausid fit` wrote to."
            ) from None

    def read_summary(self) -> dict[str, Any]:
        """Read the summary."""
        try:
            summary = parse_json(self.summary_file.read_bytes())
            as_schema(summary, Summary)
            return dict(summary)
        except (OSError, SchemaError) as error:
            raise StorageError(
                f"{self.summary_file} must be the summary of a finished run; it cannot be read ({error}). Give the "
                "folder that `tausid fit` wrote to."
            ) from None

    @property
    def best_step(self) -> int | None:
        """The step whose model was kept; None where the run is not finished."""
        return int(self.read_summary()["best_step"]) if self.is_finished else None
