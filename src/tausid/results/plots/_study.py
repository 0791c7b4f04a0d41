"""Scores of many runs as box plots: the paper's Figure 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tausid.errors import ConfigError
from tausid.results.plots._style import FAINT, MEASURED, RESIDUAL, SIMULATED, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scores = Sequence[float] | np.ndarray
Groups = Mapping[Any, Scores]
# Stands for a run without a finite score where quartiles are computed: larger than any score, and still a number.
ENDLESS = 1e300
ALONE, TOGETHER = 0.5, 0.9  # width of the only box of a group, and of all boxes side by side, in units of its room
# So many characters stand side by side below the axis.
LINE = 100
# Colour, hatching and shade of the boxes of the study, and of the sets beside it: different in grey, too.
LOOKS = ((RESIDUAL, "", 0.55), (SIMULATED, "////", 0.25), (MEASURED, "", 0.05), (FAINT, "....", 0.6))


@styled
def plot_study_boxes(
    groups: Groups,
    *,
    x_label: str,
    y_label: str,
    beside: Mapping[str, Groups] | None = None,
    marks: Mapping[str, float] | None = None,
    y_max: float | None = None,
    name: str = "here",
) -> Figure:
    """Box plot of scores by group: the paper's Figure 2.

    A box goes from the lower to the upper quartile with the median across it, its whiskers over all runs. Runs above
    `y_max`, and runs without a finite score, are cut off and counted above the box.

    Args:
        groups: scores by value (positive numbers, on a logarithmic axis) or by label (text, in the given order).
        x_label: what the values or labels are.
        y_label: what the scores are, with their unit.
        beside: up to three other sets by name, drawn beside the first; their values or labels should be among the
            first's.
        marks: named values, as vertical lines; for values only, not for labels.
        y_max: upper end of the axis; by default above the largest finite score.
        name: what the first set is, for the legend where there are others.

    Raises:
        ConfigError: no group or an empty one, more than three sets beside, two of one name, values that are not
            positive, labels mixed with values, marks among labels, or no finite score and no `y_max`.
    """
    if name in (beside or {}):
        raise ConfigError(f"`beside` must have other names than the first set; both have {name!r}. Rename one of them.")
    sets = {name: groups, **(beside or {})}
    positions = _positions(sets)
    if marks:
        _check_marks(marks, positions)
    top = _upper_end([scores for drawn in sets.values() for scores in drawn.values()], y_max)
    figure = new_figure(4.2)
    panel = figure.subplots()
    room = _room([positions[key] for key in groups])
    step = TOGETHER / len(sets) * room
    for index, drawn in enumerate(sets.values()):
        places = np.array([positions[key] for key in drawn]) + (index - 0.5 * (len(sets) - 1)) * step
        width = 0.9 * step if len(sets) > 1 else ALONE * room
        _draw_boxes(panel, list(drawn.values()), places, width=width, top=top, look=LOOKS[index])
        _count_above(panel, list(drawn.values()), places, top=top, row=index)
    for index, (name, value) in enumerate((marks or {}).items()):
        _draw_mark(panel, name, float(np.log10(value)), index)
    ticks = {positions[key]: plain(key if isinstance(key, str) else f"{key:.3g}") for key in groups}
    panel.set_xticks(list(ticks), list(ticks.values()), **_slant(groups))
    panel.set_xlim(min(positions.values()) - 0.7 * room, max(positions.values()) + 0.7 * room)
    panel.set_ylim(0.0, top)
    panel.grid(axis="x", visible=False)
    panel.set_xlabel(plain(x_label))
    panel.set_ylabel(plain(y_label))
    if beside or marks:
        _draw_legend(panel, tuple(sets) if beside else ())
    return figure


def _positions(sets: Mapping[str, Groups]) -> dict[Any, float]:
    """Where each group stands: at the logarithm of its value, or at its number."""
    if len(sets) > len(LOOKS):
        raise ConfigError(f"`beside` must hold at most {len(LOOKS) - 1} sets; got {len(sets) - 1}. Draw two figures.")
    keys = list(dict.fromkeys(key for groups in sets.values() for key in groups))
    if not all(len(groups) and all(map(len, groups.values())) for groups in sets.values()):
        raise ConfigError("`groups` must hold at least one group, each with scores; got none or an empty one.")
    if all(isinstance(key, str) for key in keys):
        return {key: float(index) for index, key in enumerate(keys)}
    if any(isinstance(key, str) or not 0 < key < np.inf for key in keys):
        raise ConfigError(
            f"`groups` must be named by positive numbers, or all by text; got {keys}. Write the numbers as text."
        )
    return {key: float(np.log10(key)) for key in keys}


def _check_marks(marks: Mapping[str, float], positions: Mapping[Any, float]) -> None:
    if any(isinstance(key, str) for key in positions):
        raise ConfigError("`marks` must stand on an axis of numbers; the groups are named by text. Leave them out.")
    for name, value in marks.items():
        if not 0 < value < np.inf:
            raise ConfigError(f"`marks` must be positive numbers; {name!r} is {value!r}. Correct it.")


def _upper_end(sets: Sequence[Scores], y_max: float | None) -> float:
    if y_max is not None:
        if not 0 < y_max < np.inf:
            raise ConfigError(f"`y_max` must be a positive number; got {y_max!r}. Leave it out.")
        return y_max
    scores = np.concatenate([np.asarray(scores, float) for scores in sets])
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        raise ConfigError("`groups` must hold a finite score, or `y_max` be given; all runs diverged. Give `y_max`.")
    return 1.05 * float(finite.max())


def _slant(groups: Groups) -> dict[str, Any]:
    """How labels are set: text slants where it would run into its neighbours."""
    longest = max((len(key) for key in groups if isinstance(key, str)), default=0)
    if len(groups) * (longest + 2) <= LINE:
        return {}
    return {"rotation": 30, "rotation_mode": "anchor", "horizontalalignment": "right"}


def _room(places: Scores) -> float:
    """The smallest distance between two groups."""
    return float(np.diff(np.sort(places)).min()) if len(places) > 1 else 1.0


def _draw_boxes(
    panel: Axes, sets: Sequence[Scores], places: np.ndarray, *, width: float, top: float, look: Any
) -> None:
    color, hatch, alpha = look
    panel.bxp(
        [_statistics(scores, top) for scores in sets],
        positions=places.tolist(),
        widths=width,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": (color, alpha), "edgecolor": color, "hatch": hatch},
        medianprops={"color": MEASURED, "linewidth": 1.8},
        whiskerprops={"color": color},
        capprops={"color": color},
    )


def _count_above(panel: Axes, sets: Sequence[Scores], places: np.ndarray, *, top: float, row: int) -> None:
    """How many runs lie above the axis, a row of numbers per set."""
    for place, scores in zip(places, sets, strict=True):
        above = int(np.sum(~(np.asarray(scores, float) <= top)))
        if above:
            panel.annotate(
                f"\N{UPWARDS ARROW}{above}",
                (place, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2 + 12 * row),
                textcoords="offset points",
                ha="center",
                color=LOOKS[row][0],
            )


def _statistics(scores: Scores, top: float) -> dict[str, Any]:
    values = np.where(np.isfinite(scores), scores, ENDLESS)
    low, lower, median, upper, high = np.clip(np.percentile(values, [0, 25, 50, 75, 100]), 0.0, 2.0 * top).tolist()
    return {"whislo": low, "q1": lower, "med": median, "q3": upper, "whishi": high, "fliers": []}


def _draw_mark(panel: Axes, name: str, place: float, index: int) -> None:
    dashes = ("--", ":", "-.")[index % 3]
    panel.axvline(place, color=MEASURED, linestyle=dashes, linewidth=1.3, label=plain(name), zorder=0.5)


def _draw_legend(panel: Axes, names: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=(color, alpha), edgecolor=color, hatch=hatch, label=plain(name))
        for name, (color, hatch, alpha) in zip(names, LOOKS, strict=False)
    ]
    lines = panel.get_legend_handles_labels()[0]
    panel.figure.legend(handles=[*patches, *lines], loc="outside upper right", ncols=len(names) + len(lines))
