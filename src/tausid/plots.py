"""Figures of result objects; each function returns a matplotlib figure."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tausid.errors import ConfigError, DataError, MissingExtraError
from tausid.readers import Channel, Channels
from tausid.records import Record
from tausid.simulation import Simulation
from tausid.storage import write_bytes
from tausid.tau_estimation import TauEstimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Longer signals are drawn by their envelope; fewer samples have no spectrum worth a picture.
MOST_POINTS, MIN_SPECTRUM = 20_000, 8
PICTURES = (".png", ".svg", ".pdf")
MEASURED, SIMULATED, RESIDUAL = (
    "#222222",
    "#d55e00",
    "#0072b2",
)  # told apart in grey and by colour-blind readers


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure; an old file stays whole until the new one is complete.

    Args:
        figure: the figure.
        path: where to write; its ending, .png, .svg or .pdf, decides on the format.

    Returns:
        The path.

    Raises:
        ConfigError: another ending.
        StorageError: the file cannot be written.
    """
    ending = check_picture(path)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=ending, dpi=130)
    return write_bytes(path, drawn.getvalue())


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


def plot_record(data: Record | Channels) -> Figure:
    """All channels over time, missing samples marked at the bottom, and the spectrum of each beside it.

    Args:
        data: a record, or channels of a file; those with fewer than two samples are left out.

    Returns:
        The figure, one row per channel, inputs and outputs in colours of their own.

    Raises:
        DataError: no channel has two samples.
        MissingExtraError: matplotlib is not installed.
    """
    channels = Channels.from_record(data) if isinstance(data, Record) else data
    shown = [
        channel for channel in channels.channels if channel.role != "time" and np.isfinite(channel.values).sum() > 1
    ]
    if not shown:
        raise DataError(f"{channels.name!r} must have a channel of at least two samples to be drawn; it has none.")
    figure = _new_figure(width=11.0, height=1.2 + 1.7 * len(shown))
    panels = figure.subplots(len(shown), 2, width_ratios=[3, 1], squeeze=False)
    for row, channel in enumerate(shown):
        clock, label = _clock_of(channels, len(channel.values))
        _draw_channel(panels[row, 0], channel, clock)
        _draw_spectrum(panels[row, 1], channel, clock)
        panels[row, 0].sharex(panels[0, 0])
    panels[0, 0].set_title(channels.name, loc="left")
    panels[0, 1].set_title("amplitude spectrum", loc="left", fontsize="medium")
    panels[-1, 0].set_xlabel(label)
    panels[-1, 1].set_xlabel("frequency (Hz)" if label.startswith("time") else "frequency (1/sample)")
    return figure


def _clock_of(data: Channels, samples: int) -> tuple[np.ndarray, str]:
    """Time stamps of a channel, or the numbers of its samples while the clock is not known."""
    stamps = data.with_role("time")
    if stamps and len(stamps[0].values) >= samples:
        return stamps[0].values[:samples], "time (s)"
    return (np.arange(samples) * data.ts, "time (s)") if data.ts is not None else (np.arange(samples) * 1.0, "sample")


def _draw_channel(panel: Axes, channel: Channel, clock: np.ndarray) -> None:
    colour = {"input": RESIDUAL, "output": SIMULATED}.get(channel.role, MEASURED)
    panel.plot(*_envelope(clock, channel.values), color=colour, linewidth=0.8)
    missing = clock[~np.isfinite(channel.values)]
    if len(missing):
        panel.plot(missing, np.zeros(len(missing)), "|", color=MEASURED, transform=panel.get_xaxis_transform(),
                   label=f"{len(missing)} missing")  # fmt: skip
        panel.legend(loc="upper right", frameon=False)
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


