"""What state derivative normalization does to time: the paper's Figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tausid.data.records import Record
from tausid.errors import ConfigError
from tausid.results.plots._style import MEASURED, new_figure, output_labels, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALED = "#c8102e"  # red, as in the paper


@styled
def plot_time_scaling(record: Record, tau: float) -> Figure:
    """Outputs over time in seconds and over normalized time `t / tau`: the paper's Figure 1.

    Both axes have the same numbers, so that the figure shows how much shorter (or longer) the record becomes.

    Args:
        record: what was measured.
        tau: the normalization constant in seconds.

    Returns:
        The figure, one panel per output.

    Raises:
        ConfigError: `tau` is not a positive number.
        MissingExtraError: matplotlib is not installed.
    """
    if not 0 < tau < np.inf:
        raise ConfigError(f"`tau` must be a positive number of seconds; got {tau!r}. Estimate it with estimate_tau.")
    figure = new_figure(1.2 + 2.6 * record.ny)
    panels = figure.subplots(record.ny, 1, sharex=True, squeeze=False)[:, 0]
    t = record.t - record.t[0]
    for channel, (panel, label) in enumerate(
        zip(panels, output_labels(record.output_names, record.output_units), strict=True)
    ):
        panel.plot(t, record.y[:, channel], color=MEASURED, label=f"over seconds, Ts = {record.ts:.4g} s")
        scaled_label = f"over t / tau, tau = {tau:.4g} s: Ts / tau = {record.ts / tau:.4g}"
        panel.plot(t / tau, record.y[:, channel], color=SCALED, linestyle="--", linewidth=1.0, label=scaled_label)
        panel.set_ylabel(label)
    longest = max(t[-1], t[-1] / tau)
    panels[-1].set_xlim(-0.01 * longest, 1.01 * longest)
    panels[-1].set_xlabel("time t (s)")
    above = panels[0].secondary_xaxis("top")
    above.set_xlabel("normalized time t / tau (no unit)", color=SCALED)
    above.tick_params(axis="x", colors=SCALED)
    panels[-1].legend(loc="best", frameon=True, framealpha=0.9)
    figure.suptitle(plain(f"{record.name}: time scaling"), x=0.01, ha="left", fontsize="medium")
    return figure
