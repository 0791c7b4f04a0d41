"""Several models on one record: one table, one figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tausid.data.records import Record
from tausid.display import html_table
from tausid.errors import DataError
from tausid.linear import LinearModel
from tausid.model.course import Simulation
from tausid.model.ensembles import AnyModel
from tausid.model.evaluation import Score, run_freely, score_simulation
from tausid.results.plots import plot_comparison
from tausid.shapes import ArrayLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Compared: TypeAlias = "AnyModel | LinearModel | Simulation | ArrayLike"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Free runs of several models over one record, scored over the same samples.

    Args:
        record: the record.
        simulations: by the name of the model.
        scores: by the name of the model.
    """

    record: Record
    simulations: Mapping[str, Simulation]
    scores: Mapping[str, Score]

    @property
    def rows(self) -> list[tuple[str, str, float, float]]:
        """Model, output, RMSE and fit in percent; for each output the best first."""
        rows = [
            (name, output, score.rmse[output], score.fit_percent[output])
            for output in self.record.output_names
            for name, score in self.scores.items()
        ]
        return sorted(rows, key=lambda row: (self.record.output_names.index(row[1]), row[2]))

    def __str__(self) -> str:
        cells = [("model", "output", "RMSE", "fit %"), *((a, b, f"{c:.4g}", f"{d:.1f}") for a, b, c, d in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(4)]
        lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in cells]
        return "\n".join([*lines, self._scored])

    def _repr_html_(self) -> str:
        return html_table(self._scored, self.rows, header=("model", "output", "RMSE", "fit %"))

    @property
    def _scored(self) -> str:
        first = next(iter(self.scores.values()))
        return f"{self.record.name}: {first.n_scored} samples scored, the first {first.n_skipped} left out for all"

    def figure(self) -> Figure:
        """Measured and simulated outputs over time, and the residuals."""
        return plot_comparison(self.record, self.simulations)


def compare(models: Mapping[str, Compared], record: Record, *, skip: int = 0) -> Comparison:
    """Compare models, linear ones and simulations of one's own on a record.

    Args:
        models: by name: models, ensembles, linear models of `estimate_bla`, `Simulation`s, or arrays of outputs in
            physical units with one row per sample; NaN at their start is not scored.
        record: the measured record.
        skip: leading samples not to score; at least those that any of the models needs for its initial state.

    Returns:
        The comparison: print it for a table; `figure()` draws it.

    Raises:
        DataError: nothing to compare, an array of another shape, or no sample left to score.
    """
    if not models:
        raise DataError("`models` must hold at least one model; got none. Give them by name: {'mine': model}.")
    runs = {name: _run(name, model, record) for name, model in models.items()}
    first = max(skip, *(run.n_skipped for run in runs.values()), 0)
    return Comparison(record, runs, {name: score_simulation(run, record, skip=first) for name, run in runs.items()})


def _run(name: str, model: Compared, record: Record) -> Simulation:
    if isinstance(model, Simulation):
        return model
    if isinstance(model, AnyModel | LinearModel):
        return run_freely(model, record, None)
    y = np.asarray(model, float)
    y = y[:, None] if y.ndim == 1 else y
    if y.shape != record.y.shape:
        raise DataError(
            f"outputs {name!r} must have the record's shape {record.y.shape}; got {y.shape}. Give a row per sample."
        )
    known = np.isfinite(y).all(axis=1)
    start = int(np.argmax(known)) if known.any() else 0
    status = "ok" if known[start:].all() else "diverged"
    return Simulation(record.t, y, np.zeros((len(y), 0)), start, status, record.output_names, "given")
