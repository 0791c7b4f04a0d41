"""How a training went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tausid.errors import DataError
from tausid.results.plots._style import MEASURED, RESIDUAL, SERIES, SIMULATED, legend_above, new_figure, styled
from tausid.training import HistoryRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def plot_history(history: Sequence[HistoryRow], *, best_step: int | None = None) -> Figure:
    """Errors over the steps of a training, and where it has them its learning rate and gradient norm below.

    Args:
        history: rows of a fit, `result.history`.
        best_step: the step whose model was kept, `result.best_step`; marked where given.

    Raises:
        DataError: the history is empty.
    """
    _check(history)
    steps = np.array([row.step for row in history])
    heights = [2.2, 1.0] if any(np.isfinite(row.learning_rate) for row in history) else [2.2]  # second order: no rates
    figure = new_figure(5.2 if len(heights) == 2 else 3.6)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    errors, name = panels[0], "training windows" if len(heights) == 2 else "training records"
    errors.plot(steps, np.sqrt([row.loss for row in history]), color=SIMULATED, linestyle="--", label=name)
    validation = np.array([row.validation for row in history])
    if np.isfinite(validation).any():
        finite = np.where(np.isfinite(validation), validation, np.nan)
        errors.plot(steps, finite, color=RESIDUAL, label="held out, free run")
    if best_step is not None:
        _mark_best(errors, steps, validation, best_step)
    errors.set_yscale("log")
    errors.set_ylabel("RMSE (normalized)")
    errors.set_title("training history")
    legend_above(errors)
    if len(heights) == 2:
        _draw_rates(panels[1], steps, history)
    panels[-1].set_xlabel("step" if len(heights) == 2 else "iteration")
    return figure


@styled
def plot_tau_path(history: Sequence[HistoryRow], *, best_step: int | None = None) -> Figure:
    """Tau over the steps of a training: a level line where it was fixed, one line per state where it has several.

    Args:
        history: rows of a fit, `result.history`.
        best_step: the step whose model was kept; marked where given.

    Raises:
        DataError: the history is empty.
    """
    _check(history)
    steps = [row.step for row in history]
    taus = np.array([np.atleast_1d(row.tau) for row in history])  # (rows, 1) or (rows, nx)
    figure = new_figure(3.4)
    panel = figure.subplots()
    for state, path in enumerate(taus.T):
        color, dashes = SERIES[state % len(SERIES)]
        label = "tau" if taus.shape[1] == 1 else f"tau of state {state + 1}"
        panel.plot(steps, path, color=color, linestyle="-" if taus.shape[1] == 1 else dashes, label=label)
    if best_step is not None:
        panel.axvline(best_step, color=MEASURED, linestyle=":", label=f"best, step {best_step}")
    panel.set_yscale("log")
    if np.ptp(taus) < 0.5 * np.min(taus):  # less than a decade: plain numbers are easier to read
        panel.set_yscale("linear")
    panel.set_title("tau")
    panel.set_xlabel("step")
    panel.set_ylabel("tau (s)")
    legend_above(panel)
    return figure


def _mark_best(panel: Axes, steps: np.ndarray, validation: np.ndarray, best_step: int) -> None:
    panel.axvline(best_step, color=MEASURED, linestyle=":", linewidth=1.0)
    at = np.flatnonzero(steps == best_step)
    if len(at) and np.isfinite(validation[at[0]]):
        label = f"best: {validation[at[0]]:.3g}, step {best_step}"
        panel.plot(best_step, validation[at[0]], "o", color=MEASURED, markersize=6, label=label)


def _draw_rates(panel: Axes, steps: np.ndarray, history: Sequence[HistoryRow]) -> None:
    panel.plot(steps, [row.learning_rate for row in history], color=MEASURED, label="learning rate")
    norms = np.array([row.gradient_norm for row in history])
    if np.isfinite(norms).any():
        panel.plot(steps, norms, color=SERIES[2][0], linestyle="--", linewidth=1.0, label="norm of the gradient")
    panel.set_yscale("log")
    legend_above(panel)


def _check(history: Sequence[HistoryRow]) -> None:
    if not history:
        raise DataError("`history` must have at least one row; it is empty. Train for more steps than one validation.")
