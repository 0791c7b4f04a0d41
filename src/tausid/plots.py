"""Figures of result objects; each function returns a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tausid.errors import MissingExtraError
from tausid.records import Record
from tausid.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED, SIMULATED, RESIDUAL = (
    "#222222",
    "#d55e00",
    "#0072b2",
)  # told apart in grey and by colour-blind readers


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


def _new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            'figures need matplotlib, which is not installed. Install it with pip install "tausid[plots]".'
        ) from None
    return Figure(figsize=(width, height), layout="constrained")
