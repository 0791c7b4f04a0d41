"""Estimates of tau, the normalization factor of the state derivative, from data and before any training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm

from tausid.checks import check_choice
from tausid.data.clocks import has_one_clock, median_step, on_one_clock
from tausid.data.lines import find_lines
from tausid.data.records import Record, Records, as_records
from tausid.data.scaling import Scaling
from tausid.display import html_table
from tausid.linear import LinearModel, estimate_bla, state_offset
from tausid.shapes import Complex, Float

LINEAR_METHODS = ("bla", "spectrum")
# The spread of an estimate is taken over this many stretches of the records.
STRETCHES = 4
# A stretch whose states' derivatives have less than this share of the largest variance is at rest.
AT_REST = 1e-9
# Samples of each record, the first ones, that a linear approximation looks at: more would not move its tau.
LINEAR_SAMPLES = 60_000


@dataclass(frozen=True)
class TauTrial:
    """One fit of a cross-validation of tau.

    Args:
        ts_over_tau: the sampling time in units of the tau that was tried.
        score: normalized free-run error over held-out data; infinite where nothing simulated.
        status: how the fit ended, as in the results of a study.
    """

    ts_over_tau: float
    score: float
    status: str


@dataclass(frozen=True, eq=False)
class TauEstimate:
    """An estimate of tau and where it comes from.

    Args:
        tau: one factor for all states, in seconds.
        tau_per_state: one factor per state of the linear approximation, in seconds, shape (nx,).
        ts: sampling time of the records in seconds.
        method: name of the estimator.
        description: how the estimate was obtained, in words.
        spread: lowest and highest `tau`: over the four quarters of the records with the same linear model (small
            when the signals are as fast throughout), over the end of a training, or over the good fits of a search.
            No confidence interval.
        bla: the linear approximation behind the estimate, None for estimators without one.
        trials: the fits of a search, by rising Ts/tau; empty for other estimators.
    """

    tau: float
    tau_per_state: Float[np.ndarray, "nx"]
    ts: float
    method: str
    description: str
    spread: tuple[float, float]
    bla: LinearModel | None = None
    trials: tuple[TauTrial, ...] = ()

    @property
    def ts_over_tau(self) -> float:
        """Sampling time in units of tau: the step that an integrator takes in normalized time."""
        return self.ts / self.tau

    def _repr_html_(self) -> str:
        low, high = self.spread
        rows = [("Ts/tau", self.ts_over_tau), ("spread", f"{low:.4g} to {high:.4g} s"), ("how", self.description)]
        return html_table(f"tau = {self.tau:.4g} s ({self.method})", rows)


def estimate_linear_tau(
    records: Records, *, method: str = "bla", nx: int | str = "auto", hold: str = "zero"
) -> TauEstimate:
    """Estimate tau from the states of the best linear approximation, `sqrt(var(x) / var(dx/dt))`.

    `var(x) = 1/L int_0^L |x|^2 / nx dt` as in the paper: the mean square, the mean is not taken out. The data
    are z-scored, so the states are deviations from the records' mean anyway. The integral is exact for the
    hold and not a sum over samples: what happens between samples counts.

    Records with jitter, gaps or several rates are resampled onto their median step first. Records without an input
    have no linear approximation: tau then comes from the outputs themselves.

    Example:
        >>> from tausid import Record
        >>> t = np.arange(0.0, 100.0, 0.1)
        >>> rng = np.random.default_rng(0)
        >>> y = np.sin(t - 1.0) + 0.01 * rng.standard_normal(len(t))
        >>> round(estimate_linear_tau(Record.from_arrays(np.sin(t), y, ts=0.1), nx=1).tau, 1)  # 1 / omega
        1.0
    """
    check_choice("method", method, LINEAR_METHODS)
    several = as_records(records)
    if several[0].nu == 0:
        return _of_outputs(several)
    resampled = not has_one_clock(several)
    several = linear_records(several, hold=hold)
    model = estimate_bla(several, nx=nx, hold=hold)
    tau, per_state = tau_of_model(model, several, method=method, x0=model.x0)
    return TauEstimate(
        tau=tau,
        tau_per_state=per_state,
        ts=model.ts,
        method=method,
        description=_describe(model, method)
        + resampled * f"; records resampled onto their median step, {model.ts:g} s",
        spread=_spread(model, several),
        bla=model,
    )


def linear_records(records: Sequence[Record], *, hold: str) -> tuple[Record, ...]:
    """What of the records a linear approximation is made from: one clock, and not more samples than it needs."""
    shorter = [r if len(r) <= LINEAR_SAMPLES else r.part(0, LINEAR_SAMPLES, name=r.name) for r in records]
    return on_one_clock(shorter, hold=hold)


def tau_of_outputs(records: Sequence[Record]) -> float:
    """`sqrt(var(y) / var(dy/dt))` of the outputs, z-scored: tau of a system without an input.

    White noise adds the same to the mean squared difference over one step, D1, and over two, D2; so the mean square
    of the derivative is `(D2 - D1) / (3 ts^2)`, or `D1 / ts^2` where that is not positive.
    """
    several = linear_records(records, hold="zero")
    scaling = Scaling.from_records(several)
    signals = [scaling.normalize_y(record.y) for record in several]
    one, two = (np.nanmean(np.concatenate([(y[k:] - y[:-k]) ** 2 for y in signals])) for k in (1, 2))
    per_step = (two - one) / 3.0 if two > one else one
    return float(several[0].ts / np.sqrt(per_step))


def _of_outputs(records: Sequence[Record]) -> TauEstimate:
    tau = tau_of_outputs(records)
    taus = [tau_of_outputs([record]) for record in records]
    return TauEstimate(
        tau=tau,
        tau_per_state=np.array([tau]),
        ts=median_step(records),
        method="outputs",
        description="sqrt(var(y) / var(dy/dt)) of the outputs, as there is no input; spread: over the records",
        spread=(min(taus), max(taus)),
    )


def tau_of_model(
    model: LinearModel,
    records: Records,
    *,
    method: str = "bla",
    x0: Float[np.ndarray, "records nx"] | None = None,
) -> tuple[float, Float[np.ndarray, "nx"]]:
    """Tau of a linear model's states in the model's own basis, over the inputs of records."""
    check_choice("method", method, LINEAR_METHODS)
    several = as_records(records)
    if method == "spectrum":
        moments = [_moment_of_spectrum(model, record) for record in several]
    else:
        starts: Sequence[np.ndarray | None] = [None] * len(several) if x0 is None else list(x0)
        moments = [_moment_of_run(model, r, start) for r, start in zip(several, starts, strict=True)]
    var_x, var_dx = _variances(model, np.average(moments, axis=0, weights=[len(r) for r in several]))
    return float(np.sqrt(var_x.sum() / var_dx.sum())), np.sqrt(var_x / var_dx)


def _describe(model: LinearModel, method: str) -> str:
    how = {
        "bla": "along its free run over the records",
        "spectrum": "in the steady state for the records' input spectrum, hold images included",
    }[method]
    return (
        f"sqrt(var(x) / var(dx/dt)) of the states of a linear approximation of order {model.order} "
        f"(balanced states, RMS one), {how}; {model.hold}-order hold"
    )


def _spread(model: LinearModel, records: Sequence[Record]) -> tuple[float, float]:
    """Lowest and highest tau over the quarters of the records; those at rest have no tau and are left out."""
    quarters = [np.array_split(_steps(model, r, x0), STRETCHES) for r, x0 in zip(records, model.x0, strict=True)]
    variances = [_variances(model, _moment(np.concatenate(parts))) for parts in zip(*quarters, strict=True)]
    moving = max(var_dx.sum() for _, var_dx in variances) * AT_REST
    taus = [float(np.sqrt(x.sum() / dx.sum())) for x, dx in variances if dx.sum() > moving]
    return min(taus), max(taus)


def _steps(model: LinearModel, record: Record, x0: np.ndarray | None) -> Float[np.ndarray, "steps n"]:
    """What determines the state over each step: x, u and, for a first-order hold, the slope of u."""
    x, _ = model.simulate_states(record, x0)
    u = model.scaling.normalize_u(record.u)
    if model.hold == "zero":
        return np.concatenate([x, u], axis=1)
    return np.concatenate([x[:-1], u[:-1], np.diff(u, axis=0) / model.ts], axis=1)


def _moment(steps: Float[np.ndarray, "steps n"]) -> Float[np.ndarray, "n n"]:
    return steps.T @ steps / len(steps)


def _moment_of_run(model: LinearModel, record: Record, x0: np.ndarray | None) -> Float[np.ndarray, "n n"]:
    """The second moment along the free run; for inputs of a few sines, of the steady state and of the transient.

    Over broken periods of a sine the mean squares would depend on where the record happens to end.
    """
    steps = _steps(model, record, x0)
    lines = find_lines(record.u)
    if lines is None:
        return _moment(steps)
    z, parts = _lines_of_steps(model, record)
    steady = (z[:, None] ** np.arange(len(steps))).T @ parts  # (steps, n)
    return (parts.T @ parts.conj()).real + _moment(steps - steady.real)


def _moment_of_spectrum(model: LinearModel, record: Record) -> Float[np.ndarray, "n n"]:
    """The same second moment in the periodic steady state, from the lines of the inputs (Parseval)."""
    _, parts = _lines_of_steps(model, record)
    return (parts.T @ parts.conj()).real


def _lines_of_steps(
    model: LinearModel, record: Record
) -> tuple[Complex[np.ndarray, "lines"], Complex[np.ndarray, "lines n"]]:
    """Lines `z^k` of the steady state of what determines each step, and their amplitudes."""
    angles, amplitudes = _input_lines(model.scaling.normalize_u(record.u))
    U = amplitudes[:, :, None]  # (lines, nu, 1)
    z = np.exp(1j * angles)[:, None, None]
    X = np.linalg.solve(z * np.eye(model.order) - model.Ad, model.Bd @ U)
    parts = [X + state_offset(model.A, model.B, ts=model.ts, hold=model.hold) @ U, U]
    if model.hold == "first":
        parts.append((z - 1.0) * U / model.ts)
    return z[:, 0, 0], np.concatenate(parts, axis=1)[:, :, 0]


def _input_lines(u: Float[np.ndarray, "N nu"]) -> tuple[Float[np.ndarray, "lines"], Complex[np.ndarray, "lines nu"]]:
    """Angles per sample and amplitudes: of the few sines that the input consists of, else of its DFT."""
    few = find_lines(u)
    if few is None:
        return 2.0 * np.pi * np.arange(len(u)) / len(u), np.fft.fft(u, axis=0) / len(u)
    angles = np.concatenate([[0.0], few.angles, -few.angles])
    return angles, np.concatenate([few.constant[None], few.amplitudes / 2.0, few.amplitudes.conj() / 2.0])


def _variances(model: LinearModel, moment: Float[np.ndarray, "n n"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of x and dx/dt from the second moment S of (x, u, slope of u) at the samples.

    Over a step, `d/dt (x, u, slope) = F (x, u, slope)`. The mean of the second moment over all times is
    `1/ts int_0^ts e^(F s) S e^(F' s) ds` (Van Loan 1978); sums over all images of the spectrum equal it.
    """
    nx, nu = model.B.shape
    n = len(moment)
    F = np.zeros((n, n))
    F[:nx, : nx + nu] = np.concatenate([model.A, model.B], axis=1)
    F[nx : nx + nu, nx + nu :] = np.eye(nu, n - nx - nu)
    exponential = expm(np.block([[-F * model.ts, moment], [np.zeros((n, n)), F.T * model.ts]]))
    mean = exponential[n:, n:].T @ exponential[:n, n:]
    return np.diag(mean)[:nx], np.maximum(np.diag(F[:nx] @ mean @ F[:nx].T), 0.0)
