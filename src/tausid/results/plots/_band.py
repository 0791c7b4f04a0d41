"""Several models at once: their mean and the band between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tausid.data.records import Record
from tausid.errors import DataError
from tausid.model.course import Simulation
from tausid.results.plots._style import MEASURED, SIMULATED, legend_above, new_figure, output_labels, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        The figure, one panel per output.

    Raises:
        DataError: the band has another shape than the mean.
        MissingExtraError: matplotlib is not installed.
    """
    if not np.shape(low) == np.shape(high) == mean.y.shape:
        raise DataError(
            f"`low` and `high` must have the mean's shape, {mean.y.shape}; got {np.shape(low)} and {np.shape(high)}. "
            "Compute all three from the same simulations."
        )
    figure = new_figure(0.6 + 2.8 * record.ny)
    panels = figure.subplots(record.ny, 1, sharex=True, squeeze=False)[:, 0]
    for channel, name in enumerate(output_labels(record.output_names, record.output_units)):
        panel = panels[channel]
        shade = {"color": SIMULATED, "alpha": 0.3, "linewidth": 0}
        panel.fill_between(mean.t, low[:, channel], high[:, channel], label=plain(label), **shade)
        panel.plot(record.t, record.y[:, channel], color=MEASURED, linewidth=1.4, label="measured")
        panel.plot(mean.t, mean.y[:, channel], color=SIMULATED, linestyle="--", label="mean of the models")
        panel.set_ylabel(name)
        legend_above(panel)
    panels[0].set_title(plain(record.name))
    panels[-1].set_xlabel("time (s)")
    return figure
