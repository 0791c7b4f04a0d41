"""Physical and normalized units, and the only bridge between the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.data.lines import find_lines, fit_lines
from tausid.data.records import Record, Records, as_records, check_same_channels
from tausid.errors import DataError
from tausid.shapes import Float

# A channel that moves by less than so many steps between neighbouring numbers of its size carries no signal.
LEAST_MOVE = 8.0


@dataclass(frozen=True, eq=False)
class Scaling:
    """Z-score of inputs and outputs: `normalized = (physical - mean) / deviation`.

    Where all inputs consist of a few sines, the mean is what the sines go around (`data/lines.py`).

    Args:
        u_mean: mean of each input, shape (nu,).
        u_std: standard deviation of each input, shape (nu,).
        y_mean: mean of each output, shape (ny,).
        y_std: standard deviation of each output, shape (ny,).
    """

    u_mean: Float[np.ndarray, "nu"]
    u_std: Float[np.ndarray, "nu"]
    y_mean: Float[np.ndarray, "ny"]
    y_std: Float[np.ndarray, "ny"]

    @classmethod
    def from_records(cls, records: Records) -> Scaling:
        """Compute means and deviations over training records, pooled; missing outputs are left out.

        Args:
            records: the training records, and only those.

        Raises:
            DataError: a channel is constant, named in the message.

        Example:
            >>> from tausid import Record
            >>> Scaling.from_records(Record.from_arrays([0.0, 2.0], [1.0, 5.0], ts=1.0)).y_std
            array([2.])
        """
        several = as_records(records)
        check_same_channels(several)
        u_mean, u_std = _mean_and_deviation([record.u for record in several])
        y_mean, y_std = _mean_and_deviation([record.y for record in several])
        u_mean, y_mean = _centres(several) or (u_mean, y_mean)
        scaling = cls(u_mean, u_std, y_mean, y_std)
        _check_not_constant("input", several[0].input_names, [record.u for record in several], u_std)
        _check_not_constant("output", several[0].output_names, [record.y for record in several], y_std)
        return scaling

    def normalize_u(self, u: Float[np.ndarray, "*N nu"]) -> Float[np.ndarray, "*N nu"]:
        """Inputs from physical to normalized units; u: channels last."""
        return (u - self.u_mean) / self.u_std

    def normalize_y(self, y: Float[np.ndarray, "*N ny"]) -> Float[np.ndarray, "*N ny"]:
        """Outputs from physical to normalized units; y: channels last."""
        return (y - self.y_mean) / self.y_std

    def physical_y(self, y: Float[np.ndarray, "*N ny"]) -> Float[np.ndarray, "*N ny"]:
        """Outputs from normalized to physical units; y: channels last."""
        return y * self.y_std + self.y_mean


def _centres(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray] | None:
    """What inputs of a few sines, and outputs at their frequencies, go around; over broken periods no mean."""
    inputs = [find_lines(record.u) if record.nu else None for record in records]
    found = [lines for lines in inputs if lines is not None]
    if len(found) < len(records) or any(np.isnan(record.y).all(axis=0).any() for record in records):
        return None
    outputs = [fit_lines(lines.angles, record.y) for lines, record in zip(found, records, strict=True)]
    u, y = (np.array([lines.constant for lines in several]) for several in (found, outputs))
    weights = [len(record) for record in records]
    return np.average(u, axis=0, weights=weights), np.average(y, axis=0, weights=weights)


def _mean_and_deviation(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Over all parts; what ignores missing samples takes more memory, and is for arrays that have some."""
    values = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if np.isnan(values).any():
        return np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    return values.mean(axis=0), values.std(axis=0)


def _check_not_constant(kind: str, names: tuple[str, ...], parts: list[np.ndarray], std: np.ndarray) -> None:
    """Each channel moves, whatever its offset: judged by its range, and not by a deviation that rounding decides."""
    low = np.min([np.fmin.reduce(part) for part in parts], axis=0)
    high = np.max([np.fmax.reduce(part) for part in parts], axis=0)
    for name, a, b, s in zip(names, low, high, std, strict=True):
        if not (s > 0 and b - a > LEAST_MOVE * np.spacing(max(abs(a), abs(b)))):
            raise DataError(
                f"{kind} {name!r} must vary over the training data; it is constant at {a:g}. "
                "Leave the channel out, or excite it."
            )
