"""The best linear approximation: its poles and its frequency response."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tausid.errors import DataError
from tausid.linear import FrequencyResponse, LinearModel
from tausid.linear.order import OrderEstimate
from tausid.results.plots._style import MEASURED, RESIDUAL, SERIES, SIMULATED, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The response is drawn from this share of the slowest pole's frequency on.
SLOWEST = 0.03
# A pole with a smaller imaginary part than this share of its size is real.
REAL = 1e-9


@styled
def plot_bla(model: LinearModel, response: FrequencyResponse | None = None) -> Figure:
    """Poles and frequency response of the best linear approximation, with noise and distortion levels.

    Args:
        model: the linear model, from `estimate_bla`.
        response: the response measured with periodic inputs, from `estimate_frf`: drawn with the deviation due to
            noise and the level of nonlinear distortion, and with the model's response from sample to sample beside
            it instead of the continuous-time one. For models of one input.

    Returns:
        The figure: amplitude and phase over frequency, and the poles.

    Raises:
        DataError: a measured response of other channels than the model's.
    """
    if response is not None and (model.B.shape[1], len(model.C)) != (1, response.response.shape[1]):
        raise DataError(
            f"`response` must be of the model's channels, {model.B.shape[1]} inputs and {len(model.C)} outputs; got 1 "
            f"and {response.response.shape[1]}. Estimate both from the same records."
        )
    figure = new_figure(5.2)
    grid = figure.add_gridspec(2, 2, width_ratios=[1.7, 1], height_ratios=[1.6, 1])
    amplitude = figure.add_subplot(grid[0, 0])
    phase = figure.add_subplot(grid[1, 0], sharex=amplitude)
    if response is None:
        _draw_model(amplitude, phase, model, model.frequency_response, "model")
    else:
        _draw_model(amplitude, phase, model, functools.partial(_sampled_response, model), "model, as sampled")
        _draw_measured(amplitude, phase, response)
    _finish(amplitude, phase)
    figure.legend(loc="outside upper right", ncols=4)
    draw_poles(figure.add_subplot(grid[:, 1]), model.poles)
    return figure


@styled
def plot_order(estimate: OrderEstimate) -> Figure:
    """Errors of linear models on held-out samples over their number of states.

    Args:
        estimate: from `estimate_order`.
    """
    figure = new_figure(3.2)
    panel = figure.add_subplot()
    orders = sorted(estimate.errors)
    panel.plot(orders, [100 * estimate.errors[order] for order in orders], "o-", color=MEASURED)
    panel.axvline(estimate.order, color=SIMULATED, linewidth=1.6, linestyle="--", label=f"{estimate.order} states")
    panel.set_xticks(orders)
    panel.set_ylim(bottom=0.0)
    panel.set_title("linear models on held-out samples")
    panel.set_xlabel("number of states")
    panel.set_ylabel("error (% of standard deviation)")
    panel.legend()
    return figure


def draw_poles(panel: Axes, poles: np.ndarray) -> None:
    """Poles in the complex plane."""
    imaginary = np.where(np.abs(poles.imag) > REAL * np.abs(poles), poles.imag, 0.0)
    panel.plot(poles.real, imaginary, "x", color=RESIDUAL, markersize=9, markeredgewidth=2)
    if not imaginary.any():  # an axis made of rounding errors says nothing
        reach = float(np.max(np.abs(poles)))
        panel.set_ylim(-reach, reach)
    panel.axhline(0.0, color=MEASURED, linewidth=0.6)
    panel.axvline(0.0, color=MEASURED, linewidth=0.6)
    panel.margins(0.2)
    panel.locator_params(axis="x", nbins=5)
    panel.set_title("poles of the linear approximation")
    panel.set_xlabel("real part (1/s)")
    panel.set_ylabel("imaginary part (1/s)")


def _sampled_response(model: LinearModel, freq_hz: np.ndarray) -> np.ndarray:
    """From samples of the input to samples of the output: what a measured response shows, the hold included."""
    z = np.exp(2j * np.pi * freq_hz * model.ts)[:, None, None]
    x = np.linalg.solve(z * np.eye(model.order) - model.Ad, np.broadcast_to(model.Bd, (len(z), *model.Bd.shape)))
    return (model.Dd + model.Cd @ x) * model.scaling.y_std[:, None] / model.scaling.u_std


def _draw_model(
    amplitude: Axes, phase: Axes, model: LinearModel, response: Callable[[np.ndarray], np.ndarray], name: str
) -> None:
    nyquist = 0.5 / model.ts
    slowest = np.abs(model.poles[0]) / (2 * np.pi)
    freq = np.geomspace(min(max(SLOWEST * slowest, 1e-6 * nyquist), 0.1 * nyquist), nyquist, 400)
    gains = response(freq)
    ny, nu = gains.shape[1:]
    for channel in range(ny * nu):
        color, dashes = SERIES[channel % len(SERIES)]
        gain = gains[:, channel // nu, channel % nu]
        label = name if ny * nu == 1 else f"{name}, input {channel % nu + 1} to output {channel // nu + 1}"
        amplitude.plot(freq, np.abs(gain), color=color, linestyle=dashes, label=f"{label}, order {model.order}")
        phase.plot(freq, np.degrees(np.unwrap(np.angle(gain))), color=color, linestyle=dashes)


def _draw_measured(amplitude: Axes, phase: Axes, response: FrequencyResponse) -> None:
    for output in range(response.response.shape[1]):
        mark = "ov^s"[output % 4]
        gain = response.response[:, output]
        amplitude.plot(response.freq_hz, np.abs(gain), mark, color=MEASURED, markersize=3, label="measured")
        phase.plot(response.freq_hz, np.degrees(np.unwrap(np.angle(gain))), mark, color=MEASURED, markersize=3)
        for levels, label, color, sign in (
            (response.noise_std, "noise", RESIDUAL, "."),
            (response.distortion_std, "nonlinear distortion", SIMULATED, "x"),
        ):
            level = levels[:, output]
            if np.any(level > 0):
                shown = np.where(level > 0, level, np.nan)
                amplitude.plot(response.freq_hz, shown, sign, color=color, markersize=4, label=label)


def _finish(amplitude: Axes, phase: Axes) -> None:
    amplitude.set_xscale("log")
    amplitude.set_yscale("log")
    amplitude.set_ylabel("amplitude")
    amplitude.set_title("frequency response")
    amplitude.tick_params(labelbottom=False)
    phase.set_ylabel("phase (degrees)")
    phase.set_xlabel("frequency (Hz)")


@styled
def plot_operating_points(
    level: np.ndarray, gains: Mapping[str, np.ndarray], time_constants: np.ndarray, *, label: str
) -> Figure:
    """How static gains and time constants change with the operating point.

    Args:
        level: what the points are told apart by, shape (N,).
        gains: static gains by name, each of shape (N,).
        time_constants: in seconds, shape (N, nx).
        label: name of the level.

    Returns:
        The figure, one panel each.
    """
    figure, order = new_figure(4.6), np.argsort(level)
    above, below = figure.subplots(2, 1, sharex=True)
    for name, gain in gains.items():
        above.plot(level[order], gain[order], marker=".", label=plain(name))
    below.plot(level[order], time_constants[order], marker=".")
    above.set_ylabel("static gain")
    above.legend()
    below.set_ylabel("time constants (s)")
    below.set_xlabel(plain(label))
    return figure
