"""Figures of result objects; each function returns a matplotlib figure."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tausid.clocks import on_one_clock
from tausid.errors import ConfigError, MissingExtraError
from tausid.records import Record
from tausid.simulation import Simulation
from tausid.storage import write_bytes
from tausid.tau_estimation import TauEstimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
MEASURED, SIMULATED, RESIDUAL = (
    "#222222",
    "#d55e00",
    "#0072b2",
)  # told apart in grey and by colour-blind readers


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure; an old file stays whole until the new one is complete.

    Args:
        figure: the figure.
        path: where to write; its ending, .png, .svg or .pdf, decides on the format.

    Returns:
        The path.

    Raises:
        ConfigError: another ending.
        StorageError: the file cannot be written.
    """
    ending = check_picture(path)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=ending, dpi=130)
    return write_bytes(path, drawn.getvalue())


def check_picture(path: str | os.PathLike[str]) -> str:
    """Check that a picture can have this name.

    Args:
        path: where it is to be written.

    Returns:
        Its format.

    Raises:
        ConfigError: the name does not end in .png, .svg or .pdf.
    """
    ending = Path(path).suffix
    if ending not in PICTURES:
        raise ConfigError(f"a picture must end in {', '.join(PICTURES)}; got {Path(path).name!r}. Change the ending.")
    return ending.removeprefix(".")


def plot_simulation(record: Record, simulation: Simulation) -> Figure:
    """Measured against simulated outputs over time, the residual below each.

    Args:
        record: what was measured.
        simulation: its free run.

    Returns:
        The figure, two panels per output.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = _new_figure(width=9.0, height=3.6 * record.ny)
    panels = figure.subplots(2 * record.ny, 1, sharex=True, height_ratios=[3, 1] * record.ny, squeeze=False)[:, 0]
    for channel, (name, unit) in enumerate(zip(record.output_names, record.output_units, strict=True)):
        top, bottom = panels[2 * channel : 2 * channel + 2]
        label = f"{name} ({unit})" if unit else name
        top.plot(record.t, record.y[:, channel], color=MEASURED, linewidth=1.4, label="measured")
        top.plot(
            simulation.t,
            simulation.y[:, channel],
            color=SIMULATED,
            linewidth=1.1,
            linestyle="--",
            label="simulated",
        )
        top.set_ylabel(label)
        top.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2, borderaxespad=0.2)
        modelled = np.interp(record.t, simulation.t, simulation.y[:, channel])
        bottom.plot(record.t, record.y[:, channel] - modelled, color=RESIDUAL, linewidth=0.9)
        bottom.axhline(0.0, color=MEASURED, linewidth=0.6)
        bottom.set_ylabel("residual")
    panels[0].set_title(f"{record.name}: free-run simulation", loc="left")
    panels[-1].set_xlabel("time (s)")
    return figure


def plot_tau(estimate: TauEstimate, record: Record) -> Figure:
    """Where tau comes from: the record with its linear simulation, the poles, and tau among the time constants.

    An estimate from a search shows its trials, score against Ts/tau, in place of the linear model.

    Args:
        estimate: the estimate.
        record: the training record.

    Returns:
        The figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = _new_figure(width=9.0, height=6.0)
    rows = figure.add_gridspec(2, 2, height_ratios=[1.2, 1.0])
    _draw_linear_simulation(figure.add_subplot(rows[0, :]), estimate, record)
    if estimate.bla is not None:
        _draw_poles(figure.add_subplot(rows[1, 0]), estimate.bla.poles)
        _draw_time_constants(figure.add_subplot(rows[1, 1]), estimate, 1.0 / np.abs(estimate.bla.poles))
    elif estimate.trials:
        _draw_trials(figure.add_subplot(rows[1, :]), estimate)
    return figure


def _draw_linear_simulation(panel: Axes, estimate: TauEstimate, record: Record) -> None:
    panel.plot(record.t, record.y[:, 0], color=MEASURED, linewidth=1.4, label="measured")
    if estimate.bla is not None:
        on_clock = on_one_clock([record], hold=estimate.bla.hold, ts=estimate.bla.ts)[0]
        simulated = estimate.bla.simulate(on_clock, estimate.bla.x0[0])[:, 0]
        label = f"linear, order {estimate.bla.order}"
        panel.plot(on_clock.t, simulated, color=SIMULATED, linewidth=1.1, linestyle="--", label=label)
    panel.set_title(f"tau = {estimate.tau:.4g} s, Ts/tau = {estimate.ts_over_tau:.3g} ({estimate.method})", loc="left")
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2, borderaxespad=0.2)
    panel.set_xlabel("time (s)")
    panel.set_ylabel(record.output_names[0])


def _draw_poles(panel: Axes, poles: np.ndarray) -> None:
    panel.plot(poles.real, poles.imag, "x", color=RESIDUAL, markersize=9, markeredgewidth=2)
    panel.axhline(0.0, color=MEASURED, linewidth=0.6)
    panel.axvline(0.0, color=MEASURED, linewidth=0.6)
    panel.margins(0.2)
    panel.set_title("poles of the linear approximation", loc="left", fontsize="medium")
    panel.set_xlabel("real part (1/s)")
    panel.set_ylabel("imaginary part (1/s)")


def _draw_time_constants(panel: Axes, estimate: TauEstimate, constants: np.ndarray) -> None:
    marks = [*((f"1/|pole {i + 1}|", value) for i, value in enumerate(constants)), ("Ts", estimate.ts)]
    panel.axvspan(*estimate.spread, color=SIMULATED, alpha=0.15, linewidth=0)
    panel.axvline(estimate.tau, color=SIMULATED, linewidth=1.6)
    panel.annotate(" tau", (estimate.tau, 0.92), xycoords=("data", "axes fraction"), color=SIMULATED)
    for height, (label, value) in enumerate(marks):
        panel.plot(value, height, "o", color=RESIDUAL if label != "Ts" else MEASURED)
        panel.annotate(f"  {label}", (value, height), va="center", fontsize="small")
    panel.set_xscale("log")
    panel.margins(x=0.35, y=0.35)
    panel.set_yticks([])
    panel.set_title("tau, its spread (shaded), and time constants", loc="left", fontsize="medium")
    panel.set_xlabel("seconds")


def _draw_trials(panel: Axes, estimate: TauEstimate) -> None:
    tried = [trial.ts_over_tau for trial in estimate.trials]
    panel.set_xscale("log")
    panel.set_xlim(min(tried) / 2, 2 * max(tried))
    whole = [trial for trial in estimate.trials if trial.status != "stopped early"]
    early = [trial for trial in estimate.trials if trial.status == "stopped early"]
    for trials, mark, label in ((whole, "o", "trained to its end"), (early, "x", "stopped early")):
        panel.plot([t.ts_over_tau for t in trials], [t.score for t in trials], mark, color=RESIDUAL, label=label)
    panel.axvline(estimate.ts_over_tau, color=SIMULATED, linewidth=1.6, label="chosen")
    panel.legend(frameon=False)
    panel.set_xlabel("Ts/tau")
    panel.set_ylabel("held-out NRMSE")


def _new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            'figures need matplotlib, which is not installed. Install it with pip install "tausid[plots]".'
        ) from None
    return Figure(figsize=(width, height), layout="constrained")
