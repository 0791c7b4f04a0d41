"""Refinement: minimize the simulation error over all stable linear models of one order.

A and C are kept output normal, `A'A + C'C = I`. The matrices that fulfil this are, up to a rotation of the
states, exactly the stable observable pairs, so no step of the search can leave them. They move along the
`nx ny` directions that change the model (the rotations are left out); B, D and the initial states enter the
simulation linearly and are eliminated (variable projection, with Kaufman's Jacobian). The search itself is
Levenberg-Marquardt from scipy.

References: J. Bruls et al., "Linear and non-linear system identification using separable least-squares",
European Journal of Control 5(1), 1999; B. Hanzon and R. Peeters, output normal forms, 1990s.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgWarning, solve_discrete_lyapunov
from scipy.optimize import least_squares

from tausid.engine.recursion import filter_states
from tausid.linear._subspace import Signals
from tausid.shapes import Bool, Float

# Directions in the regressors below this share of the largest are not determined by the data.
REGRESSOR_TOLERANCE = 1e-10
# Of an initial state that lies before the first known output, directions that the outputs show less than this
# share of are left at zero: they have decayed, and fitting them would blow them up.
FADED = 1e-3
# The local coordinates are laid anew until a search gains less than this share of the error.
GAIN_TOLERANCE = 1e-4
# Errors below this, in normalized units, are rounding: there is nothing left to search for.
EXACT = 1e-12
# A search ends when a step gains less than this share of the squared error.
STEP_TOLERANCE = 1e-7


@dataclass(frozen=True)
class Effort:
    """How hard to search for the least simulation error."""

    starts: int  # how many start values to refine, the best first: the error has local minima
    searches: int  # how often the local coordinates may be laid anew
    steps: int  # evaluations of the error per search


THOROUGH = Effort(starts=2, searches=5, steps=40)
QUICK = Effort(starts=1, searches=1, steps=20)


@dataclass(frozen=True, eq=False)
class Span:
    """Orthonormal basis of the columns of a matrix, and its pseudo-inverse; columns may be dependent."""

    basis: Float[np.ndarray, "rows r"]
    inverse: Float[np.ndarray, "p r"]

    @classmethod
    def of(
        cls,
        columns: Float[np.ndarray, "rows p"],
        *,
        length: Float[np.ndarray, "p"] | None = None,
        tolerance: float = REGRESSOR_TOLERANCE,
    ) -> Span:
        """The span of the columns, judged after dividing each by `length`, by default its own."""
        length = np.linalg.norm(columns, axis=0) if length is None else length
        length = np.where(length > np.finfo(float).tiny, length, 1.0)
        left, values, right = np.linalg.svd(columns / length, full_matrices=False)
        keep = values > tolerance * max(values[0], 1.0)
        return cls(left[:, keep], (right[keep] / values[keep, None]).T / length[:, None])

    def solve(self, target: Float[np.ndarray, "rows"]) -> Float[np.ndarray, "p"]:
        """Least-squares coefficients of the columns."""
        return self.inverse @ (self.basis.T @ target)

    def remove(self, columns: Float[np.ndarray, "rows *p"]) -> Float[np.ndarray, "rows *p"]:
        """What is left of other columns when their part in the span is taken away."""
        return columns - self.basis @ (self.basis.T @ columns)


@dataclass(frozen=True, eq=False)
class OutputErrorFit:
    """The best simulation for one choice of A and C, in normalized units."""

    A: Float[np.ndarray, "nx nx"]  # state matrix, discrete time
    B: Float[np.ndarray, "nx nu"]  # input matrix
    C: Float[np.ndarray, "ny nx"]  # output matrix
    D: Float[np.ndarray, "ny nu"]  # feedthrough
    x0: Float[np.ndarray, "records nx"]  # initial state of each record, shape (records, nx)
    residual: Float[np.ndarray, "rows"]  # measured minus simulated known outputs, over the square root of their count
    starts: tuple[Span, ...]  # per record, the span of what its initial state can do
    span: Span  # the span of what B and D can do beyond that

    @property
    def error(self) -> float:
        """Root mean square of the simulation error."""
        return float(np.linalg.norm(self.residual))


def solve_linear_part(
    A: Float[np.ndarray, "nx nx"],
    C: Float[np.ndarray, "ny nx"],
    signals: Sequence[Signals],
    *,
    feedthrough: bool,
) -> OutputErrorFit:
    """Find B, D and the initial states that simulate best with given A and C (linear least squares)."""
    nx, (ny, nu) = len(A), (len(C), signals[0].u.shape[1])
    regressors, starts = zip(*(_regressors(A, C, s, feedthrough=feedthrough) for s in signals), strict=True)
    targets = [s.y.T[_known(s)] for s in signals]
    scale = 1.0 / np.sqrt(sum(map(len, targets)))
    span = Span.of(np.concatenate([q.remove(f) for q, f in zip(starts, regressors, strict=True)]))
    reduced = np.concatenate([q.remove(y) for q, y in zip(starts, targets, strict=True)])
    theta = span.solve(reduced)
    x0 = [q.solve(y - f @ theta) for q, y, f in zip(starts, targets, regressors, strict=True)]
    B = theta[: nx * nu].reshape(nx, nu)
    D = theta[nx * nu :].reshape(ny, nu) if feedthrough else np.zeros((ny, nu))
    return OutputErrorFit(A, B, C, D, np.stack(x0), scale * span.remove(reduced), starts, span)


def refine(
    A: Float[np.ndarray, "nx nx"],
    C: Float[np.ndarray, "ny nx"],
    signals: Sequence[Signals],
    *,
    feedthrough: bool,
    effort: Effort = THOROUGH,
) -> OutputErrorFit:
    """Search for the stable model of least simulation error near a start."""
    chart = Chart.at(A, C)
    fit = solve_linear_part(chart.A, chart.C, signals, feedthrough=feedthrough)
    for _ in range(effort.searches):
        if fit.error < EXACT:
            break
        search = _Search(chart, signals, feedthrough)
        found = least_squares(
            search.residual,
            np.zeros(len(chart.directions)),
            search.jacobian,
            method="lm",
            x_scale="jac",
            ftol=STEP_TOLERANCE,
            max_nfev=effort.steps,
        )
        better = search.fit(found.x)
        if not better.error < fit.error:
            break
        gain, fit = 1.0 - better.error / fit.error, better
        chart = Chart.around(np.concatenate([fit.A, fit.C]))
        if gain < GAIN_TOLERANCE:
            break
    return fit


@dataclass(frozen=True, eq=False)
class Chart:
    """Local coordinates of the stable pairs (A, C): `[A; C] = R(theta) [A0; C0]` with a rotation R.

    `R = (I - S)^-1 (I + S)`, the Cayley transform of the skew matrix `S = sum_k theta_k S_k`.

    Args:
        stacked: output normal `[A0; C0]`, orthonormal columns, shape (nx + ny, nx).
        directions: the S_k, shape (nx ny, nx + ny, nx + ny).
    """

    stacked: Float[np.ndarray, "nx_ny nx"]
    directions: Float[np.ndarray, "K nx_ny nx_ny"]

    @classmethod
    def at(cls, A: Float[np.ndarray, "nx nx"], C: Float[np.ndarray, "ny nx"]) -> Chart:
        """Coordinates around a stable pair, in a basis where its observability Gramian is the identity."""
        to_normal, from_normal = output_normal_basis(A, C)
        return cls.around(np.concatenate([to_normal @ A @ from_normal, C @ from_normal]))

    @classmethod
    def around(cls, stacked: Float[np.ndarray, "nx_ny nx"]) -> Chart:
        """Coordinates around an output normal pair; its rounding errors are taken away."""
        left, _, right = np.linalg.svd(stacked, full_matrices=False)
        return cls(left @ right, _directions(left @ right))

    @property
    def A(self) -> Float[np.ndarray, "nx nx"]:
        """State matrix at the origin."""
        return self.stacked[: self.stacked.shape[1]]

    @property
    def C(self) -> Float[np.ndarray, "ny nx"]:
        """Output matrix at the origin."""
        return self.stacked[self.stacked.shape[1] :]

    def pair(self, theta: Float[np.ndarray, "K"]) -> Float[np.ndarray, "nx_ny nx"]:
        """A and C, stacked, at a point."""
        _, rotation = self._rotation(theta)
        return rotation @ self.stacked

    def slopes(self, theta: Float[np.ndarray, "K"]) -> Float[np.ndarray, "K nx_ny nx"]:
        """Derivatives of A and C, stacked, at a point: `dR = (I - S)^-1 S_k (I + R)`."""
        inverse, rotation = self._rotation(theta)
        return inverse @ self.directions @ (self.stacked + rotation @ self.stacked)

    def _rotation(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        skew = np.einsum("k,kij->ij", theta, self.directions)
        identity = np.eye(len(skew))
        inverse = np.linalg.inv(identity - skew)
        return inverse, inverse @ (identity + skew)


class _Search:
    """Residual and Jacobian as functions of the local coordinates, as `least_squares` wants them."""

    def __init__(self, chart: Chart, signals: Sequence[Signals], feedthrough: bool) -> None:
        self._chart, self._signals, self._feedthrough = chart, signals, feedthrough
        self._last: tuple[bytes, OutputErrorFit] | None = None  # the Jacobian is asked for where the error just was

    def fit(self, theta: Float[np.ndarray, "K"]) -> OutputErrorFit:
        if self._last is None or self._last[0] != theta.tobytes():
            stacked = self._chart.pair(theta)
            A, C = np.split(stacked, [stacked.shape[1]])
            self._last = (
                theta.tobytes(),
                solve_linear_part(A, C, self._signals, feedthrough=self._feedthrough),
            )
        return self._last[1]

    def residual(self, theta: Float[np.ndarray, "K"]) -> Float[np.ndarray, "rows"]:
        return self.fit(theta).residual

    def jacobian(self, theta: Float[np.ndarray, "K"]) -> Float[np.ndarray, "rows K"]:
        fit, slopes = self.fit(theta), self._chart.slopes(theta)
        parts = [
            start.remove(_sensitivity(fit, slopes, x0, s))
            for start, x0, s in zip(fit.starts, fit.x0, self._signals, strict=True)
        ]
        return -fit.span.remove(np.concatenate(parts)) / np.sqrt(len(fit.residual))


def _known(signal: Signals) -> Bool[np.ndarray, "ny N"]:
    return ~np.isnan(signal.y.T)


def _regressors(A: np.ndarray, C: np.ndarray, signal: Signals, *, feedthrough: bool) -> tuple[np.ndarray, Span]:
    """Responses of the outputs to each entry of B and D, and the span of those to each initial state.

    The response of output o to input j entering at state i is state i of the transposed system with input
    matrix C_o: one recursion gives all i at once.
    """
    nx, ny, (samples, nu) = len(A), len(C), signal.u.shape
    drive = np.zeros((nx, ny, nu + 1, samples))
    drive[:, :, :nu] = C.T[:, :, None, None] * signal.u.T
    x0 = np.zeros((nx, ny, nu + 1))
    x0[:, :, nu] = C.T
    dual = filter_states(A.T, drive.reshape(nx, -1, samples), x0.reshape(nx, -1)).reshape(drive.shape)
    by_output = dual.transpose(1, 3, 0, 2)  # (ny, N, nx, nu + 1)
    columns = [by_output[..., :nu].reshape(ny, samples, nx * nu)]
    if feedthrough:
        columns.append(np.einsum("op,tj->otpj", np.eye(ny), signal.u).reshape(ny, samples, ny * nu))
    known = _known(signal)
    return np.concatenate(columns, axis=2)[known], _start_span(by_output[..., nu], known)


def _start_span(free: Float[np.ndarray, "ny N nx"], known: Bool[np.ndarray, "ny N"]) -> Span:
    """The span of what an initial state does to the known outputs, judged by what it does to all of them."""
    tolerance = REGRESSOR_TOLERANCE if known[:, 0].any() else FADED
    return Span.of(free[known], length=np.linalg.norm(free, axis=(0, 1)), tolerance=tolerance)


def _sensitivity(fit: OutputErrorFit, slopes: np.ndarray, x0: np.ndarray, signal: Signals) -> np.ndarray:
    """Derivative of the simulated outputs along each direction (dA, dC), with B, D and x0 held."""
    nx = len(fit.A)
    x = filter_states(fit.A, (fit.B @ signal.u.T)[:, None, :], x0[:, None])[:, 0]  # (nx, N)
    drive = np.einsum("kij,jt->ikt", slopes[:, :nx], x)
    dx = filter_states(fit.A, drive, np.zeros(drive.shape[:2]))
    dy = np.einsum("oi,ikt->otk", fit.C, dx) + np.einsum("koj,jt->otk", slopes[:, nx:], x)
    return dy[_known(signal)]


def output_normal_basis(
    A: Float[np.ndarray, "n n"], C: Float[np.ndarray, "ny n"]
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"]]:
    """The change of states that makes the observability Gramian the identity, and its inverse."""
    values, vectors = np.linalg.eigh(gramian(A.T, C.T))
    root = np.sqrt(np.maximum(values, 1e-15 * values[-1]))
    return root[:, None] * vectors.T, vectors / root


def gramian(A: Float[np.ndarray, "n n"], B: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n n"]:
    """Gramian P of `P = A P A' + B B'`, symmetric."""
    with warnings.catch_warnings():
        # Poles close to the unit circle make the equation ill-conditioned; callers floor the eigenvalues.
        warnings.simplefilter("ignore", LinAlgWarning)
        solution = solve_discrete_lyapunov(A, B @ B.T)
    return (solution + solution.T) / 2


def _directions(stacked: np.ndarray) -> np.ndarray:
    """Skew matrices that move [A; C] at right angles to all rotations of the states: `nx ny` of them."""
    size, nx = stacked.shape
    skew = _skew_basis(size)
    moves = (skew @ stacked).reshape(len(skew), -1)
    A, C = stacked[:nx], stacked[nx:]
    turns = np.array([np.concatenate([A @ k - k @ A, C @ k]).ravel() for k in _skew_basis(nx)])
    if len(turns):
        moves = Span.of(turns.T).remove(moves.T).T
    left = np.linalg.svd(moves)[0][:, : nx * (size - nx)]
    return np.tensordot(left.T, skew, axes=1)


def _skew_basis(size: int) -> np.ndarray:
    rows, columns = np.triu_indices(size, 1)
    basis = np.zeros((len(rows), size, size))
    basis[np.arange(len(rows)), rows, columns] = 1.0
    return basis - basis.transpose(0, 2, 1)
