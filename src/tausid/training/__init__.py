"""From records to a model: windows, optimiser, validation, early stopping, checkpoints."""

from tausid.training.fitting import fit
from tausid.training.result import FitResult, FoldCurves, HistoryRow

__all__ = ["FitResult", "FoldCurves", "HistoryRow", "fit"]
