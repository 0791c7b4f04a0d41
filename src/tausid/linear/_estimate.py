"""The best linear approximation of a record: order, estimate, conversion, basis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tausid.checks import check_choice
from tausid.data.records import Record, Records, as_records, check_same_channels
from tausid.data.scaling import Scaling
from tausid.engine.recursion import simulate_states
from tausid.errors import ConfigError, DataError
from tausid.linear._convert import HOLDS, lacks_counterpart, state_offset, to_continuous
from tausid.linear._model import LinearModel, check_clock
from tausid.linear._output_error import (
    EXACT,
    QUICK,
    THOROUGH,
    Effort,
    OutputErrorFit,
    gramian,
    output_normal_basis,
    refine,
    solve_linear_part,
)
from tausid.linear._subspace import (
    Signals,
    Subspace,
    decompose,
    keep_modes,
    longest_horizon,
    move_inside,
    slow_poles,
    spread_poles,
)

# Orders that `nx="auto"` tries, the smallest first.
MAX_AUTO_ORDER = 8
# "auto" takes the smallest order whose held-out error is within this share of the best one.
PARSIMONY = 0.03
# Share of the known samples of each output, the first ones, that "auto" fits on; the rest is held out.
FIT_SHARE = 0.7
# Samples of each record from its first known output on that "auto" looks at: the order shows in these, too.
AUTO_SAMPLES = 5_000
# "auto" stops when this many orders in a row have not improved on the best.
PATIENCE = 3
# Block rows of the subspace method that are tried for a start.
HORIZONS = (10, 20)
# Grid over which a first-order model without a usable pole looks for a positive one.
POSITIVE_POLES = 30
# Held-out errors below this are rounding, in normalized units.
NO_ERROR = 1e-9
# Hankel singular values below this share of the largest belong to states that the records do not show.
HANKEL_TOLERANCE = 1e-12
# Poles come no closer to the unit circle than this over the record's length: there they are integrators.
CIRCLE_MARGIN = 1e-3

Start: TypeAlias = tuple[np.ndarray, np.ndarray, tuple[str, ...]]  # A, C, notes


def estimate_bla(
    records: Records, *, nx: int | str = "auto", hold: str = "zero", feedthrough: bool = True, quick: bool = False
) -> LinearModel:
    """Estimate the best linear approximation: the stable linear model that simulates the records best.

    Least squares of the simulation (output) error in z-scored units, over A, B, C, D and one initial state
    per record. Poles start from a subspace method and are refined by Levenberg-Marquardt; B, D and the
    initial states are eliminated in every step, being linear. Missing outputs are skipped.

    The states are balanced (equal, diagonal discrete-time Gramians, the most important state first), then
    scaled to a mean square of one over the records; the sign makes the largest entry of each column of C
    positive. A discrete pole at zero or on the negative real axis has no real continuous-time counterpart:
    its mode is removed, the rest fitted anew, and `notes` says so.

    Args:
        records: one record or several; uniformly sampled, one sampling time.
        nx: order; `"auto"` takes the smallest one that simulates held-out samples nearly as well as the best.
        hold: what u does between samples, `zero` or `first`.
        feedthrough: whether D is estimated; else it is zero.
        quick: whether a rough estimate will do, from one start and with fewer steps, such as for what is trained on.

    Returns:
        The model. Its order can be below `nx` if `notes` says why.

    Raises:
        ConfigError: `nx` is not a positive integer or "auto", or `hold` is unknown, or D = 0 with `first`.
        DataError: no or constant input, unequal clocks or channels, a record too short for the order, too few
            known outputs for it, an order larger than the data can carry, or outputs without dynamics.

    Example:
        >>> from scipy.signal import lfilter
        >>> from tausid import Record
        >>> u = np.sign(np.sin(np.arange(200.0) ** 1.5))
        >>> y = lfilter([0.0, 0.1], [1.0, -0.9], u)
        >>> estimate_bla(Record.from_arrays(u, y, ts=1.0), nx=1).poles.round(4)  # log(0.9)
        array([-0.1054+0.j])
    """
    several = check_records(records, nx, hold, feedthrough)
    scaling, signals = normalized(several)
    order = _choose_order(signals, feedthrough) if nx == "auto" else int(nx)
    _check_length(signals, order)
    _check_known(signals, order, feedthrough)
    fit, notes = _fit_order(signals, order, feedthrough, QUICK if quick else THOROUGH, _subspaces(signals, order))
    return _assemble(fit, signals, several, scaling=scaling, hold=hold, notes=notes)


def normalized(records: Sequence[Record]) -> tuple[Scaling, list[Signals]]:
    """Inputs and outputs of records, z-scored."""
    scaling = Scaling.from_records(records)
    return scaling, [Signals(scaling.normalize_u(r.u), scaling.normalize_y(r.y)) for r in records]


def check_records(records: Records, nx: int | str, hold: str, feedthrough: bool) -> tuple[Record, ...]:
    several = as_records(records)
    check_choice("hold", hold, HOLDS)
    if nx != "auto" and (isinstance(nx, bool) or not isinstance(nx, int | np.integer) or nx < 1):
        raise ConfigError(f'`nx` must be a positive integer or "auto"; got {nx!r}. Give the number of states.')
    if hold == "first" and not feedthrough:
        raise ConfigError(
            'a first-order hold needs `feedthrough=True`, as its discrete form has one; got False. Use hold="zero".'
        )
    if several[0].nu < 1:
        raise DataError(
            f"record {several[0].name!r} must have at least one input for a linear approximation; got none. "
            "Name an input."
        )
    check_same_channels(several)
    for record in several:
        check_clock(record, several[0].ts)
    return several


def _choose_order(signals: Sequence[Signals], feedthrough: bool) -> int:
    """The smallest order within `PARSIMONY` of the best free run over held-out samples; one if too few are known."""
    return best_order(order_errors(signals, feedthrough, PATIENCE))


def best_order(errors: Mapping[int, float]) -> int:
    """The smallest order whose error is within `PARSIMONY` of the lowest one."""
    lowest = min(errors.values(), default=0.0)
    return min((n for n, error in errors.items() if error <= (1.0 + PARSIMONY) * lowest + NO_ERROR), default=1)


def order_errors(signals: Sequence[Signals], feedthrough: bool, patience: int = MAX_AUTO_ORDER) -> dict[int, float]:
    """Errors of free runs over held-out samples by order, normalized; none if too few samples are known."""
    _check_length(signals, 1)
    parts, held_out = zip(*(_split(s) for s in signals), strict=True)
    if longest_horizon(parts) < _least_horizon(parts, 1):
        return {}
    errors: dict[int, float] = {}
    subspaces = _subspaces(parts, 1)
    for order in range(1, min(MAX_AUTO_ORDER, _largest_order(parts, subspaces, feedthrough)) + 1):
        fit, _ = _fit_order(parts, order, feedthrough, QUICK, subspaces)
        error = _held_out_error(fit, held_out)
        errors[len(fit.A)] = min(error, errors.get(len(fit.A), np.inf))
        best = min(errors, key=errors.__getitem__)
        if order - best >= patience:
            break
    return errors


def _split(signal: Signals) -> tuple[Signals, Signals]:
    """What "auto" fits on, up to its last known output, and all inputs with the outputs that are held out."""
    first = int(np.argmax((~np.isnan(signal.y)).any(axis=1)))
    u, y = signal.u[first : first + AUTO_SAMPLES], signal.y[first : first + AUTO_SAMPLES]
    known = ~np.isnan(y)
    to_fit = known & (np.cumsum(known, axis=0) <= np.maximum(np.floor(FIT_SHARE * known.sum(axis=0)), 1))
    stop = int(np.flatnonzero(to_fit.any(axis=1))[-1]) + 1
    return Signals(u[:stop], np.where(to_fit, y, np.nan)[:stop]), Signals(u, np.where(to_fit, np.nan, y))


def _held_out_error(fit: OutputErrorFit, held_out: Sequence[Signals]) -> float:
    """Error over the held-out outputs, of a free run that starts at each record's first known sample."""
    gaps = [(s.y - _simulate(fit, s, x0)).ravel() for s, x0 in zip(held_out, fit.x0, strict=True)]
    together = np.concatenate(gaps)
    known = together[~np.isnan(together)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else fit.error


def _simulate(fit: OutputErrorFit, signal: Signals, x0: np.ndarray) -> np.ndarray:
    return simulate_states(fit.A, fit.B, signal.u, x0) @ fit.C.T + signal.u @ fit.D.T


def _largest_order(signals: Sequence[Signals], subspaces: Sequence[Subspace], feedthrough: bool) -> int:
    """The most states that the data can carry, the shift of the observability matrix can show, and outputs fix."""
    most = min((longest_horizon(signals) - 1) * signals[0].y.shape[1], _carried(subspaces))
    fixed = [n for n in range(1, most + 1) if _parameters(signals, n, feedthrough) <= _known_outputs(signals)]
    return max(fixed, default=1)


def _parameters(signals: Sequence[Signals], order: int, feedthrough: bool) -> int:
    """Free numbers of a model: poles and C, B, D, and one initial state per record."""
    nu, ny = signals[0].u.shape[1], signals[0].y.shape[1]
    return order * (ny + nu + len(signals)) + feedthrough * ny * nu


def _known_outputs(signals: Sequence[Signals]) -> int:
    return sum(int(np.sum(~np.isnan(s.y))) for s in signals)


def _carried(subspaces: Sequence[Subspace]) -> int:
    """The most states that the data can carry; one always can be tried."""
    return max(1, *(s.rank for s in subspaces))


def _least_horizon(signals: Sequence[Signals], order: int) -> int:
    return -(-order // signals[0].y.shape[1]) + 1


def _check_length(signals: Sequence[Signals], order: int) -> None:
    least = _least_horizon(signals, order)
    if longest_horizon(signals) < least:
        needed = 2 * least * (signals[0].u.shape[1] + signals[0].y.shape[1] + 1) - 1
        raise DataError(
            f"records must be long enough for the order: nx = {order} needs at least {needed} samples in one "
            f"record, or more in several; got {', '.join(str(len(s.u)) for s in signals)}. {_remedy(order)}"
        )


def _check_known(signals: Sequence[Signals], order: int, feedthrough: bool) -> None:
    needed, known = _parameters(signals, order, feedthrough), _known_outputs(signals)
    if known < needed:
        raise DataError(
            f"outputs must be known often enough for the order: nx = {order} has {needed} free parameters; got "
            f"{known} known values, the others are missing (NaN). {_remedy(order)}"
        )


def _remedy(order: int) -> str:
    return "Measure longer, or lower `nx`." if order > 1 else "Measure longer."


def _subspaces(signals: Sequence[Signals], order: int) -> list[Subspace]:
    """Subspaces over the horizons that the records are long enough for and the order fits into."""
    least, most = _least_horizon(signals, order), longest_horizon(signals)
    return [decompose(signals, h) for h in sorted({int(np.clip(h, least, most)) for h in HORIZONS})]


def _fit_order(
    signals: Sequence[Signals],
    order: int,
    feedthrough: bool,
    effort: Effort,
    subspaces: Sequence[Subspace],
) -> tuple[OutputErrorFit, tuple[str, ...]]:
    """The best fit of an order, or of fewer states where the order has no continuous-time form."""
    carried = _carried(subspaces)
    if order > carried:
        raise DataError(
            f"`nx` must not be larger than the data can carry; got {order}, the singular values of the "
            f'records show {carried}. Lower `nx`, use "auto", or excite the system with more frequencies.'
        )
    starts = _most_promising(_starts(signals, subspaces, order), signals, feedthrough, effort)
    found = [_refine_representable(start, signals, feedthrough, effort) for start in starts]
    best = min(found, key=lambda fit_and_notes: max(fit_and_notes[0].error, EXACT))
    return _slowest(signals, order, feedthrough) or best if best[0].error < NO_ERROR else best


def _slowest(
    signals: Sequence[Signals], order: int, feedthrough: bool
) -> tuple[OutputErrorFit, tuple[str, ...]] | None:
    """The slowest poles if they, too, leave no error: then the records do not determine the poles.

    The steady state of a sine is explained by any poles. Fast ones would follow the steps of the hold.
    """
    A, C = slow_poles(order, signals[0].y.shape[1], max(len(s.u) for s in signals))
    fit = solve_linear_part(A, C, signals, feedthrough=feedthrough)
    if fit.error > NO_ERROR or _without_bad_modes(fit) is not None:
        return None
    return fit, ("the records do not determine the poles: the slowest that explain them are taken",)


def _refine_representable(
    start: Start, signals: Sequence[Signals], feedthrough: bool, effort: Effort
) -> tuple[OutputErrorFit, tuple[str, ...]]:
    """Refine a start; remove modes and refine again until the fit has a continuous-time form."""
    A, C, notes = start
    while True:
        fit = refine(A, C, signals, feedthrough=feedthrough, effort=effort)
        fit, notes = _off_the_circle(fit, signals, feedthrough, notes)
        reduced = _without_bad_modes(fit)
        if reduced is None:
            return fit, notes
        A, C, note = reduced
        notes = (*notes, note)
        if len(A) == 0:
            return _best_positive_pole(signals, feedthrough), notes


def _starts(signals: Sequence[Signals], subspaces: Sequence[Subspace], order: int) -> list[Start]:
    """Stable start values, with a note where a subspace estimate was unstable."""
    radius = _largest_radius(signals)
    A, C = spread_poles(order, signals[0].y.shape[1], max(len(s.u) for s in signals))
    starts: list[Start] = [(A, C, ())]
    for subspace in subspaces:
        if len(subspace.values) < order or subspace.values[order - 1] == 0:
            continue
        A, C = subspace.poles_and_outputs(order)
        poles = np.linalg.eigvals(A)
        outside = poles[np.abs(poles) >= 1.0]
        note = f"unstable start, discrete pole {_text(outside)}: moved inside the unit circle and refined"
        starts.append((move_inside(A, radius), C, (note,) if len(outside) else ()))
    return starts


def _most_promising(
    starts: Sequence[Start], signals: Sequence[Signals], feedthrough: bool, effort: Effort
) -> list[Start]:
    """The starts with the least error before any refinement."""
    errors = [max(solve_linear_part(A, C, signals, feedthrough=feedthrough).error, EXACT) for A, C, _ in starts]
    return [starts[i] for i in np.argsort(errors, kind="stable")[: effort.starts]]


def _without_bad_modes(fit: OutputErrorFit) -> tuple[np.ndarray, np.ndarray, str] | None:
    """A and C without the modes that have no continuous-time form, and why; None if all have one."""
    poles = np.linalg.eigvals(fit.A)
    bad = lacks_counterpart(poles)
    if bad.any():
        fate = "replaced by a positive one" if bad.all() else "mode removed, the rest refitted"
        why = f"discrete pole {_text(poles[bad])} has no continuous-time counterpart: {fate}"
        return *keep_modes(fit.A, fit.C, ~bad), why
    T, inverse, hankel = _balance(fit)
    kept = int(np.sum(hankel > HANKEL_TOLERANCE * hankel[0]))
    if kept == len(poles):
        return None
    why = f"{len(poles) - kept} of {len(poles)} states not moved by the input: removed, the rest refitted"
    return (T @ fit.A @ inverse)[:kept, :kept], (fit.C @ inverse)[:, :kept], why


def _best_positive_pole(signals: Sequence[Signals], feedthrough: bool) -> OutputErrorFit:
    """The best first-order fit over a log grid of positive poles."""
    constants = np.geomspace(1.0, max(len(s.u) for s in signals) / 5.0, POSITIVE_POLES)  # in samples
    C = np.ones((signals[0].y.shape[1], 1))
    fits = [solve_linear_part(np.exp([[-1.0 / c]]), C, signals, feedthrough=feedthrough) for c in constants]
    return min(fits, key=lambda fit: fit.error)


def _off_the_circle(
    fit: OutputErrorFit, signals: Sequence[Signals], feedthrough: bool, notes: tuple[str, ...]
) -> tuple[OutputErrorFit, tuple[str, ...]]:
    """Move poles that the search drove onto the unit circle a little inside, so that Gramians exist."""
    radius = _largest_radius(signals)
    poles = np.linalg.eigvals(fit.A)
    on_circle = poles[np.abs(poles) > radius]
    if not len(on_circle):
        return fit, notes
    moved = solve_linear_part(move_inside(fit.A, radius), fit.C, signals, feedthrough=feedthrough)
    return moved, (
        *notes,
        f"discrete pole {_text(on_circle)} on the unit circle: moved to modulus {radius:.9f}",
    )


def _largest_radius(signals: Sequence[Signals]) -> float:
    return 1.0 - CIRCLE_MARGIN / max(len(s.u) for s in signals)


def _balance(fit: OutputErrorFit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Balancing up to the scale of each state: T, its inverse, and the Hankel singular values, descending.

    In output normal coordinates the observability Gramian is the identity and rotations keep it so; the
    rotation that makes the other Gramian diagonal leaves only the scale of each state open.
    """
    T, inverse = output_normal_basis(fit.A, fit.C)
    values, vectors = np.linalg.eigh(gramian(T @ fit.A @ inverse, T @ fit.B))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    return vectors.T @ T, inverse @ vectors, np.sqrt(values)


def _assemble(
    fit: OutputErrorFit,
    signals: Sequence[Signals],
    records: Sequence[Record],
    *,
    scaling: Scaling,
    hold: str,
    notes: tuple[str, ...],
) -> LinearModel:
    """The model in its stated basis: balanced, mean square one, signs fixed by C."""
    ts = records[0].ts
    T, inverse, _ = _balance(fit)
    Ad, Bd, Cd = T @ fit.A @ inverse, T @ fit.B, fit.C @ inverse
    A, B, C, D = to_continuous(Ad, Bd, Cd, fit.D, ts=ts, hold=hold)
    first = np.stack([s.u[0] for s in signals])
    x0 = fit.x0 @ T.T + first @ state_offset(A, B, ts=ts, hold=hold).T
    gaps = [(s.y - _simulate(fit, s, x)) * scaling.y_std for s, x in zip(signals, fit.x0, strict=True)]
    rmse = np.sqrt(np.nanmean(np.concatenate(gaps) ** 2, axis=0))
    model = LinearModel(A, B, C, D, Ad, Bd, Cd, fit.D, ts, hold, scaling, x0, rmse, notes)
    states = np.concatenate([model.simulate_states(r, x)[0] for r, x in zip(records, x0, strict=True)])
    size = np.sqrt(np.mean(states**2, axis=0))
    if np.max(np.abs(C) * size) < NO_ERROR:
        raise DataError(
            "records must show dynamics; the outputs follow the inputs at once and no state moves. "
            "Sample faster, or use a static model."
        )
    largest = np.abs(C).argmax(axis=0)
    return model.in_basis(np.diag(np.sign(C[largest, np.arange(len(A))]) / size))


def _text(poles: np.ndarray) -> str:
    return ", ".join(f"{p.real:.4g}" if abs(p.imag) < 1e-12 else f"{complex(p):.4g}" for p in poles)
