"""Training: recipes, what becomes of them for given records, and two trainers."""

from tausid.training.fitting import fit
from tausid.training.result import FitResult, FoldCurves, HistoryRow

__all__ = ["FitResult", "FoldCurves", "HistoryRow", "fit"]
