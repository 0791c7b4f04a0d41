"""Linearizations of a model at a point and over many, and its responses to steps and sines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tausid.control.points import OperatingPoint, nearest_point
from tausid.display import html_table
from tausid.errors import ConfigError
from tausid.export.description import describe
from tausid.export.interpreter import evaluate, jacobian, simulate
from tausid.model.ensembles import AnyModel
from tausid.results.plots import plot_operating_points
from tausid.shapes import ArrayLike, Complex, Float

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Linearization:
    """`d(dx)/dt = A dx + B du`, `dy = C dx + D du` for small deviations from a point; physical units, seconds.

    Args:
        A: state matrix, shape (nx, nx), per second.
        B: input matrix, shape (nx, nu).
        C: output matrix, shape (ny, nx).
        D: feedthrough, shape (ny, nu).
        x: the state at the point.
        u: the inputs there.
        y: the outputs there.
        delays: seconds after which each input acts; not in the matrices.
        input_names: one name per input.
        output_names: one name per output.
    """

    A: Float[np.ndarray, "nx nx"]
    B: Float[np.ndarray, "nx nu"]
    C: Float[np.ndarray, "ny nx"]
    D: Float[np.ndarray, "ny nu"]
    x: Float[np.ndarray, "nx"]
    u: Float[np.ndarray, "nu"]
    y: Float[np.ndarray, "ny"]
    delays: Float[np.ndarray, "nu"]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @property
    def poles(self) -> Complex[np.ndarray, "nx"]:
        """Poles in 1/s, the slowest first."""
        poles = np.linalg.eigvals(self.A).astype(complex)
        return poles[np.lexsort((poles.imag, np.abs(poles)))]

    @property
    def time_constants(self) -> Float[np.ndarray, "nx"]:
        """`-1/Re(pole)` in seconds, in the order of the poles; negative for unstable ones, infinite for integrators."""
        rates = self.poles.real
        return np.divide(-1.0, rates, out=np.full(len(rates), np.inf), where=rates != 0.0)

    @property
    def static_gain(self) -> Float[np.ndarray, "ny nu"]:
        """`D - C A^-1 B`, change of the outputs at rest with the inputs; infinite where A is singular."""
        try:
            return self.D - self.C @ np.linalg.solve(self.A, self.B)
        except np.linalg.LinAlgError:
            return np.full(self.D.shape, np.inf)

    def frequency_response(self, freq_hz: ArrayLike) -> Complex[np.ndarray, "F ny nu"]:
        """`(D + C (s I - A)^-1 B) exp(-s delay)` with `s = j 2 pi f`.

        Args:
            freq_hz: frequencies in hertz, shape (F,).

        Returns:
            The response, shape (F, ny, nu).
        """
        s = 2j * np.pi * np.atleast_1d(np.asarray(freq_hz, float))[:, None, None]
        x = np.linalg.solve(s * np.eye(len(self.A)) - self.A, np.broadcast_to(self.B, (len(s), *self.B.shape)))
        return (self.D + self.C @ x) * np.exp(-s * self.delays)

    def step_response(self, t: ArrayLike) -> Float[np.ndarray, "N ny nu"]:
        """Deviations of the outputs after a unit step of each input at time zero.

        Args:
            t: times in seconds, shape (N,).

        Returns:
            The responses, shape (N, ny, nu).
        """
        from scipy.linalg import expm  # late: it takes a while to import

        nx, nu = self.B.shape
        joined = np.block([[self.A, self.B], [np.zeros((nu, nx + nu))]])
        passed = np.asarray(t, float)[:, None] - self.delays  # (N, nu)
        moved = expm(joined * np.maximum(passed, 0.0)[..., None, None])  # (N, nu, nx + nu, nx + nu)
        x = np.stack([moved[:, i, :nx, nx + i] for i in range(nu)], axis=2)  # (N, nx, nu)
        return np.where(passed[:, None] >= 0.0, self.C @ x + self.D, 0.0)

    def _repr_html_(self) -> str:
        rows = [(name, np.array2string(getattr(self, name), precision=4)) for name in "ABCD"]
        rows += [("poles", np.array2string(self.poles, precision=4) + " 1/s")]
        rows += [("time constants", np.array2string(self.time_constants, precision=4) + " s")]
        rows += [("static gain", np.array2string(self.static_gain, precision=4))]
        return html_table(f"Linearization at u = {self.u}, y = {self.y}", rows)


def linearize(
    model: AnyModel, x: ArrayLike | None = None, u: ArrayLike | None = None, *, y: ArrayLike | None = None
) -> Linearization:
    """The linearization of a model by exact Jacobians.

    Args:
        model: the model, or an ensemble.
        x: the state, normalized; by default that of the operating point with the inputs or outputs that are given.
        u: the inputs in physical units.
        y: outputs of the operating point instead.

    Returns:
        The linearization. An output at its limit does not move, and has zeros in C and D.

    Raises:
        ConfigError: a state without inputs, or a wrong number of values.
        DataError: there is no operating point with these givens.
    """
    d = describe(model)
    if x is None:
        point = nearest_point(model, u, y)
        state, inputs = point.x, point.u
    else:
        state = np.asarray(x, float)
        inputs = np.zeros(0) if u is None else np.atleast_1d(np.asarray(u, float))
        if state.shape != (d.nx,) or inputs.shape != (d.nu,):
            raise ConfigError(
                f"a point must have {d.nx} states and {d.nu} inputs; got shapes {state.shape} and {inputs.shape}. Give "
                "both, or `u` alone for the equilibrium."
            )
    return Linearization(
        *jacobian(d.f, state, inputs), *jacobian(d.g, state, inputs), state, inputs,
        evaluate(d.g, state, inputs), d.delays, d.input_names, d.output_names,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearizationTable:
    """How a plant changes with its operating point.

    Args:
        points: the linearizations, in the order that they were asked for.
    """

    points: tuple[Linearization, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns."""
        first = self.points[0]
        constants = [f"time constant {i + 1} (s)" for i in range(len(first.A))]
        return (*first.input_names, *first.output_names, *self._gains, *constants)

    @property
    def _gains(self) -> list[str]:
        first = self.points[0]
        return [f"{y} per {u}" for y in first.output_names for u in first.input_names]

    @property
    def rows(self) -> list[tuple[float, ...]]:
        """Inputs, outputs, static gains and time constants of each point."""
        parts = ((p.u, p.y, p.static_gain.ravel(), p.time_constants) for p in self.points)
        return [tuple(float(value) for value in np.concatenate(part)) for part in parts]

    def __str__(self) -> str:
        cells = [self.header, *([f"{value:.4g}" for value in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.header))]
        return "\n".join("  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True)) for row in cells)

    def _repr_html_(self) -> str:
        return html_table("Linearizations", self.rows, header=self.header)

    def figure(self) -> Figure:
        """Static gains and time constants over the first output."""
        first = self.points[0]
        gains = {name: np.array([p.static_gain.ravel()[i] for p in self.points]) for i, name in enumerate(self._gains)}
        level = np.array([p.y[0] for p in self.points])
        constants = np.array([p.time_constants for p in self.points])
        return plot_operating_points(level, gains, constants, label=first.output_names[0])


def linearize_over(
    model: AnyModel,
    *,
    u: Sequence[ArrayLike] | np.ndarray | None = None,
    y: Sequence[ArrayLike] | np.ndarray | None = None,
) -> LinearizationTable:
    """Linearizations at many operating points, each looked for from the one before.

    Args:
        model: the model, or an ensemble.
        u: inputs of each point, in physical units.
        y: outputs of each point instead.

    Returns:
        The table of gains and time constants, with a figure.

    Raises:
        ConfigError: neither inputs nor outputs are given.
        DataError: there is no equilibrium at one of the points.
    """
    if (u is None) == (y is None):
        raise ConfigError("`linearize_over` must be given inputs as `u`, or outputs as `y`; give one of them.")
    found, near = list[OperatingPoint](), None
    for value in np.asarray(y if u is None else u, float):
        found.append(nearest_point(model, None if u is None else value, value if u is None else None, near))
        near = found[-1].x
    return LinearizationTable(tuple(linearize(model, point.x, point.u) for point in found))


def step_response(
    model: AnyModel, *, u: ArrayLike, change: ArrayLike, t: ArrayLike
) -> tuple[Float[np.ndarray, "N ny"], Float[np.ndarray, "N nx"]]:
    """Outputs and states after a step of the inputs, from rest: of the nonlinear model itself.

    Args:
        model: the model, or an ensemble.
        u: inputs before, at which the model is at rest.
        change: how much each input changes at the first time.
        t: times in seconds.

    Returns:
        Outputs in physical units, and states.

    Raises:
        DataError: the model does not come to rest with these inputs.
    """
    d, point = describe(model), nearest_point(model, u, None)
    after = point.u + np.atleast_1d(np.asarray(change, float))
    times = np.asarray(t, float)
    # The inputs before are those of a sample long ago, so that delays and holds have seen them.
    long_ago = times[0] - np.max(d.delays, initial=0.0) - 2 * d.ts
    at = np.concatenate([[long_ago, times[0] - 1e-9 * d.ts], times])
    inputs = np.concatenate([[point.u, point.u], np.broadcast_to(after, (len(times), d.nu))])
    x, y = simulate(d, point.x, inputs, at)
    return y[2:], x[2:]


def frequency_response(
    model: AnyModel, freq_hz: ArrayLike, *, u: ArrayLike | None = None, y: ArrayLike | None = None
) -> Complex[np.ndarray, "F ny nu"]:
    """Response to small sines around an operating point, delays included.

    Args:
        model: the model, or an ensemble.
        freq_hz: frequencies in hertz, shape (F,).
        u: inputs of the operating point.
        y: or its outputs.

    Returns:
        The response in physical units, shape (F, ny, nu).

    Raises:
        DataError: there is no operating point with these givens.
    """
    return linearize(model, u=u, y=y).frequency_response(freq_hz)
