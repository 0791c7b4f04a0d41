"""`run_study`: hand out runs to workers, write down what comes back, lose nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from pathlib import Path
from typing import Any

from tausid.errors import ConfigError, MissingExtraError, StorageError, TausidError
from tausid.processes import LocalWorkers
from tausid.storage import check_writable
from tausid.study.executors import cluster, worker_deaths
from tausid.study.results import RESULTS, StudyResults, write_results
from tausid.study.source import load_source
from tausid.study.spec import RunPlan, StudySpec, read_spec
from tausid.study.store import JOURNAL, Counts, Store, Taken
from tausid.study.work import Job, check_job, execute
from tausid.training.checkpoint import fingerprint

RUNS = "runs"
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
    """

    name: str
    counts: Counts
    running: tuple[str, ...]
    seconds: float
    seconds_left: float
    results: StudyResults
    just_finished: dict[str, Any] | None


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
    `out/results.csv` after each run. A finished run is never run again.

    Args:
        spec: the study, or its TOML file.
        out: the study's folder; by default that of the TOML file.
        workers: local processes, each with one thread; by default one per core.
        scheduler: address of a Dask scheduler, instead of local processes. Its workers must see `out`.
        executor: any other `concurrent.futures` executor, with `workers` calls at a time. Its workers must see `out`.
        storage: URL of a database, instead of a journal in `out`, for coordinators on many machines.
        resume: go on with a study that was begun.
        report: called when something happened, and twice a second.

    Returns:
        All finished runs.

    Raises:
        ConfigError: the spec breaks a rule, `out` holds a study and `resume` was not asked for, or it is at work.
        DataError: the data cannot be had, or break a rule.
        MissingExtraError: optuna or distributed is not installed.
        StorageError: `out` or the store cannot be written; the study can be resumed.
        KeyboardInterrupt: it was stopped; the study can be resumed.
    """
    folder = _study_folder(spec, out)
    plan = spec if isinstance(spec, StudySpec) else read_spec(spec)
    runs = plan.runs()
    jobs = {run.name: _job(run, plan, folder) for run in runs}
    for job in jobs.values():
        check_job(job)
    check_writable(folder)
    with _alone(folder, shared=storage is not None):
        _check_begun(folder, resume=resume)
        store = Store(storage or folder / JOURNAL, folder.resolve().name)
        store.begin(runs, _constants(plan))
        with _workers(workers, scheduler, executor) as (pool, slots):
            return _Coordinator(folder, store, jobs, report).run(pool, slots)


def study_counts(folder: str | os.PathLike[str], *, storage: str | None = None) -> Counts:
    """How many runs of a study are in which state.

    Args:
        folder: the study's folder.
        storage: URL of the database, where the study has one instead of a journal.

    Returns:
        The numbers.

    Raises:
        ConfigError: no study was begun there.
    """
    folder = Path(folder)
    if storage is None and not (folder / JOURNAL).exists():
        raise ConfigError(f"a study must have been begun; {folder} has no {JOURNAL}. Run it with `tausid study run`.")
    return Store(storage or folder / JOURNAL, folder.resolve().name, create=False).counts()


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

    def run(self, pool: Executor, slots: Callable[[], int]) -> StudyResults:
        running: dict[Future[Any], Taken] = {}
        try:
            while True:
                self._hand_out(pool, slots(), running)
                if not running:
                    return self._say(running)
                for future in wait(running, timeout=SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED).done:
                    outcome = self._settle(running[future], future)
                    del running[future]
                    if outcome is not None:
                        self.finished_now += 1
                        self._say(running, just_finished=outcome)
                self.store.give_sign()
                self._say(running)
        except BaseException:
            self._put_back(running.values())
            raise

    def _hand_out(self, pool: Executor, slots: int, running: dict[Future[Any], Taken]) -> None:
        while len(running) < slots and (taken := self.store.take()) is not None:
            running[pool.submit(execute, self.jobs[taken.name])] = taken

    def _settle(self, taken: Taken, future: Future[Any]) -> dict[str, Any] | None:
        """Write down how a run ended, or let it wait again; a full disk ends the study."""
        error = future.exception()
        if isinstance(error, worker_deaths()) and taken.attempt < MOST_ATTEMPTS:
            self.store.put_back(taken, attempt=taken.attempt + 1)
            return None
        if isinstance(error, StorageError):
            raise error
        outcome = future.result() if error is None else _failure(error, taken)
        if outcome["status"] == "interrupted":
            raise KeyboardInterrupt
        job = self.jobs[taken.name]
        row = {"run": taken.name, "seed": job.choices["seed"], **outcome, **job.labels}
        self.store.finish(taken, row)
        write_results(self.folder, self._results())
        return row

    def _put_back(self, unfinished: Any) -> None:
        """Where even this fails (a full disk), the next coordinator does it."""
        with contextlib.suppress(StorageError):
            for taken in unfinished:
                self.store.put_back(taken, attempt=taken.attempt)

    def _results(self) -> StudyResults:
        return StudyResults(self.name, tuple(self.store.outcomes().values()))

    def _say(self, running: dict[Future[Any], Taken], just_finished: dict[str, Any] | None = None) -> StudyResults:
        results = self._results()
        if self.report is not None:
            counts, seconds = self.store.counts(), time.monotonic() - self.began
            left = (
                (counts.waiting + len(running) / 2) * seconds / self.finished_now if self.finished_now else float("nan")
            )
            names = tuple(taken.name for taken in running.values())
            self.report(StudyUpdate(self.name, counts, names, seconds, left, results, just_finished))
        return results


def _failure(error: BaseException, taken: Taken) -> dict[str, Any]:
    """A run that gave no model; the study goes on without it."""
    reason = str(error) if isinstance(error, TausidError) else f"{type(error).__name__}: {error}"
    if isinstance(error, worker_deaths()):
        reason = f"its worker died {taken.attempt} times; it may need more memory than there is"
    return {"status": "failed", "message": reason}


def _job(run: RunPlan, plan: StudySpec, folder: Path) -> Job:
    return Job(run.name, run.labels, plan.source, run.choices, (folder / RUNS / run.name).resolve())


def _study_folder(spec: StudySpec | str | os.PathLike[str], out: str | os.PathLike[str] | None) -> Path:
    if out is not None:
        return Path(out)
    if isinstance(spec, StudySpec):
        raise ConfigError("a study that is not a file must have a folder; got none. Give out='studies/mine'.")
    return Path(spec).parent


def _check_begun(folder: Path, *, resume: bool) -> None:
    begun = (folder / JOURNAL).exists()
    if begun and not resume:
        raise ConfigError(
            f"`out` must be a folder without a study; {folder} holds one. Go on with it by --resume, or choose another "
            "folder."
        )
    if not begun and (folder / RESULTS).exists() and not resume:
        raise ConfigError(
            f"`out` must be a folder without results; {folder / RESULTS} would be replaced. Choose another folder."
        )


def _constants(plan: StudySpec) -> dict[str, Any]:
    """What must not change between a study's beginning and its end; axes and variants may grow."""
    train, tests = load_source(plan.source)
    held = {key: list(value) if isinstance(value, tuple) else value for key, value in plan.settings.items()}
    return {**held, "data": fingerprint((train, *tests))}


@contextlib.contextmanager
def _alone(folder: Path, *, shared: bool) -> Iterator[None]:
    """Hold the study's lock: two coordinators on one journal would repeat each other's runs."""
    if shared:
        yield
        return
    try:
        from filelock import FileLock, Timeout
    except ImportError:
        raise MissingExtraError(
            'studies need filelock, which is missing. Install it with pip install "tausid[study]".'
        ) from None
    try:
        with FileLock(folder / ".study.lock", timeout=0):
            yield
    except Timeout:
        raise ConfigError(
            f"a study must be run by one process at a time; another one is at work in {folder}. Wait for it, or look "
            "at it with `tausid study status`."
        ) from None


@contextlib.contextmanager
def _workers(
    count: int | None, scheduler: str | None, executor: Executor | None
) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """The executor and how many calls it takes at a time; an executor that was handed in is left open."""
    if executor is not None:
        yield executor, lambda: count or 1
        return
    if scheduler is not None:
        pool, slots = cluster(scheduler)
        with pool:
            yield pool, (lambda: min(slots(), count)) if count else slots
        return
    with LocalWorkers(count) as local:
        yield local, lambda: local.slots
