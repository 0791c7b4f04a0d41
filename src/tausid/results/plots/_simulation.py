"""Simulations over time: against what was measured, several at once, the band of an ensemble, and states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tausid.data.records import Record
from tausid.errors import DataError
from tausid.model.course import Simulation
from tausid.model.evaluation import score_simulation
from tausid.results.plots._style import (
    MEASURED,
    RESIDUAL,
    SERIES,
    SIMULATED,
    legend_above,
    new_figure,
    output_labels,
    plain,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def plot_simulation(record: Record, simulation: Simulation) -> Figure:
    """Measured against simulated outputs over time, the residual below each.

    Args:
        record: what was measured.
        simulation: its free run.

    Returns:
        The figure, two panels per output.

    Raises:
        DataError: the simulation has other outputs than the record.
    """
    return _draw(record, {"simulated": simulation})


@styled
def plot_comparison(record: Record, simulations: Mapping[str, Simulation]) -> Figure:
    """Measured outputs against the simulations of several models, their residuals below: the paper's Figure 3.

    Args:
        record: what was measured.
        simulations: free runs over it by the name of their model, in the order of the legend.

    Returns:
        The figure, two panels per output; the legend has the models' RMSE where they share the record's samples.

    Raises:
        DataError: there is no simulation, or one has other outputs than the record.
    """
    if not simulations:
        raise DataError("`simulations` must hold at least one simulation; got none. Simulate a model first.")
    return _draw(record, simulations)


@styled
def plot_band(
    record: Record,
    mean: Simulation,
    *,
    low: np.ndarray,
    high: np.ndarray,
    label: str = "band",
) -> Figure:
    """Measured outputs against the mean of several models and the band that they span.

    Args:
        record: what was measured.
        mean: the mean of the models' simulations.
        low: lower end of the band at the mean's time stamps, in physical units.
        high: upper end of the band.
        label: what the band is, such as `mean +- 2 deviations of 5 models`.

    Returns:
        The figure, two panels per output: the outputs, and the residual of the mean.

    Raises:
        DataError: the band has another shape than the mean.
    """
    if not np.shape(low) == np.shape(high) == mean.y.shape:
        raise DataError(
            f"`low` and `high` must have the mean's shape, {mean.y.shape}; got {np.shape(low)} and {np.shape(high)}. "
            "Compute all three from the same simulations."
        )
    figure = new_figure(0.6 + 3.6 * record.ny)
    panels = figure.subplots(2 * record.ny, 1, sharex=True, height_ratios=[3, 1.3] * record.ny, squeeze=False)[:, 0]
    for channel, name in enumerate(output_labels(record.output_names, record.output_units)):
        panel = panels[2 * channel]
        _draw_residuals(panels[2 * channel + 1], record, {"mean": mean}, channel)
        shade = {"color": SIMULATED, "alpha": 0.3, "linewidth": 0}
        panel.fill_between(mean.t, low[:, channel], high[:, channel], label=plain(label), **shade)
        panel.plot(record.t, record.y[:, channel], color=MEASURED, linewidth=1.4, label="measured")
        panel.plot(mean.t, mean.y[:, channel], color=SIMULATED, linestyle="--", label="mean of the models")
        panel.set_ylabel(name)
        legend_above(panel)
    panels[0].set_title(plain(record.name))
    panels[-1].set_xlabel("time (s)")
    figure.align_ylabels()
    return figure


@styled
def plot_states(simulation: Simulation) -> Figure:
    """The normalized states along a simulation: good ones stay around one, whatever the plant's units.

    Args:
        simulation: from `Model.simulate`.

    Returns:
        The figure, one panel per state.
    """
    nx = simulation.x.shape[1]
    figure = new_figure(0.8 + 1.2 * nx)
    panels = figure.subplots(nx, 1, sharex=True, squeeze=False)[:, 0]
    for state, panel in enumerate(panels):
        panel.plot(simulation.t, simulation.x[:, state], color=SERIES[state % len(SERIES)][0])
        panel.axhline(0.0, color=MEASURED, linewidth=0.6)
        panel.set_ylabel(f"x{state + 1}")
    panels[0].set_title("states (normalized)")
    panels[-1].set_xlabel("time (s)")
    figure.align_ylabels()
    return figure


def _draw(record: Record, simulations: Mapping[str, Simulation]) -> Figure:
    _check(record, simulations)
    figure = new_figure((3.6 if len(simulations) == 1 else 4.6) * record.ny)
    panels = figure.subplots(2 * record.ny, 1, sharex=True, height_ratios=[3, 1.3] * record.ny, squeeze=False)[:, 0]
    for channel, label in enumerate(output_labels(record.output_names, record.output_units)):
        top, bottom = panels[2 * channel : 2 * channel + 2]
        _draw_outputs(top, record, simulations, channel)
        _draw_residuals(bottom, record, simulations, channel)
        top.set_ylabel(label)
        _draw_legend(top, many=len(simulations) > 1)
    panels[0].set_title(plain(f"{record.name}: free-run simulation"))
    panels[-1].set_xlabel("time (s)")
    figure.align_ylabels()
    return figure


def _draw_outputs(panel: Axes, record: Record, simulations: Mapping[str, Simulation], channel: int) -> None:
    panel.plot(record.t, record.y[:, channel], color=MEASURED, linewidth=1.4, label="measured")
    for index, (name, simulation) in enumerate(simulations.items()):
        color, dashes = SERIES[index % len(SERIES)]
        label = name if len(simulations) == 1 else _with_error(name, record, simulation, channel)
        panel.plot(simulation.t, simulation.y[:, channel], color=color, linestyle=dashes, label=plain(label))


def _draw_legend(panel: Axes, *, many: bool) -> None:
    """Above the panel; the long names of several models in two columns above its title."""
    if many:
        panel.legend(loc="lower left", bbox_to_anchor=(0.0, 1.08), ncols=2, borderaxespad=0.2, columnspacing=3.0)
    else:
        legend_above(panel)


def _draw_residuals(panel: Axes, record: Record, simulations: Mapping[str, Simulation], channel: int) -> None:
    for index, simulation in enumerate(simulations.values()):
        color, dashes = SERIES[index % len(SERIES)] if len(simulations) > 1 else (RESIDUAL, "-")
        modelled = np.interp(record.t, simulation.t, simulation.y[:, channel])
        panel.plot(record.t, record.y[:, channel] - modelled, color=color, linestyle=dashes, linewidth=0.9)
    panel.axhline(0.0, color=MEASURED, linewidth=0.6)
    panel.set_ylabel("residual")


def _with_error(name: str, record: Record, simulation: Simulation, channel: int) -> str:
    if len(simulation.y) != len(record):  # another grid in time: no score
        return name
    rmse = score_simulation(simulation, record).rmse[record.output_names[channel]]
    return f"{name} (RMSE {rmse:.3g} {record.output_units[channel]}".rstrip() + ")"


def _check(record: Record, simulations: Mapping[str, Simulation]) -> None:
    for name, simulation in simulations.items():
        if simulation.y.shape[1] != record.ny:
            raise DataError(
                f"simulation {name!r} must have the record's {record.ny} outputs; got {simulation.y.shape[1]}. "
                "Simulate the record that is drawn."
            )
