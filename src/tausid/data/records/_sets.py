"""Several records: with roles, as a tuple, with the same channels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tausid.data.records._record import Record, Records
from tausid.errors import DataError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with their roles: what to train on, what to validate on, what to score at the end.

    Args:
        train: the training record.
        test: the test record; never seen by the `clean` protocol before the final score.
        validation: a held-out record, if the data come with their own.
        more_tests: further test records, with other excitations.
        name: what to call the dataset.
        score_skip: leading samples that the dataset's official score leaves out; 0 if it has none.
        noise: standard deviation of what the sensors add to each output, where it is known: no model can have a lower
            error; empty where it is not.

    Raises:
        DataError: the records do not have the same channels.
    """

    train: Record
    test: Record
    validation: Record | None = None
    more_tests: tuple[Record, ...] = ()
    name: str = "dataset"
    score_skip: int = 0
    noise: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        held_out = () if self.validation is None else (self.validation,)
        check_same_channels((self.train, *held_out, *self.tests))

    @property
    def tests(self) -> tuple[Record, ...]:
        """All test records, the main one first."""
        return (self.test, *self.more_tests)


def as_records(records: Records) -> tuple[Record, ...]:
    """One record or several, always as a tuple."""
    several = (records,) if isinstance(records, Record) else tuple(records)
    if not several:
        raise DataError("`records` must hold at least one Record; got none. Read one with tausid.read_csv.")
    for item in several:
        if not isinstance(item, Record):
            raise DataError(
                f"`records` must hold only Record objects; got {type(item).__name__}. "
                "Make one with Record.from_arrays or tausid.read_csv."
            )
        if not item.ny:
            raise DataError(f"record {item.name!r} must have at least one output; got none. Name an output.")
    return several


def check_same_channels(records: Iterable[Record]) -> None:
    """Check that all records have the same number of inputs and outputs."""
    first, *rest = records
    for other in rest:
        if (other.nu, other.ny) != (first.nu, first.ny):
            raise DataError(
                f"all records must have the same channels; {first.name!r} has {first.nu} inputs and {first.ny} "
                f"outputs, {other.name!r} has {other.nu} and {other.ny}. Choose the same columns for both."
            )
