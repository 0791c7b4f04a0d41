"""The linear model: continuous and discrete matrices, and what can be asked of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.display import html_table
from tausid.engine.recursion import filter_states, simulate_states
from tausid.errors import DataError
from tausid.linear._convert import state_offset
from tausid.shapes import Complex, Float

# Leading samples from which `simulate` estimates an initial state that it is not given.
X0_SAMPLES = 50


class PhysicalForm(NamedTuple):
    """A linear model in physical units: `dx/dt = A x + B (u - u0)`, `y = y0 + C x + D (u - u0)`.

    Args:
        A: state matrix, per second.
        B: input matrix, per second and unit of u.
        C: output matrix, in units of y.
        D: feedthrough, in units of y per unit of u.
        u0: the inputs at which the states are zero: their means over the training records.
        y0: the outputs there.
    """

    A: Float[np.ndarray, "nx nx"]
    B: Float[np.ndarray, "nx nu"]
    C: Float[np.ndarray, "ny nx"]
    D: Float[np.ndarray, "ny nu"]
    u0: Float[np.ndarray, "nu"]
    y0: Float[np.ndarray, "ny"]


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel:
    """A linear state-space model, `dx/dt = A x + B u`, `y = C x + D u`, in normalized units and seconds.

    `physical` has the matrices in physical units. From `estimate_bla` the states are balanced and have a mean square
    of one over the training records.
    The discrete form `xi[k+1] = Ad xi[k] + Bd u[k]`, `y[k] = Cd xi[k] + Dd u[k]` is exact for the hold;
    `xi = x` for a zero-order hold, and `x` minus a multiple of `u` for a first-order hold.

    Args:
        A: state matrix, shape (nx, nx), per second.
        B: input matrix, shape (nx, nu), per second.
        C: output matrix, shape (ny, nx).
        D: feedthrough, shape (ny, nu).
        Ad: state matrix of the discrete form.
        Bd: input matrix of the discrete form.
        Cd: output matrix of the discrete form.
        Dd: feedthrough of the discrete form.
        ts: sampling time in seconds.
        hold: what u does between samples, `zero` or `first`.
        scaling: physical and normalized units of u and y.
        x0: state x at the first sample of each training record, shape (records, nx).
        rmse: root mean square error of the free run over the training records, per output, physical units.
        notes: what had to be changed on the way, in words; empty when nothing had to.
    """

    A: Float[np.ndarray, "nx nx"]
    B: Float[np.ndarray, "nx nu"]
    C: Float[np.ndarray, "ny nx"]
    D: Float[np.ndarray, "ny nu"]
    Ad: Float[np.ndarray, "nx nx"]
    Bd: Float[np.ndarray, "nx nu"]
    Cd: Float[np.ndarray, "ny nx"]
    Dd: Float[np.ndarray, "ny nu"]
    ts: float
    hold: str
    scaling: Scaling
    x0: Float[np.ndarray, "records nx"]
    rmse: Float[np.ndarray, "ny"]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"LinearModel({self.B.shape[1]} inputs, {len(self.C)} outputs, {self.order} states, Ts = {self.ts:g} s; A, "
            "B, C, D are in normalized units, those of .physical in physical ones)"
        )

    def _repr_html_(self) -> str:
        shown = {name: np.array2string(matrix, precision=4) for name, matrix in self.physical._asdict().items()}
        rows = [
            ("poles", ", ".join(f"{pole:.4g}" if pole.imag else f"{pole.real:.4g}" for pole in self.poles) + " 1/s"),
            ("RMSE", ", ".join(f"{error:.4g}" for error in self.rmse) + " (free run over the training records)"),
            *shown.items(),
            *(("note", note) for note in self.notes),
        ]
        return html_table("dx/dt = A x + B (u - u0), y = y0 + C x + D (u - u0), in physical units and seconds", rows)

    @property
    def physical(self) -> PhysicalForm:
        """The matrices in physical units; the states are the same."""
        scaling = self.scaling
        B, C = self.B / scaling.u_std, self.C * scaling.y_std[:, None]
        return PhysicalForm(self.A, B, C, self._physical_gain(self.D), scaling.u_mean, scaling.y_mean)

    @property
    def order(self) -> int:
        """Number of states, nx."""
        return len(self.A)

    @property
    def poles(self) -> Complex[np.ndarray, "nx"]:
        """Continuous-time poles in 1/s, the slowest first."""
        poles = np.linalg.eigvals(self.A).astype(complex)
        return poles[np.lexsort((poles.imag, np.abs(poles)))]

    @property
    def dc_gain(self) -> Float[np.ndarray, "ny nu"]:
        """Steady-state gain `D - C A^-1 B`, physical units of y per physical unit of u."""
        return self._physical_gain(self.D - self.C @ np.linalg.solve(self.A, self.B))

    def frequency_response(self, freq_hz: Float[np.ndarray, "F"]) -> Complex[np.ndarray, "F ny nu"]:
        """Continuous-time response `D + C (j 2 pi f I - A)^-1 B`, in physical units.

        Args:
            freq_hz: frequencies in hertz, shape (F,).

        Returns:
            The response, shape (F, ny, nu).
        """
        s = 2j * np.pi * np.atleast_1d(np.asarray(freq_hz, dtype=float))[:, None, None]
        x = np.linalg.solve(s * np.eye(self.order) - self.A, np.broadcast_to(self.B, (len(s), *self.B.shape)))
        return self._physical_gain(self.D + self.C @ x)

    def simulate(
        self, record: Record, x0: Float[np.ndarray, "nx"] | None = None, *, x0_samples: int = X0_SAMPLES
    ) -> Float[np.ndarray, "N ny"]:
        """Free run over a record's inputs: outputs in physical units.

        Args:
            record: the inputs, sampled with the model's clock; its outputs serve only to find `x0`.
            x0: state at the first sample, normalized units; None: the one that fits the record's first
                outputs best (they are linear in it, so this is linear least squares, solved exactly).
            x0_samples: how many leading samples that fit may use.

        Returns:
            Outputs, shape (N, ny).

        Raises:
            DataError: other channels or another clock than the model's, or too few outputs to find `x0` from.
        """
        x, _ = self.simulate_states(record, x0, x0_samples=x0_samples)
        return self.scaling.physical_y(x @ self.C.T + self.scaling.normalize_u(record.u) @ self.D.T)

    def simulate_states(
        self, record: Record, x0: Float[np.ndarray, "nx"] | None = None, *, x0_samples: int = X0_SAMPLES
    ) -> tuple[Float[np.ndarray, "N nx"], Float[np.ndarray, "N nx"]]:
        """Free run over a record's inputs: states and their derivatives at the samples, normalized units.

        Args:
            record: the inputs, sampled with the model's clock; its outputs serve only to find `x0`.
            x0: state at the first sample, normalized units; None: found as in `simulate`.
            x0_samples: how many leading samples that search may use.

        Returns:
            The states x, and `dx/dt = A x + B u` just after each sample, per second.

        Raises:
            DataError: other channels or another clock than the model's, or too few outputs to find `x0` from.
        """
        self._check(record)
        u = self.scaling.normalize_u(record.u)
        start = self.initial_state(record, x0_samples=x0_samples) if x0 is None else np.asarray(x0, dtype=float)
        if start.shape != (self.order,):
            raise DataError(
                f"`x0` must have one entry per state; got shape {start.shape} for {self.order} states. "
                "Give a vector in the model's own basis, or None."
            )
        offset = state_offset(self.A, self.B, ts=self.ts, hold=self.hold)
        x = simulate_states(self.Ad, self.Bd, u, start - offset @ u[0]) + u @ offset.T
        return x, x @ self.A.T + u @ self.B.T

    def initial_state(self, record: Record, *, x0_samples: int = X0_SAMPLES) -> Float[np.ndarray, "nx"]:
        """The state at the first sample that makes the free run fit the first outputs best, exactly.

        Args:
            record: inputs and outputs.
            x0_samples: how many leading samples may be used.

        Returns:
            The state, normalized units.

        Raises:
            DataError: other channels or another clock than the model's, or fewer known outputs than states.
        """
        self._check(record)
        first = record.part(0, min(x0_samples, len(record)))
        known = ~np.isnan(first.y)
        if known.sum() < self.order:
            raise DataError(
                f"the first {len(first)} samples of {record.name!r} must hold at least {self.order} known "
                f"outputs to estimate `x0`; got {known.sum()}. Give `x0`, or raise `x0_samples`."
            )
        forced = self.simulate(first, np.zeros(self.order))
        identity = np.eye(self.order)
        free = filter_states(self.Ad, np.zeros((*identity.shape, len(first))), identity)  # (nx, nx, N)
        responses = np.einsum("oi,ikt->tok", self.Cd, free)
        gap = (first.y - forced) / self.scaling.y_std
        return np.linalg.lstsq(responses[known], gap[known], rcond=None)[0]

    def in_basis(self, transform: Float[np.ndarray, "nx nx"]) -> LinearModel:
        """The same model with other states, `T x`.

        Args:
            transform: the invertible matrix T.

        Returns:
            The model; its outputs, poles and errors are unchanged.
        """
        T = np.asarray(transform, dtype=float)
        inverse = np.linalg.inv(T)
        return replace(
            self,
            A=T @ self.A @ inverse,
            B=T @ self.B,
            C=self.C @ inverse,
            Ad=T @ self.Ad @ inverse,
            Bd=T @ self.Bd,
            Cd=self.Cd @ inverse,
            x0=self.x0 @ T.T,
        )

    def _physical_gain(self, gain: np.ndarray) -> np.ndarray:
        return gain * self.scaling.y_std[:, None] / self.scaling.u_std

    def _check(self, record: Record) -> None:
        nu, ny = self.B.shape[1], len(self.C)
        if (record.nu, record.ny) != (nu, ny):
            raise DataError(
                f"record {record.name!r} must have the model's channels, {nu} inputs and {ny} outputs; got "
                f"{record.nu} and {record.ny}. Choose the columns that the model was estimated from."
            )
        check_clock(record, self.ts)


def check_clock(record: Record, ts: float) -> None:
    """Check that a record is sampled uniformly with a given sampling time."""
    if not record.is_uniform:
        steps = np.diff(record.t)
        raise DataError(
            f"record {record.name!r} must be sampled uniformly for a linear model; its steps go from "
            f"{steps.min():g} s to {steps.max():g} s. Resample it onto one clock."
        )
    if abs(record.ts - ts) > 1e-3 * ts:
        raise DataError(
            f"all records must have one sampling time; expected {ts:g} s, {record.name!r} has "
            f"{record.ts:g} s. Resample it, or leave it out."
        )
