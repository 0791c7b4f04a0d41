"""Draw what tau does, for the page that explains it: three views, each with tau too small, right, and too large.

python docs/draw_normalization.py
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

import tausid

PICTURE = Path(__file__).parent / "images" / "why_normalize.png"
LINE, ROOM = "#0072B2", "#e8e2cf"
BOX = {"color": "white", "pad": 1.0}  # behind words, so that lines do not cross them
TITLES = {0.01: "tau a hundred times too small", 1.0: "tau from the data", 100.0: "tau a hundred times too large"}
ROWS = ("slope that the\nnetwork must learn", "size of the state", "output")
WORDS = (
    ("almost flat", "fills the range", "far outside"),
    ("far outside", "fills the range", "almost zero"),
    ("hardly moves", "a few swings", "over at once"),
)


def heater() -> tuple[np.ndarray, np.ndarray, float]:
    """Time stamps, the scaled output of the simulated heater, and the tau of its slope."""
    record = tausid.datasets.simulate("bilinear", seed=0, noise=0.0).train
    x = (record.y[:, 0] - record.y.mean()) / record.y.std()
    return record.t, x, float(1.0 / np.gradient(x, record.t).std())


def draw_slope(panel: Axes, t: np.ndarray, x: np.ndarray, tau: float, factor: float) -> None:
    """The slope over the state, in the room that a fresh network can fill."""
    panel.add_patch(Rectangle((-2.5, -2.5), 5, 5, color=ROOM, zorder=0))
    panel.plot(x, factor * tau * np.gradient(x, t), ".", color=LINE, markersize=1.5)
    panel.set(xlim=(-4, 4), ylim=(-4, 4), xlabel="state", xticks=[-2, 0, 2], yticks=[-2, 0, 2])


def draw_state(panel: Axes, t: np.ndarray, x: np.ndarray, factor: float) -> None:
    """The state that a slope of size one makes."""
    panel.axhspan(-2.5, 2.5, color=ROOM, zorder=0)
    panel.plot(t / 60.0, x / factor, color=LINE, linewidth=1.0)
    panel.set(ylim=(-4, 4), xlim=(0, t[-1] / 60.0), xlabel="minutes", yticks=[-2, 0, 2])


def draw_time(panel: Axes, t: np.ndarray, x: np.ndarray, tau: float, factor: float) -> None:
    """The record over time in units of tau."""
    panel.plot(t / (factor * tau), x, color=LINE, linewidth=1.0)
    panel.set(xlim=(0, 20), ylim=(-4, 4), xlabel="time in tau", yticks=[-2, 0, 2])


def draw() -> Figure:
    """The three views."""
    t, x, tau = heater()
    figure = Figure(figsize=(8.0, 7.2), layout="constrained")
    panels = figure.subplots(3, 3)
    for column, (factor, title) in enumerate(TITLES.items()):
        draw_slope(panels[0, column], t, x, tau, factor)
        draw_state(panels[1, column], t, x, factor)
        draw_time(panels[2, column], t, x, tau, factor)
        panels[0, column].set_title(title, fontsize=10)
        for row in range(3):
            panel = panels[row, column]
            panel.text(0.03, 0.96, WORDS[row][column], transform=panel.transAxes, va="top", bbox=BOX)
    for row, label in enumerate(ROWS):
        panels[row, 0].set_ylabel(label)
    return figure


def main() -> None:
    """Write the picture, with few colours."""
    drawn = io.BytesIO()
    draw().savefig(drawn, dpi=110)
    Image.open(drawn).convert("RGB").quantize(48, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
