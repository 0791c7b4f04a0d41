"""From records to a model: windows, optimiser, validation, early stopping, checkpoints."""

from tausid.training.fitting import fit
from tausid.training.result import FitResult, FoldCurves, HistoryRow
from tausid.training.sizes import SizeChoice, SizeRow, choose_size

__all__ = ["FitResult", "FoldCurves", "HistoryRow", "SizeChoice", "SizeRow", "choose_size", "fit"]
