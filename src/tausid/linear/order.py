"""How many states data need: the error of linear models on held-out samples, by their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tausid.data.records import Records, as_records
from tausid.display import html_table
from tausid.errors import DataError
from tausid.linear._estimate import FIT_SHARE, best_order, check_records, normalized, order_errors
from tausid.linear.tau_estimation import linear_records


@dataclass(frozen=True)
class OrderEstimate:
    """Errors of linear models on held-out samples by their number of states.

    Args:
        errors: RMSE of the free run over the last samples of each record by order, all outputs together, as a share of
            their standard deviation.
        order: the smallest one within 3 % of the best.
    """

    errors: Mapping[int, float]
    order: int

    def _repr_html_(self) -> str:
        return html_table(f"{self.order} states", sorted(self.errors.items()), header=("states", "held-out error"))


def estimate_order(records: Records, *, hold: str = "zero", feedthrough: bool = True) -> OrderEstimate:
    """Estimate how many states data need, by linear models of one to eight states.

    Each is fitted to the first 70 % of the first 5000 samples of each record and simulated freely over the rest.
    A plant that is nonlinear may need more, or fewer: `fit` compares structures by itself.

    Args:
        records: one record or several, with an input; resampled onto one clock where they have none.
        hold: what u does between samples, `zero` or `first`.
        feedthrough: whether outputs may depend on inputs at once.

    Returns:
        The errors by order, and the order they speak for.

    Raises:
        ConfigError: `hold` is unknown.
        DataError: no input, or too few samples.
    """
    several = check_records(linear_records(as_records(records), hold=hold), "auto", hold, feedthrough)
    errors = order_errors(normalized(several)[1], feedthrough)
    if not errors:
        raise DataError(
            f"records must have enough known outputs in their first {FIT_SHARE:.0%} to compare orders; they have not. "
            "Give longer ones."
        )
    return OrderEstimate(errors, best_order(errors))