def plot_tau(estimate: TauEstimate, record: Record) -> Figure:
    """Where tau comes from: the record with its linear simulation, the poles, and tau among the time constants.

    An estimate from a search shows its trials, score against Ts/tau, in place of the linear model.

    Args:
        estimate: the estimate.
        record: the training record.

    Returns:
        The figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = _new_figure(width=9.0, height=6.0)
    rows = figure.add_gridspec(2, 2, height_ratios=[1.2, 1.0])
    _draw_linear_simulation(figure.add_subplot(rows[0, :]), estimate, record)
    if estimate.bla is not None:
        _draw_poles(figure.add_subplot(rows[1, 0]), estimate.bla.poles)
        _draw_time_constants(figure.add_subplot(rows[1, 1]), estimate, 1.0 / np.abs(estimate.bla.poles))
    elif estimate.trials:
        _draw_trials(figure.add_subplot(rows[1, :]), estimate)
    return figure


def _draw_linear_simulation(panel: Axes, estimate: TauEstimate, record: Record) -> None:
    panel.plot(record.t, record.y[:, 0], color=MEASURED, linewidth=1.4, label="measured")
    if estimate.bla is not None:
        simulated = estimate.bla.simulate(record, estimate.bla.x0[0])[:, 0]
        label = f"linear, order {estimate.bla.order}"
        panel.plot(record.t, simulated, color=SIMULATED, linewidth=1.1, linestyle="--", label=label)
    panel.set_title(f"tau = {estimate.tau:.4g} s, Ts/tau = {estimate.ts_over_tau:.3g} ({estimate.method})", loc="left")
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2, borderaxespad=0.2)
    panel.set_xlabel("time (s)")
    panel.set_ylabel(record.output_names[0])


def _draw_poles(panel: Axes, poles: np.ndarray) -> None:
    panel.plot(poles.real, poles.imag, "x", color=RESIDUAL, markersize=9, markeredgewidth=2)
    panel.axhline(0.0, color=MEASURED, linewidth=0.6)
    panel.axvline(0.0, color=MEASURED, linewidth=0.6)
    panel.margins(0.2)
    panel.set_title("poles of the linear approximation", loc="left", fontsize="medium")
    panel.set_xlabel("real part (1/s)")
    panel.set_ylabel("imaginary part (1/s)")


def _draw_time_constants(panel: Axes, estimate: TauEstimate, constants: np.ndarray) -> None:
    marks = [*((f"1/|pole {i + 1}|", value) for i, value in enumerate(constants)), ("Ts", estimate.ts)]
    panel.axvspan(*estimate.spread, color=SIMULATED, alpha=0.15, linewidth=0)
    panel.axvline(estimate.tau, color=SIMULATED, linewidth=1.6)
    panel.annotate(" tau", (estimate.tau, 0.92), xycoords=("data", "axes fraction"), color=SIMULATED)
    for height, (label, value) in enumerate(marks):
        panel.plot(value, height, "o", color=RESIDUAL if label != "Ts" else MEASURED)
        panel.annotate(f"  {label}", (value, height), va="center", fontsize="small")
    panel.set_xscale("log")
    panel.margins(x=0.35, y=0.35)
    panel.set_yticks([])
    panel.set_title("tau, its spread (shaded), and time constants", loc="left", fontsize="medium")
    panel.set_xlabel("seconds")


def _draw_trials(panel: Axes, estimate: TauEstimate) -> None:
    tried = [trial.ts_over_tau for trial in estimate.trials]
    panel.set_xscale("log")
    panel.set_xlim(min(tried) / 2, 2 * max(tried))
    whole = [trial for trial in estimate.trials if trial.status != "stopped early"]
    early = [trial for trial in estimate.trials if trial.status == "stopped early"]
    for trials, mark, label in ((whole, "o", "trained to its end"), (early, "x", "stopped early")):
        panel.plot([t.ts_over_tau for t in trials], [t.score for t in trials], mark, color=RESIDUAL, label=label)
    panel.axvline(estimate.ts_over_tau, color=SIMULATED, linewidth=1.6, label="chosen")
    panel.legend(frameon=False)
    panel.set_xlabel("Ts/tau")
    panel.set_ylabel("held-out NRMSE")


def _new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            'figures need matplotlib, which is not installed. Install it with pip install "tausid[plots]".'
        ) from None
    return Figure(figsize=(width, height), layout="constrained")
