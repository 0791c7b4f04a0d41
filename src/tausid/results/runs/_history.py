"""Rows of a history as cells of a CSV table, and back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tausid.training.result import HistoryRow

COLUMNS = tuple(entry.name for entry in dataclasses.fields(HistoryRow))


def to_cells(row: HistoryRow) -> list[Any]:
    """Cells; several values of tau are separated by blanks."""
    return [" ".join(map(str, value)) if isinstance(value, tuple) else value for value in dataclasses.astuple(row)]


def from_cells(row: Mapping[str, str]) -> HistoryRow:
    """The row of these cells."""
    numbers = {name: float(text) if text else math.nan for name, text in row.items() if name != "tau"}
    taus = tuple(float(value) for value in row["tau"].split())
    step = int(numbers.pop("step"))
    return HistoryRow(step=step, tau=taus[0] if len(taus) == 1 else taus, **numbers)
