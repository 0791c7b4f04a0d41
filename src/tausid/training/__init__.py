"""Training: recipes, what becomes of them for given records, and two trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tausid.training.result import FitResult, FoldCurves, HistoryRow

if TYPE_CHECKING:
    from tausid.training.fitting import fit

__all__ = ["FitResult", "FoldCurves", "HistoryRow", "fit"]


def __getattr__(name: str) -> Any:
    if name != "fit":  # only what trains needs the trainers
        raise AttributeError(f"module 'tausid.training' has no attribute {name!r}")
    from tausid.training.fitting import fit

    return fit
