"""`run_study`: hand out runs to workers, write down what comes back, lose nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from pathlib import Path
from typing import Any

from tausid.errors import ConfigError, ExecutorError, StorageError, TausidError
from tausid.locks import only_coordinator
from tausid.results.study_results import RESULTS, StudyResults, StudyStatus, write_results
from tausid.storage import check_writable, write_text
from tausid.study.executors import open_workers, worker_deaths
from tausid.study.one_run import Job, check_job, execute, version
from tausid.study.spec import RunPlan, StudySpec, read_spec
from tausid.study.store import JOURNAL, Counts, Store, Taken
from tausid.study.study_data import load_source
from tausid.training.checkpoint import fingerprint
from tausid.training.processes import check_workers
from tausid.training.run_state import Status

RUNS = "runs"
SPEC = "study.toml"
COPIED = "# Copied by `tausid study run`: what was run. Relative paths in it start at the original's folder.\n"
# A run whose worker died so often is given up: it may be what kills it (out of memory).
MOST_ATTEMPTS = 3
SECONDS_BETWEEN_LOOKS = 0.5


@dataclasses.dataclass(frozen=True)
class StudyUpdate:
    """How a study stands, for whoever shows it.

    Args:
        name: name of the study.
        counts: how many runs are in which state.
        running: names of the runs that are computed now.
        seconds: since the study was begun or resumed.
        seconds_left: estimate from the runs finished since; NaN before the first.
        results: all finished runs.
        just_finished: the run that has just finished, or None.
        slots: how many runs can be computed at a time now; none where a cluster has no workers yet.
    """

    name: str
    counts: Counts
    running: tuple[str, ...]
    seconds: float
    seconds_left: float
    results: StudyResults
    just_finished: dict[str, Any] | None
    slots: int


def run_study(
    spec: StudySpec | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    executor: Executor | None = None,
    storage: str | None = None,
    resume: bool = False,
    report: Callable[[StudyUpdate], None] | None = None,
) -> StudyResults:
    """Run all runs of a study that are not finished yet.

    Every run has its own folder under `out/runs` with checkpoint, model and history; outcomes go to the store, and to
    `out/results.csv` after each run. A finished run is never run again; one that failed is, when a study is resumed.

    Args:
        spec: the study, or its TOML file.
        out: the study's folder; by default that of the TOML file.
        workers: local processes, each with one thread; by default one per core.
        scheduler: address of a Dask scheduler, instead of local processes. Its workers must see `out`.
        executor: any other `concurrent.futures` executor, with `workers` calls at a time. Its workers must see `out`.
        storage: URL of a database, instead of a journal in `out`, for coordinators on many machines.
        resume: go on with a study that was begun.
        report: called when something happened, and twice a second.

    Raises:
        ConfigError: the spec breaks a rule, `out` holds a study and `resume` was not asked for, or it is at work.
        DataError: the data are not available, or break a rule.
        ExecutorError: the scheduler is gone, or a run was cancelled; the study can be resumed.
        MissingExtraError: optuna or distributed is not installed.
        StorageError: `out` or the store cannot be written; the study can be resumed.
        KeyboardInterrupt: it was stopped; the study can be resumed.
    """
    folder = _study_folder(spec, out)
    plan = spec if isinstance(spec, StudySpec) else read_spec(spec)
    check_workers(workers)
    jobs = {run.name: _job(run, folder) for run in plan.runs()}
    for job in jobs.values():
        check_job(job)
    check_writable(folder)
    with only_coordinator(folder) if storage is None else contextlib.nullcontext():
        _check_begun(folder, resume=resume)
        store = Store(_location(folder, storage), folder.resolve().name)
        store.begin(plan.runs(), _constants(plan), retry_failed=resume)
        if out is not None and not isinstance(spec, StudySpec):
            _keep_spec(Path(spec), folder)
        with open_workers(workers, scheduler=scheduler, executor=executor) as (pool, slots):
            return _Coordinator(folder, store, jobs, report).run(pool, slots)


def study_counts(folder: str | os.PathLike[str], *, storage: str | None = None) -> Counts:
    """How many runs of a study are in which state.

    Args:
        folder: the study's folder.
        storage: URL of the database, where the study has one instead of a journal.

    Raises:
        ConfigError: no study was begun there.
    """
    folder = Path(folder)
    if storage is None and not (folder / JOURNAL).exists():
        raise ConfigError(f"{folder} must hold a study; it has no {JOURNAL}. Start one with `tausid study run`.")
    return Store(_location(folder, storage), folder.resolve().name, create=False).counts()


class _Coordinator:
    """The loop of a study; what it knows is in the store, so that another can go on in its place."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        jobs: dict[str, Job],
        report: Callable[[StudyUpdate], None] | None,
    ) -> None:
        self.folder, self.store, self.jobs, self.report = folder, store, jobs, report
        self.name = folder.resolve().name
        self.began = time.monotonic()
        self.finished_now = 0
        self.results = self._read_results()
        self.slots = 0

    def run(self, pool: Executor, slots: Callable[[], int]) -> StudyResults:
        running: dict[Future[Any], Taken] = {}
        try:
            self.slots = slots()
            self._say(running)
            write_results(self.folder, self.results)  # what was lost or written over is whole again
            while True:
                self.slots = slots()
                self._hand_out(pool, running)
                self._say(running)
                if running:
                    for future in wait(running, timeout=SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED).done:
                        self._settle(future, running)
                elif self.store.has_waiting():  # for workers, of which a cluster has none yet
                    time.sleep(SECONDS_BETWEEN_LOOKS)
                else:
                    return self._read_results()
                self.store.give_sign()
        except BaseException:
            self._put_back(running)
            raise

    def _hand_out(self, pool: Executor, running: dict[Future[Any], Taken]) -> None:
        while len(running) < self.slots and (taken := self.store.take()) is not None:
            running[pool.submit(execute, self.jobs[taken.name])] = taken

    def _settle(self, future: Future[Any], running: dict[Future[Any], Taken]) -> None:
        """Write down how a run ended, or let it wait again; until the store has it, it counts as running."""
        taken = running[future]
        attempt, outcome = _outcome(future, taken)
        if outcome is None:
            self.store.put_back(taken, attempt=attempt)
            del running[future]
            return
        job = self.jobs[taken.name]
        row = {"run": taken.name, "seed": job.choices["seed"], **outcome, **job.labels}
        written = self.store.finish(taken, row)
        del running[future]
        if written:
            self.finished_now += 1
            self.results = self._read_results()
            write_results(self.folder, self.results)
            self._say(running, just_finished=row)

    def _put_back(self, running: dict[Future[Any], Taken]) -> None:
        """Where even this fails (a full disk), the next coordinator does it."""
        for future in running:
            future.cancel()
        with contextlib.suppress(StorageError):
            for taken in running.values():
                self.store.put_back(taken, attempt=taken.attempt)

    def _read_results(self) -> StudyResults:
        return StudyResults(self.name, tuple(self.store.outcomes().values()))

    def _say(self, running: dict[Future[Any], Taken], just_finished: dict[str, Any] | None = None) -> None:
        if self.report is None:
            return
        counts, seconds = self.store.counts(), time.monotonic() - self.began
        left = (counts.waiting + len(running) / 2) * seconds / self.finished_now if self.finished_now else float("nan")
        names = tuple(taken.name for taken in running.values())
        self.report(StudyUpdate(self.name, counts, names, seconds, left, self.results, just_finished, self.slots))


