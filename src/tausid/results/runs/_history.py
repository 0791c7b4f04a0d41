"""The history of a run as a CSV table."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tausid.errors import StorageError
from tausid.storage import csv_cell, csv_table, write_text
from tausid.training import HistoryRow

HISTORY = "history.csv"


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


def _history_row(row: Mapping[str, str]) -> HistoryRow:
    numbers = {name: float(text) if text else math.nan for name, text in row.items() if name != "tau"}
    taus = tuple(float(value) for value in row["tau"].split())
    step = int(numbers.pop("step"))
    return HistoryRow(step=step, tau=taus[0] if len(taus) == 1 else taus, **numbers)
