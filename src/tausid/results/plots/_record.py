"""A record as it is: its channels over time, their spectra, and what normalization does to time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tausid.checks import check_number
from tausid.data.readers import Channel, Channels
from tausid.data.records import Record
from tausid.errors import DataError
from tausid.results.plots._style import MEASURED, RESIDUAL, SIMULATED, new_figure, output_labels, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Longer signals are drawn by their envelope; fewer samples have no spectrum worth a picture.
MOST_POINTS, MIN_SPECTRUM = 20_000, 8
SCALED = "#c8102e"  # red, as in the paper


@styled
def plot_record(data: Record | Channels) -> Figure:
    """All channels over time, missing samples marked at the bottom, and the spectrum of each beside it.

    Args:
        data: a record, or channels of a file; those with fewer than two samples are left out.

    Returns:
        The figure, one row per channel, inputs and outputs in colours of their own.

    Raises:
        DataError: no channel has two samples.
    """
    channels = Channels.from_record(data) if isinstance(data, Record) else data
    shown = [
        channel for channel in channels.channels if channel.role != "time" and np.isfinite(channel.values).sum() > 1
    ]
    if not shown:
        raise DataError(f"{channels.name!r} must have a channel of at least two samples to be drawn; it has none.")
    figure = new_figure(1.2 + 1.7 * len(shown), 11.0)
    panels = figure.subplots(len(shown), 2, width_ratios=[3, 1], squeeze=False)
    for row, channel in enumerate(shown):
        clock, seconds = _clock_of(channels, len(channel.values))
        _draw_channel(panels[row, 0], channel, clock)
        _draw_spectrum(panels[row, 1], channel, clock)
        panels[row, 0].sharex(panels[0, 0])
    panels[0, 0].set_title(channels.name)
    panels[0, 1].set_title("amplitude spectrum")
    panels[-1, 0].set_xlabel("time (s)" if seconds else "sample")
    panels[-1, 1].set_xlabel("frequency (Hz)" if seconds else "frequency (1/sample)")
    return figure


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
    """
    check_number("tau", tau, positive=True)
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


def _clock_of(data: Channels, samples: int) -> tuple[np.ndarray, bool]:
    """Time stamps of a channel, or the numbers of its samples while the clock is not known, and which they are."""
    stamps = data.with_role("time")
    if stamps and len(stamps[0].values) >= samples:
        return stamps[0].values[:samples], True
    return np.arange(samples) * (1.0 if data.ts is None else data.ts), data.ts is not None


def _draw_channel(panel: Axes, channel: Channel, clock: np.ndarray) -> None:
    colour = {"input": RESIDUAL, "output": SIMULATED}.get(channel.role, MEASURED)
    panel.plot(*_envelope(clock, channel.values), color=colour, linewidth=0.8)
    missing = clock[~np.isfinite(channel.values)]
    if len(missing):
        panel.plot(missing, np.zeros(len(missing)), "|", color=MEASURED, transform=panel.get_xaxis_transform(),
                   label=f"{len(missing)} missing")  # fmt: skip
        panel.legend(loc="upper right")
    panel.set_ylabel("\n".join(part for part in (channel.name, channel.role, channel.unit) if part))
    panel.margins(x=0.01)


def _envelope(clock: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A long signal by the smallest and largest value of each stretch, which looks the same."""
    size = len(values) // MOST_POINTS
    if size < 2:
        return clock, values
    stretches = len(values) // size
    blocks = values[: stretches * size].reshape(stretches, size)
    known = np.isfinite(blocks)
    low, high = np.where(known, blocks, np.inf).min(axis=1), np.where(known, blocks, -np.inf).max(axis=1)
    both = np.stack([low, high], axis=1).ravel()
    return np.repeat(clock[: stretches * size : size], 2), np.where(np.isfinite(both), both, np.nan)


def _draw_spectrum(panel: Axes, channel: Channel, clock: np.ndarray) -> None:
    from scipy.signal import welch  # late: it takes a while to import

    known = np.isfinite(channel.values) & np.isfinite(clock)
    span = clock[known][-1] - clock[known][0] if known.any() else 0.0
    if known.sum() < MIN_SPECTRUM or not span > 0:
        panel.set_axis_off()
        return
    even = np.linspace(clock[known][0], clock[known][-1], len(clock))
    values = np.interp(even, clock[known], channel.values[known])
    step = even[1] - even[0]
    freq_hz, power = welch(values - values.mean(), fs=1.0 / step, nperseg=min(len(values), 4096), scaling="spectrum")
    panel.plot(freq_hz[1:], np.sqrt(power[1:]), color=MEASURED, linewidth=0.7)
    panel.set_xscale("log")
    if power[1:].max() > 0:
        panel.set_yscale("log")
