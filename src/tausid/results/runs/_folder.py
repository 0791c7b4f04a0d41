"""All files of a run: written, described and read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tausid.errors import StorageError
from tausid.model.ensembles import AnyModel, EnsembleModel, load_model
from tausid.model.evaluation import Scores
from tausid.model.physics import AbstractPhysics
from tausid.results.runs._experiments import read_experiments, write_experiments
from tausid.results.runs._history import read_history, write_history
from tausid.results.runs._run import MODEL, Run
from tausid.storage import write_text

RESULT = "result.json"
REPORT = "report.html"


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
        "protocol": run.recipe.protocol,
        "recipe": run.recipe.name,
        "linear_rmse": run.linear_rmse,
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
        "seed": model.provenance.get("seed"),
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


def file_sums(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Checksums of files, so that it can be said later which data a model came from.

    Args:
        paths: the files.

    Returns:
        sha256 in hexadecimal digits, by the file's name.
    """
    return {Path(path).name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}


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
        linear_rmse=summary.get("linear_rmse"),
        history=read_history(folder),
        experiments=read_experiments(folder),
        summary=summary,
        name=str(summary.get("data", "")),
        command=str(summary.get("command", "")),
        sources=dict(summary.get("sources", {})),
        model_file=str(folder / MODEL),
    )


def best_step(folder: str | os.PathLike[str]) -> int | None:
    """The step whose model was kept, from the summary of a run.

    Args:
        folder: the run's folder.

    Returns:
        The step; None where the run is not finished.
    """
    path = Path(folder) / RESULT
    return int(_read_summary(path)["best_step"]) if path.is_file() else None


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
