"""The fit of an ensemble: members that differ in their seed, side by side, each with a folder of its own."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tausid.errors import ConfigError, TausidError
from tausid.model.ensembles import AnyModel, EnsembleModel
from tausid.model.model import Model
from tausid.training.holdout import Split
from tausid.training.interruption import interruptible
from tausid.training.problem import recipe_score
from tausid.training.processes import LocalWorkers, usable_cores
from tausid.training.progress import ProgressUpdate
from tausid.training.result import FitResult

SECONDS_BETWEEN_LOOKS = 0.2
# Numbers of a member's progress in the memory that all processes share, in this order; not a number before the first.
SHARED = ("step", "loss", "validation", "best", "best_step", "recoveries", "steps_per_second")
MOST_MEMBERS = 1000

FitFunction = Callable[..., FitResult]


@dataclass(frozen=True, eq=False)
class Plan:
    """What to train, how many times.

    Args:
        fit: the function that fits one member, of a seed, a folder and a function for its progress.
        options: what it is told beside these, the same for all members.
        seeds: one per member.
        max_steps: most steps of one member, folds and all.
        out: folder of the ensemble, or None.
    """

    fit: FitFunction
    options: Mapping[str, Any]
    seeds: tuple[int, ...]
    max_steps: int
    out: Path | None

    def train(self, number: int, progress: Callable[[ProgressUpdate], None]) -> FitResult:
        """Fit one member."""
        folder = None if self.out is None else member_folder(self.out, number)
        return self.fit(**self.options, seed=self.seeds[number], out=folder, progress=progress)


def member_folder(out: Path, number: int) -> Path:
    """The folder of a member."""
    return out / f"member-{number:02d}"


def check_ensemble(ensemble: object, keep: object, workers: object, *, validated: bool) -> None:
    """Check the numbers of an ensemble."""
    limits = {
        "ensemble": (ensemble, 2, MOST_MEMBERS),
        "keep": (keep, 1, ensemble),
        "workers": (workers, 1, MOST_MEMBERS),
    }
    for name, (value, least, most) in limits.items():
        if value is None:
            continue
        if ensemble is None:
            raise ConfigError(f"`{name}` must come with `ensemble`; got {name}={value!r} alone. Give both or none.")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:  # type: ignore[operator]
            raise ConfigError(f"`{name}` must be a whole number from {least} to {most}; got {value!r}. Correct it.")
    if keep is not None and not validated:
        raise ConfigError(
            f"`keep` must have held-out data to rank the members with; there is none, and keep={keep}. "
            "Give validation records, or another holdout, or keep all."
        )


def train_members(plan: Plan, report: Callable[[ProgressUpdate], None], *, workers: int | None) -> list[FitResult]:
    """Fit all members; Ctrl-C ends those that are at work after their chunk of steps, a second one at once."""
    count = min(workers or usable_cores(), len(plan.seeds))
    board = _Board(get_context("spawn").RawArray("d", [np.nan] * (len(SHARED) * len(plan.seeds))), plan.max_steps)
    with interruptible() as stopped:
        if count == 1:
            return _train_here(plan, board, report, stopped)
        return _train_there(plan, board, report, count, stopped)


def combine(results: Sequence[FitResult], split: Split, *, keep: int | None, interrupted: bool) -> FitResult:
    """One result of the fits of all members: ranked by their held-out errors, the worst left out."""
    scores = np.array([_held_out(result, split) for result in results])
    order = np.lexsort((scores, np.isinf(scores)))  # diverged ones last; equal ones, and those without, as they came
    ranked, scores = [results[i] for i in order], scores[order]
    kept = min(keep or len(ranked), int(np.sum(~np.isinf(scores))) or 1)
    about = [
        {"seed": result.seed, "error": _plain(score), "status": result.status, "kept": rank < kept}
        for rank, (result, score) in enumerate(zip(ranked, scores, strict=True))
    ]
    best = ranked[0]
    ensemble, last = (
        EnsembleModel(tuple(models), tuple(scores[:kept].tolist()), {**best.model.provenance, "members": about})
        for models in ([_single(r.model) for r in ranked[:kept]], [_single(r.last_model) for r in ranked[:kept]])
    )
    status = "interrupted" if interrupted else "diverged" if np.all(np.isinf(scores)) else "completed"
    return dataclasses.replace(
        best,
        model=ensemble,
        last_model=last,
        status=status,
        message=_message(status, len(results), kept, about),
        seconds=sum(result.seconds for result in results),
        members=tuple(ranked),
    )


def join(result: FitResult, members: Sequence[Model]) -> FitResult:
    """The result of a search as that of an ensemble of its members."""
    error = float("nan") if result.trust is None or result.trust.held_out is None else result.trust.held_out
    about = [{"seed": result.seed, "error": _plain(error), "status": "completed", "kept": True} for _ in members]
    provenance = {**result.model.provenance, "members": about}
    named = tuple(dataclasses.replace(member, provenance=result.model.provenance) for member in members)
    ensemble = EnsembleModel(named, (error,) * len(named), provenance)
    many = f"the {len(named)} models that are nearest to the median of all" if len(named) > 1 else "one model only"
    message = f"{result.message} The ensemble has {many}."
    return dataclasses.replace(result, model=ensemble, last_model=ensemble, message=message)


@dataclass(frozen=True, eq=False)
class _Board:
    """The progress of all members, in memory that their processes share."""

    numbers: Any
    max_steps: int
    finished: set[int] = field(default_factory=set)

    def write(self, member: int, update: ProgressUpdate) -> None:
        for i, name in enumerate(SHARED):
            self.numbers[member * len(SHARED) + i] = float(getattr(update, name))

    def read(self, status: str) -> ProgressUpdate | None:
        """All members together: sums of steps and speeds, the mean loss, the best of all; None before the first."""
        table = np.array(self.numbers[:]).reshape(-1, len(SHARED))
        rows = {name: table[~np.isnan(table[:, 0]), i] for i, name in enumerate(SHARED)}
        if not len(rows["step"]):
            return None
        working = [i for i in range(len(table)) if i not in self.finished and not np.isnan(table[i, 0])]
        best = int(np.argmin(rows["best"]))
        steps = [self.max_steps if i in self.finished else np.nan_to_num(table[i, 0]) for i in range(len(table))]
        return ProgressUpdate(
            step=int(np.sum(steps)),
            max_steps=self.max_steps * len(table),
            loss=float(np.mean(rows["loss"])),
            validation=float(rows["validation"][best]),
            best=float(rows["best"][best]),
            best_step=int(rows["best_step"][best]),
            recoveries=int(np.sum(rows["recoveries"])),
            steps_per_second=float(np.nansum(table[working, SHARED.index("steps_per_second")])),
            status=status,
            note=f"{len(self.finished)} of {len(table)} members",
        )


def _train_here(
    plan: Plan, board: _Board, report: Callable[[ProgressUpdate], None], stopped: threading.Event
) -> list[FitResult]:
    results: list[FitResult] = []
    for number in range(len(plan.seeds)):

        def note(update: ProgressUpdate, number: int = number) -> None:
            board.write(number, update)
            _tell(board, report, "running")

        results.append(plan.train(number, note))
        if results[-1].status != "interrupted":
            board.finished.add(number)
        if stopped.is_set():
            break
    _tell(board, report, "interrupted" if stopped.is_set() else "completed")
    return results


def _train_there(
    plan: Plan, board: _Board, report: Callable[[ProgressUpdate], None], count: int, stopped: threading.Event
) -> list[FitResult]:
    stop = get_context("spawn").RawValue("b", 0)
    waiting = list(range(len(plan.seeds)))
    running: dict[Future[FitResult], int] = {}
    results: dict[int, FitResult] = {}
    died: set[int] = set()
    with LocalWorkers(count, initializer=_begin_worker, initargs=(board.numbers, stop)) as pool:
        while (waiting and not stopped.is_set()) or running:
            while waiting and len(running) < count and not stopped.is_set():
                number = waiting.pop(0)
                running[pool.submit(_work, plan, number)] = number
            stop.value = int(stopped.is_set())
            time.sleep(SECONDS_BETWEEN_LOOKS)
            for future in [future for future in running if future.done()]:
                number = running.pop(future)
                if isinstance(future.exception(), BrokenExecutor):
                    _note_death(number, died)
                    waiting.insert(0, number)
                    continue
                results[number] = future.result()
                board.finished.add(number)
            _tell(board, report, "running")
    _tell(board, report, "interrupted" if stopped.is_set() else "completed")
    return [results[number] for number in sorted(results)]


def _note_death(number: int, died: set[int]) -> None:
    if number in died:
        raise TausidError(
            f"member {number} of the ensemble must end by itself; its process died twice. There may be too little "
            "memory (use fewer workers), or the program that calls fit is not under `if __name__ == '__main__':`."
        )
    died.add(number)


def _tell(board: _Board, report: Callable[[ProgressUpdate], None], status: str) -> None:
    update = board.read(status)
    if update is not None:
        report(update)


# What a worker process shares with the one that started it; set once, when it begins.
_shared: dict[str, Any] = {}


def _begin_worker(numbers: Any, stop: Any) -> None:
    _shared.update(numbers=numbers, stop=stop)
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the process that started this one, which says when to stop


def _work(plan: Plan, number: int) -> FitResult:
    board = _Board(_shared["numbers"], plan.max_steps)
    asked = threading.Event()

    def note(update: ProgressUpdate) -> None:
        board.write(number, update)
        if _shared["stop"].value and not asked.is_set():
            asked.set()
            signal.raise_signal(signal.SIGINT)  # as a user would: the fit ends after its chunk, and keeps its state

    return plan.train(number, note)


def _held_out(result: FitResult, split: Split) -> float:
    if result.status == "diverged":
        return float("inf")
    if result.folds is not None and result.folds.pooled:
        return result.folds.lowest
    return recipe_score(_single(result.model), split.validation, result.recipe)


def _single(model: AnyModel) -> Model:
    assert isinstance(model, Model)  # the fit of a member has no members
    return model


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _message(status: str, count: int, kept: int, about: Sequence[Mapping[str, Any]]) -> str:
    if status == "interrupted":
        return f"stopped with {count} members begun; resume to go on, bit for bit as if never stopped."
    if status == "diverged":
        return f"all {count} members diverged. Try a larger tau, or more substeps."
    errors = [entry["error"] for entry in about if entry["error"] is not None]
    spread = f"; held-out errors from {min(errors):.4g} to {max(errors):.4g} of the deviation" if errors else ""
    return f"{kept} of {count} members are kept{spread}."