def _outcome(future: Future[Any], taken: Taken) -> tuple[int, dict[str, Any] | None]:
    """The number of the next attempt, should there be one, and the outcome; None where the run must wait again.

    A full disk ends the study, as does a run that was interrupted or cancelled.
    """
    if future.cancelled():
        raise ExecutorError(
            f"runs must not be cancelled from outside; {taken.name!r} was, or its scheduler is gone. Resume with "
            "--resume."
        )
    error = future.exception()
    if isinstance(error, worker_deaths()) and taken.attempt < MOST_ATTEMPTS:
        return taken.attempt + 1, None
    if isinstance(error, StorageError):
        raise error
    outcome = future.result() if error is None else _failure(error, taken)
    if outcome["status"] == Status.INTERRUPTED:
        raise KeyboardInterrupt
    return taken.attempt, None if outcome["status"] == StudyStatus.BUSY else outcome


def _failure(error: BaseException, taken: Taken) -> dict[str, Any]:
    """A run that gave no model; the study goes on without it."""
    reason = str(error) if isinstance(error, TausidError) else f"{type(error).__name__}: {error}"
    if isinstance(error, worker_deaths()):
        reason = f"its worker died {taken.attempt} times; it may need more memory than there is"
    seconds = round(time.monotonic() - taken.began, 3)
    return {"status": StudyStatus.FAILED, "seconds": seconds, "version": version(), "message": reason}


def _job(run: RunPlan, folder: Path) -> Job:
    return Job(run.name, run.labels, run.source, run.choices, (folder / RUNS / run.name).resolve())


def _study_folder(spec: StudySpec | str | os.PathLike[str], out: str | os.PathLike[str] | None) -> Path:
    if out is not None:
        return Path(out)
    if isinstance(spec, StudySpec):
        raise ConfigError("a study that is not a file must have a folder; got none. Give out='studies/mine'.")
    return Path(spec).parent


def _location(folder: Path, storage: str | None) -> str | Path:
    if storage is None:
        return folder / JOURNAL
    if "://" not in storage:
        raise ConfigError(
            f"`storage` must be the URL of a database; got {storage!r}. Write postgresql://..., mysql://... or "
            "sqlite:///FILE, or leave it out for a journal in the study's folder."
        )
    return storage


def _keep_spec(spec: Path, folder: Path) -> None:
    """A study in a folder of its own holds what was run; a file that someone else wrote there is left alone."""
    copy, text = folder / SPEC, COPIED + spec.read_text(encoding="utf-8")
    held = copy.read_text(encoding="utf-8") if copy.exists() else COPIED
    if held.startswith(COPIED) and held != text:
        write_text(copy, text)


def _check_begun(folder: Path, *, resume: bool) -> None:
    begun = (folder / JOURNAL).exists()
    if begun and not resume:
        raise ConfigError(
            f"`out` must be a folder without a study; {folder} holds one. Resume it with --resume, or choose another "
            "folder."
        )
    if not begun and (folder / RESULTS).exists() and not resume:
        raise ConfigError(
            f"`out` must be a folder without results; {folder / RESULTS} would be replaced. Choose another folder."
        )


def _constants(plan: StudySpec) -> dict[str, Any]:
    """What must not change between a study's beginning and its end; axes and variants may grow."""
    prints = {name: fingerprint(tuple(itertools.chain(*load_source(source)))) for name, source in plan.sources.items()}
    return {**plan.settings, "data": prints if len(prints) > 1 else next(iter(prints.values()))}
