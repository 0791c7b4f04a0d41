"""Runs of a study beside reference values: baselines, noise floors, published figures."""

from __future__ import annotations

import csv
import math
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tausid.errors import ConfigError
from tausid.results.study_results import RESULTS, StudyResults, read_results

REFERENCES = "references.csv"
COLUMNS = ("data", "score", "reference", "value")


@dataclass(frozen=True)
class Reference:
    """What a score is compared with.

    Args:
        data: what the data are called.
        score: the column of the results that it is compared with.
        name: what it is: `mean`, `linear`, `published`, ...
        value: in the score's unit; infinite where it diverged.
    """

    data: str
    score: str
    name: str
    value: float


def read_references(folder: str | os.PathLike[str]) -> tuple[Reference, ...]:
    """The reference values in a study's folder; none where it has no such file."""
    path = Path(folder) / REFERENCES
    if not path.is_file():
        return ()
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ConfigError(
                f"{path} must have the columns {', '.join(COLUMNS)}; got {reader.fieldnames}. Correct it."
            )
        return tuple(Reference(row["data"], row["score"], row["reference"], float(row["value"])) for row in reader)


def read_compared(folder: str | os.PathLike[str]) -> StudyResults:
    """The finished runs of a study that has reference values; none before the first has finished."""
    folder = Path(folder)
    return read_results(folder) if (folder / RESULTS).exists() else StudyResults(folder.resolve().name, ())


def compare(results: StudyResults, references: Sequence[Reference]) -> list[dict[str, Any]]:
    """One row for each of the data, variants and scores: the runs, and every reference value beside them.

    A run without a score (it failed, or its simulation diverged) counts as infinitely wrong.
    """
    names = list(dict.fromkeys(reference.name for reference in references))
    values = {(reference.data, reference.score, reference.name): reference.value for reference in references}
    compared = []
    for data, score in dict.fromkeys((reference.data, reference.score) for reference in references):
        beside = {name: values.get((data, score, name)) for name in names}
        rows = [row for row in results.rows if row.get("data") == data]
        for variant in dict.fromkeys(row.get("variant") for row in rows) or (None,):
            own = _describe([row for row in rows if row.get("variant") == variant], score)
            compared.append({"data": data, "score": score, "variant": variant, **own, **beside})
    return compared


def _describe(rows: Sequence[Mapping[str, Any]], score: str) -> dict[str, Any]:
    """Median and worst of the score, and what else is said of the runs."""
    if not rows:
        return {"runs": 0, **dict.fromkeys(("diverged", "median", "worst", "fit %", "cpu s", "structure", "consensus"))}
    errors = [math.inf if row.get(score) is None else float(row[score]) for row in rows]
    structures = Counter(row["structure"] for row in rows if row.get("structure"))
    return {
        "runs": len(rows),
        "diverged": sum(map(math.isinf, errors)),
        "median": statistics.median(errors),
        "worst": max(errors),
        "fit %": _median(rows, score.replace("_rmse", "_fit_percent")),
        "cpu s": _median(rows, "cpu_seconds"),
        "structure": structures.most_common(1)[0][0] if structures else None,
        "consensus": _median(rows, "consensus"),
    }


def _median(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    known = [float(row[column]) for row in rows if row.get(column) is not None]
    return statistics.median(known) if known else None
