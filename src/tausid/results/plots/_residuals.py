"""Correlations of residuals: what a score does not show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tausid.results.plots._style import FAINT, MEASURED, RESIDUAL, SERIES, new_figure, plain, styled
from tausid.results.residuals import ResidualTest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def plot_residuals(test: ResidualTest) -> Figure:
    """Correlation of the residuals with themselves and with each input, with the band of unrelated signals.

    Args:
        test: from `analyse_residuals`.

    Returns:
        The figure: a row per output, a column for the residuals and one per input.
    """
    ny, nu = test.cross.shape[1:]
    figure = new_figure(0.6 + 2.6 * ny)
    panels = figure.subplots(ny, 1 + nu, sharex=True, squeeze=False)
    for output, name in enumerate(test.output_names):
        _draw_curve(panels[output, 0], test.lags[1:], test.auto[1:, output], test.auto_bound[1:, output])
        panels[output, 0].set_title(plain(f"residual of {name} with itself"))
        panels[output, 0].set_ylabel("correlation")
        for channel, source in enumerate(test.input_names):
            panel = panels[output, 1 + channel]
            _draw_curve(panel, test.lags, test.cross[:, output, channel], test.cross_bound[:, output, channel])
            panel.set_title(plain(f"residual of {name} with earlier {source}"))
    for panel in panels[-1]:
        panel.set_xlabel("lag (s)")
    return figure


def _draw_curve(panel: Axes, lags: np.ndarray, values: np.ndarray, bound: np.ndarray) -> None:
    panel.fill_between(lags, -bound, bound, color=FAINT, alpha=0.25, linewidth=0)
    outside = np.abs(values) > bound
    panel.vlines(lags, 0.0, values, color=RESIDUAL, linewidth=1.0)
    panel.plot(lags[~outside], values[~outside], "o", color=RESIDUAL, markersize=3, markerfacecolor="white")
    panel.plot(lags[outside], values[outside], "o", color=SERIES[0][0], markersize=4)
    panel.axhline(0.0, color=MEASURED, linewidth=0.6)
    reach = max(1.15 * float(np.max(np.abs(values))), 1.5 * float(np.max(bound)), 1e-3)
    panel.set_ylim(-reach, reach)
