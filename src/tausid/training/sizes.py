"""How large a model should be: the smallest one whose held-out simulation error is about the lowest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tausid.data.records import Records
from tausid.errors import ConfigError
from tausid.training.fitting import fit
from tausid.training.result import FitResult


@dataclass(frozen=True)
class SizeRow:
    """One size that was tried.

    Args:
        nx: number of states.
        hidden: widths of the hidden layers.
        parameters: number of trained and fixed parameters.
        error: lowest held-out free-run error, normalized; infinite where no free run stayed finite.
        steps: steps after which it was reached.
    """

    nx: int
    hidden: tuple[int, ...]
    parameters: int
    error: float
    steps: int


@dataclass(frozen=True)
class SizeChoice:
    """The size to take, and what all sizes gave.

    Args:
        nx: number of states.
        hidden: widths of the hidden layers.
        rows: all sizes, in the order they were tried.
    """

    nx: int
    hidden: tuple[int, ...]
    rows: tuple[SizeRow, ...]


def choose_size(
    records: Records,
    *,
    nx: Sequence[int],
    hidden: Sequence[Sequence[int]],
    seed: int,
    tolerance: float = 0.02,
    **settings: Any,
) -> SizeChoice:
    """Fit a model of every size, and choose the smallest of those with the lowest held-out simulation error.

    Args:
        records: training records.
        nx: numbers of states to try.
        hidden: lists of widths of hidden layers to try; `[[8], [16, 16]]` tries one layer of 8 and two of 16.
        seed: seed of all fits.
        tolerance: how much worse than the lowest error, relatively, a smaller model may be.
        **settings: other arguments of `fit`; its validation, or its folds, are what sizes are compared by.

    Returns:
        The choice, with a table of all sizes.

    Raises:
        ConfigError: nothing to try, nothing held out, or no size that simulates.

    Example:
        >>> import tausid
        >>> data = tausid.datasets.simulate_tanks(samples=200, seed=0)
        >>> short = {"folds": 2, "finish_steps": 2, "progress": None}
        >>> tausid.choose_size(data.train, nx=[1], hidden=[[4]], seed=0, **short).hidden
        (4,)
    """
    if not nx or not hidden:
        raise ConfigError(f"`nx` and `hidden` must have a size to try; got {nx!r} and {hidden!r}. Add one.")
    sizes = [(n, tuple(widths)) for n in nx for widths in hidden]
    rows = tuple(_row(fit(records, nx=n, hidden=widths, seed=seed, **settings)) for n, widths in sizes)
    lowest = min(row.error for row in rows)
    if not np.isfinite(lowest):
        raise ConfigError(
            "sizes must be compared by a held-out free run that stays finite; none did, or nothing was held out. "
            "Set validation_fraction or folds, or try a larger tau."
        )
    good = [row for row in rows if row.error <= (1.0 + tolerance) * lowest]
    best = min(good, key=lambda row: row.parameters)
    return SizeChoice(best.nx, best.hidden, rows)


def _row(result: FitResult) -> SizeRow:
    arrays = jax.tree.leaves(eqx.filter(result.model.state_space, eqx.is_inexact_array))
    error, steps = _held_out(result)
    return SizeRow(result.config.order, result.config.hidden, sum(int(np.size(a)) for a in arrays), error, steps)


def _held_out(result: FitResult) -> tuple[float, int]:
    """The lowest held-out error, and after how many steps; folds have one even where they choose none."""
    if result.folds is not None:
        return result.folds.lowest, result.folds.chosen
    tried = [(row.validation, row.step) for row in result.history if np.isfinite(row.validation)]
    return min(tried, default=(float("inf"), 0))
