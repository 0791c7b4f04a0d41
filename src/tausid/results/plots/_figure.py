"""A figure that shows itself in a notebook, without pyplot and its global state."""

from __future__ import annotations

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A matplotlib figure that notebooks draw as it is."""

    def _repr_png_(self) -> bytes:
        from tausid.results.plots._style import figure_bytes

        return figure_bytes(self, "png")
