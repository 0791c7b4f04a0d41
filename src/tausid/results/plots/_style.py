"""The visual language of all figures: colours, sizes, panels, and how a figure becomes a file.

Colours are those of Okabe and Ito, told apart by colour-blind readers; where two lines share a panel they
also differ in their dashes, so that a grey print can be read.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from tausid.errors import ConfigError, MissingExtraError
from tausid.storage import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

P = ParamSpec("P")

PICTURES = (".png", ".svg", ".pdf")
WIDTH = 9.0  # inches, of every figure
LEAST_TICKS = 3
# Words on a panel, over lines that would strike through them.
OVER_LINES: Any = {"zorder": 5, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}}
MEASURED, SIMULATED, RESIDUAL = "#222222", "#d55e00", "#0072b2"
GRID, FAINT = "#d9d9d9", "#777777"
# Colour and dashes of the first, second, ... model in one panel.
SERIES: tuple[tuple[str, Any], ...] = (
    ("#d55e00", "--"),
    ("#0072b2", "-."),
    ("#009e73", (0, (1, 1))),
    ("#cc79a7", (0, (5, 1, 1, 1, 1, 1))),
    ("#e69f00", (0, (8, 3))),
    ("#56b4e9", "-"),
)
LOOK: Any = {
    "font.size": 10.0,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.02,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
}
# The same figure gives the same bytes.
REPEATABLE: Any = {"svg.hashsalt": "tausid"}
NO_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """A drawing function that uses the common look, and says what to install where matplotlib is missing."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        try:
            import matplotlib
        except ImportError:
            raise MissingExtraError(
                'figures need matplotlib, which is not installed. Install it with pip install "tausid[plots]".'
            ) from None
        with matplotlib.rc_context(LOOK):
            figure = draw(*args, **kwargs)
            for panel in figure.axes:
                _tick(panel.xaxis)
                _tick(panel.yaxis)
            return figure

    return drawn


def _tick(axis: Axis) -> None:
    """At least three ticks with numbers, where an axis has any: one or two say little of its scale."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter

    locator = axis.get_major_locator()
    if isinstance(locator, MaxNLocator):
        locator.set_params(min_n_ticks=LEAST_TICKS)
    elif isinstance(locator, LogLocator) and _ticks(axis) < LEAST_TICKS:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        if _ticks(axis) < LEAST_TICKS:
            axis.set_major_locator(MaxNLocator(5, min_n_ticks=LEAST_TICKS))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_locator(NullLocator())


def _ticks(axis: Axis) -> int:
    low, high = sorted(axis.get_view_interval())
    return sum(low <= place <= high for place in axis.get_majorticklocs())


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure."""
    from tausid.results.plots._figure import ShownFigure

    return ShownFigure(figsize=(width, height), layout="constrained")


def legend_above(panel: Axes) -> None:
    """The legend above the panel's right end, where it hides no data."""
    columns = min(len(panel.get_legend_handles_labels()[1]), 4)
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, borderaxespad=0.2)


def with_unit(name: str, unit: str) -> str:
    """The label of an axis."""
    # matplotlib reads what stands between dollar signs as a formula.
    return plain(f"{name} ({unit})" if unit else name)


def plain(text: str) -> str:
    """Text from data, with nothing in it that matplotlib reads as a formula."""
    return text.replace("$", r"\$")


def output_labels(names: Sequence[str], units: Sequence[str]) -> list[str]:
    """Labels of several channels."""
    return [with_unit(name, unit) for name, unit in zip(names, units, strict=True)]


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure; an old file stays whole until the new one is complete.

    Args:
        figure: the figure.
        path: where to write; its ending, .png, .svg or .pdf, decides on the format.

    Raises:
        ConfigError: another ending.
        StorageError: the file cannot be written.
    """
    return write_bytes(path, figure_bytes(figure, check_picture(path)))


def figure_bytes(figure: Figure, format: str, *, outlines: bool = False) -> bytes:
    """A figure as the content of a file; the same figure gives the same bytes.

    Args:
        figure: the figure.
        format: `png`, `svg` or `pdf`.
        outlines: whether letters in an SVG are shapes, which look the same without the font.
    """
    import matplotlib

    drawn = io.BytesIO()
    with matplotlib.rc_context({**REPEATABLE, "svg.fonttype": "path" if outlines else "none"}):
        figure.savefig(drawn, format=format, dpi=130, metadata=NO_DATE[format])
    return drawn.getvalue()


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
