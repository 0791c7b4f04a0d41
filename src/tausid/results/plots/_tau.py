"""Where tau comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tausid.data.clocks import on_one_clock
from tausid.data.records import Record
from tausid.linear.tau_estimation import TauEstimate
from tausid.results.plots._linear import draw_poles
from tausid.results.plots._style import (
    MEASURED,
    OVER_LINES,
    RESIDUAL,
    SIMULATED,
    legend_above,
    new_figure,
    output_labels,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def plot_tau(estimate: TauEstimate, record: Record) -> Figure:
    """Where tau comes from: the record with its linear simulation, the poles, and tau among the time constants.

    An estimate from a search shows its trials, score against Ts/tau, in place of the linear model.

    Args:
        estimate: the estimate.
        record: the training record.
    """
    figure = new_figure(3.6 + 2.4 * record.ny)
    rows = figure.add_gridspec(record.ny + 1, 2, height_ratios=[1.0] * record.ny + [1.2])
    _draw_linear_simulation([figure.add_subplot(rows[i, :]) for i in range(record.ny)], estimate, record)
    if estimate.bla is not None:
        draw_poles(figure.add_subplot(rows[-1, 0]), estimate.bla.poles)
        _draw_time_constants(figure.add_subplot(rows[-1, 1]), estimate, 1.0 / np.abs(estimate.bla.poles))
    elif estimate.trials:
        _draw_trials(figure.add_subplot(rows[-1, :]), estimate)
    return figure


def _draw_linear_simulation(panels: Sequence[Axes], estimate: TauEstimate, record: Record) -> None:
    """A panel per output."""
    for panel, y, label in zip(
        panels, record.y.T, output_labels(record.output_names, record.output_units), strict=True
    ):
        panel.plot(record.t, y, color=MEASURED, linewidth=1.4, label="measured")
        panel.set_ylabel(label)
    if estimate.bla is not None:
        on_clock = on_one_clock([record], hold=estimate.bla.hold, ts=estimate.bla.ts)[0]
        name = f"linear, order {estimate.bla.order}"
        for panel, y in zip(panels, estimate.bla.simulate(on_clock, estimate.bla.x0[0]).T, strict=True):
            panel.plot(on_clock.t, y, color=SIMULATED, linewidth=1.1, linestyle="--", label=name)
    panels[0].set_title(f"tau = {estimate.tau:.4g} s, Ts/tau = {estimate.ts_over_tau:.3g} ({estimate.method})")
    legend_above(panels[0])
    panels[-1].set_xlabel("time (s)")


def _draw_time_constants(panel: Axes, estimate: TauEstimate, constants: np.ndarray) -> None:
    marks = [*((f"1/|pole {i + 1}|", value) for i, value in enumerate(constants)), ("Ts", estimate.ts)]
    panel.axvspan(*estimate.spread, color=SIMULATED, alpha=0.15, linewidth=0)
    panel.axvline(estimate.tau, color=SIMULATED, linewidth=1.6)
    panel.annotate(" tau", (estimate.tau, 0.92), xycoords=("data", "axes fraction"), color=SIMULATED, **OVER_LINES)
    for height, (label, value) in enumerate(marks):
        panel.plot(value, height, "o", color=RESIDUAL if label != "Ts" else MEASURED)
        panel.annotate(
            label, (value, height), (8, 0), textcoords="offset points", va="center", fontsize="small", **OVER_LINES
        )
    panel.set_xscale("log")
    panel.margins(x=0.35, y=0.35)
    panel.set_yticks([])
    panel.set_title("tau, its spread (shaded), and time constants")
    panel.set_xlabel("seconds")


def _draw_trials(panel: Axes, estimate: TauEstimate) -> None:
    tried = [trial.ts_over_tau for trial in estimate.trials]
    panel.set_xscale("log")
    panel.set_xlim(min(tried) / 2, 2 * max(tried))
    panel.plot(tried, [trial.score for trial in estimate.trials], "o", color=RESIDUAL, label="fits")
    panel.axvline(estimate.ts_over_tau, color=SIMULATED, linewidth=1.6, label="chosen")
    panel.legend()
    panel.set_xlabel("Ts/tau")
    panel.set_ylabel("held-out NRMSE")
