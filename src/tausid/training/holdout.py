"""Which samples training sees, and which ones are held out to choose the model with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.data.clocks import split_at_gaps
from tausid.data.records import Record, Records, as_records, check_same_channels
from tausid.errors import ConfigError
from tausid.model.structure import Structure
from tausid.shapes import Float
from tausid.training.parts import Adam, Folds, Given, LastShare, PaperTestHalf
from tausid.training.recipe import Recipe
from tausid.training.stretches import SCORED, TRIED, cut_stretches

# Samples of the test record that the paper's early stopping sees.
PAPER_SAMPLES = 512


@dataclass(frozen=True)
class Split:
    """Records by their role in training.

    Args:
        train: what is trained on, and what the scaling is computed from.
        validation: what is simulated freely to choose the best model; may be empty.
    """

    train: tuple[Record, ...]
    validation: tuple[Record, ...]


def split_records(recipe: Recipe, records: Records, *, validation: Records | None, test: Records | None) -> Split:
    """Training and validation records, cut at gaps of their clocks; folds are cut later, by `cut_folds`."""
    train = as_records(records)
    held_out: tuple[Record, ...] = ()
    match recipe.holdout:
        case PaperTestHalf():
            held_out = _paper_half(test)
        case Given():
            assert validation is not None
            held_out = as_records(validation)
        case LastShare(share):
            train, held_out = _cut_ends(train, share, recipe.structure.samples_for_initial_state())
    check_same_channels((*train, *held_out))
    return _without_gaps(Split(train, held_out), recipe)


def cut_folds(split: Split, recipe: Recipe, every: int = 1) -> tuple[Split, ...]:
    """What structures are tried on: one split per fold, or stretches of the training and of the validation records, at
    a lower rate where fewer samples do.

    There is none where nothing is held out. A fold keeps the inputs of what it holds out, so that whole records are
    simulated.
    """
    structure = recipe.structure
    if isinstance(recipe.holdout, Folds):
        count = recipe.holdout.count
        splits = [_fold(split.train, k, count, structure) for k in range(count)]
        if not any(fold.validation for fold in splits):
            raise ConfigError(
                "records must be long enough to hold a part of each out, which chooses the model; none of "
                f"{count} parts has {structure.samples_for_initial_state()} samples for an initial state and measured "
                "outputs to score. Measure longer, give validation records, or set holdout=none."
            )
        return tuple(fold for fold in splits if fold.validation)
    if not split.validation:
        return ()
    least = 2 * structure.samples_for_initial_state()
    return (Split(cut_stretches(split.train, TRIED, every), cut_stretches(split.validation, SCORED, every, least)),)


def stretch(samples: int, k: int, folds: int, kept: int) -> tuple[int, int]:
    """First sample of the k-th stretch of a record, and the first after it.

    Leading samples of the record are `kept`, at most half a stretch of them: without them nothing would be known of its
    initial state.
    """
    start, stop = (round(samples * i / folds) for i in (k, k + 1))
    return max(start, min(kept, samples // (2 * folds))), stop


def _fold(records: Sequence[Record], k: int, count: int, structure: Structure) -> Split:
    """All records without the outputs of their k-th stretch, and these stretches, where they can be scored."""
    train, held_out = [], []
    for record in records:
        start, stop = stretch(len(record), k, count, structure.samples_for_initial_state())
        left = np.delete(~np.isnan(record.y), slice(start, stop), axis=0)
        if left.any(axis=0).all() and can_be_scored(record.y[start:stop], structure):
            held_out.append(record.part(start, stop))
            train.append(_without_outputs(record, start, stop))
        else:
            train.append(record)
    return Split(tuple(train), tuple(held_out))


def can_be_scored(y: Float[np.ndarray, "N ny"], structure: Structure) -> bool:
    """Whether the first outputs of a record show its state, and all of them are measured after that."""
    initial, measured = structure.samples_for_initial_state(), ~np.isnan(y)
    scored = measured[initial:]
    return bool(measured[:initial].any() and len(scored) >= 2 and scored.any(axis=0).all())


def _without_outputs(record: Record, start: int, stop: int) -> Record:
    """The record with missing outputs in a stretch; its inputs stay, so that it is simulated all the same."""
    y = np.array(record.y, float)
    y[start:stop] = np.nan
    return dataclasses.replace(record, y=y)


def _without_gaps(split: Split, recipe: Recipe) -> Split:
    """The same records, cut where their clock has a gap: no window and no free run goes through one."""
    structure, max_gap = recipe.structure, recipe.integration.max_gap
    n_initial = structure.samples_for_initial_state()
    horizon = recipe.trainer.horizon if isinstance(recipe.trainer, Adam) else 2
    least = (2 if structure.initial_state == "free" else n_initial) + (2 if isinstance(horizon, str) else horizon)
    train = [part for r in split.train for part in split_at_gaps(r, least=least, max_gap=max_gap)]
    held_out = [part for r in split.validation for part in split_at_gaps(r, least=n_initial + 2, max_gap=max_gap)]
    return Split(tuple(train), tuple(held_out))


def _paper_half(test: Records | None) -> tuple[Record, ...]:
    if test is None:
        raise ConfigError(
            "protocol 'paper' must have a test record, because its early stopping looks at the test record's first "
            f"{PAPER_SAMPLES} samples; got none. Give one, or use protocol 'clean'."
        )
    first = as_records(test)[0]
    return (first.part(0, min(PAPER_SAMPLES, len(first) // 2)),)


def _cut_ends(
    records: tuple[Record, ...], share: float, n_initial: int
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    cuts = [_find_cut(record, share, n_initial) for record in records]
    train = tuple(record.part(0, cut) for record, cut in zip(records, cuts, strict=True))
    return train, tuple(record.part(cut, len(record)) for record, cut in zip(records, cuts, strict=True))


def _find_cut(record: Record, share: float, n_initial: int) -> int:
    """Where the held-out end begins: with outputs for its initial state, and with others left to score."""
    measured = ~np.isnan(record.y)
    for cut in range(max(2, len(record) - round(share * len(record))), len(record) - n_initial):
        scored = measured[cut + n_initial :].any(axis=0).all()
        begins = n_initial == 0 or measured[cut : cut + n_initial].any(axis=0).all()
        if begins and scored and measured[:cut].any(axis=0).all():
            return cut
    raise ConfigError(
        f"record {record.name!r} must be long enough to hold its last {share:g} out, which chooses the model: with "
        f"{n_initial} samples, every output measured among them, for its initial state, and more to score; it has "
        f"{len(record)} samples, {int((~measured.all(axis=1)).sum())} of them with a missing output. Measure longer, "
        "give validation records, change holdout.share, or set holdout=none."
    )
