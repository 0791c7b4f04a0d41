"""How far a search is: fits that are done, those that are expected, and what of their work is left."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tausid.training.candidates import describe
from tausid.training.holdout import Split
from tausid.training.jobs import Job, Trial
from tausid.training.progress import ProgressUpdate
from tausid.training.run_state import Status


class SearchProgress:
    """The plan of a search as it stands, and what is told of it.

    Args:
        whole: the records of final fits.
        splits: the records of each fold.
    """

    def __init__(self, whole: Split, splits: Sequence[Split]) -> None:
        self._whole, self._splits = whole, splits
        self._planned, self._began = 0, time.perf_counter()
        self.final_fits = 0  # that are expected in all
        self.to_come = 0  # fits that are expected after the race at hand, final ones among them
        self.iterations: dict[Job, int] = {}  # of the jobs that run

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self._began

    def plan(self, waiting: Sequence[Job], done: Mapping[Job, Trial], later: int) -> None:
        """What is done, what waits, and what is expected after it."""
        final = [job for job in waiting if job.fold is None]
        if final:
            self.to_come, self.final_fits = 0, len(final) + sum(job.fold is None for job in done)
        self._planned = len(done) + len(waiting) + later + self.to_come

    def update(self, job: Job, trial: Trial, done: Mapping[Job, Trial]) -> ProgressUpdate:
        """What is told when a job has ended."""
        fold = "" if job.fold is None else f", fold {job.fold + 1} of {len(self._splits)}"
        return ProgressUpdate(
            step=len(done),
            max_steps=max(self._planned, len(done)),
            loss=trial.curve.losses[-1],
            validation=math.nan if np.isnan(trial.curve.errors[-1]) else trial.curve.lowest,
            best=min((t.curve.lowest for t in done.values()), default=np.inf),
            best_step=len(done),
            recoveries=0,
            steps_per_second=len(done) / max(self.seconds, 1e-9),
            status=Status.RUNNING,
            note=f"{describe(job.recipe.structure)}{fold}",
            unit="fit",
            work=self._work(done),
        )

    def samples(self, fold: int | None) -> int:
        """Training samples of a fold, or of a final fit."""
        return sum(map(len, (self._whole if fold is None else self._splits[fold]).train))

    def _work(self, done: Mapping[Job, Trial]) -> tuple[float, float]:
        """Samples times iterations that are done, and that are left: final fits of long records are most of it."""
        steps = {**self.iterations, **{job: trial.curve.steps[-1] for job, trial in done.items()}}
        usual = sum(trial.curve.steps[-1] for trial in done.values()) / max(len(done), 1)
        finals_to_come = max(self.final_fits - sum(job.fold is None for job in steps), 0)
        trials_to_come = max(self._planned - len(steps) - finals_to_come, 0)
        first = 0 if self._splits else None
        left = usual * (self.samples(first) * trials_to_come + self.samples(None) * finals_to_come)
        left += sum(max(usual - steps[job], 0) * self.samples(job.fold) for job in steps if job not in done)
        return sum(count * self.samples(job.fold) for job, count in steps.items()), left
