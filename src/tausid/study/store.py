"""What came out of a study: every run's state and outcome, in Optuna's storage.

A run is an Optuna trial that waits, runs, and ends with an outcome. An outcome is written once and never changed. Only
coordinators talk to the store; workers know nothing of it.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tausid.errors import ConfigError, MissingExtraError, StorageError
from tausid.results.study_results import StudyStatus
from tausid.schema import SchemaError, Text, as_schema, parse_json
from tausid.study.spec import RunPlan

JOURNAL = "study.journal"
# In a shared database, a coordinator that gave no sign of life for so long is taken for dead.
SECONDS_UNTIL_LOST = 300.0
SECONDS_BETWEEN_SIGNS = 60.0


class StudyContent(msgspec.Struct):
    """What is written of a study as a whole."""

    same: dict[str, Any] | None = None


class OutcomeContent(msgspec.Struct):
    """What is written of a run that ended, as far as the store reads it again; it says more."""

    status: Text


class RunContent(msgspec.Struct):
    """What is written of a run, as far as the store reads it again."""

    run: Text
    attempt: Annotated[int, Meta(ge=1, le=2**53)]
    choices: dict[str, Any]
    owner: Text | None = None
    outcome: OutcomeContent | None = None


@dataclass(frozen=True)
class Taken:
    """A run that this coordinator has taken."""

    trial: Any  # the store's own record of it
    name: str  # the run's name
    attempt: int  # 1, or more where its worker died before
    began: float = field(default_factory=time.monotonic)  # when it was taken, on this process's clock


@dataclass(frozen=True)
class Counts:
    """How many runs are in which state."""

    waiting: int  # not begun
    running: int  # taken by a coordinator
    finished: int  # with an outcome other than `failed`
    failed: int  # with the outcome `failed`


class Store:
    """Runs of one study.

    Args:
        location: file of the journal, or the URL of a database.
        name: name of the study in a database; a journal holds only one.
        create: whether to begin a study where there is none.

    Raises:
        ConfigError: there is no such study, and none is to be begun; or no such kind of database.
        MissingExtraError: optuna, or the database's driver, is not installed.
        StorageError: the place cannot be read or written, or holds something else.
    """

    def __init__(self, location: str | os.PathLike[str], name: str, *, create: bool = True) -> None:
        self.shared = "://" in str(location)
        self._owner = uuid.uuid4().hex
        self._signed = 0.0
        self._asked: set[str | None] = set()
        _import_optuna()
        self.location = _without_password(str(location))
        with self._translated():
            self._study = _open(str(location), name, shared=self.shared, create=create)
            as_schema(self._study.user_attrs, StudyContent)
            for trial in self._trials():
                if "run" in trial.user_attrs:
                    as_schema(trial.user_attrs, RunContent)

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """Outcomes of all finished runs by name, in the order in which they were planned."""
        return {name: trial.user_attrs["outcome"] for name, trial in self._latest().items() if _is_finished(trial)}

    def counts(self) -> Counts:
        """How many runs are in which state."""
        trials = self._latest().values()
        finished = [
            trial.user_attrs["outcome"]["status"] != StudyStatus.FAILED for trial in trials if _is_finished(trial)
        ]
        waiting = sum(trial.state.name == "WAITING" for trial in trials)
        return Counts(waiting, len(trials) - waiting - len(finished), sum(finished), len(finished) - sum(finished))

    def begin(self, runs: Sequence[RunPlan], same: Mapping[str, Any], *, retry_failed: bool = False) -> None:
        """Plan the runs that are not in the store yet; take up again those that a dead coordinator left.

        Runs that wait and are not among these any more are dropped; finished ones stay.
        """
        with self._translated():
            self.give_sign()
            self._check_same(_plain(same))
            self._give_back_lost_runs()
            self._asked = {run.name for run in runs}
            known = self._latest()
            for run in runs:
                if run.name in known:
                    self._check_choices(run, known[run.name])
            for run in runs:
                if run.name not in known or (retry_failed and _has_failed(known[run.name])):
                    self._plan(run.name, attempt=1, choices=_plain(run.choices))

    def has_waiting(self) -> bool:
        """Whether a run waits that is asked for."""
        return any(name in self._asked and trial.state.name == "WAITING" for name, trial in self._latest().items())

    def take(self) -> Taken | None:
        """The next run that waits, now marked as running; None where there is none."""
        with self._translated():
            while any(trial.state.name == "WAITING" for trial in self._trials()):
                trial = self._study.ask()
                name = trial.user_attrs.get("run")
                # Two coordinators that begin at the same moment may both have planned a run: the first one counts. A
                # run that is not asked for any more, as the study has shrunk, is dropped.
                if name not in self._asked or self._latest()[name].number != trial.number:
                    self._study.tell(trial, state=_state("FAIL"))
                    continue
                trial.set_user_attr("owner", self._owner)
                return Taken(trial, name, trial.user_attrs["attempt"])
        return None

    def finish(self, taken: Taken, outcome: Mapping[str, Any]) -> bool:
        """Write the outcome of a run, once and for all."""
        from optuna.exceptions import UpdateFinishedTrialError

        with self._translated():
            try:
                taken.trial.set_user_attr("outcome", _plain(outcome))
            except UpdateFinishedTrialError:
                return False
            return self._close(taken.trial.number, outcome)

    def put_back(self, taken: Taken, *, attempt: int) -> None:
        """Let a run wait again, unless another coordinator has it by now."""
        with self._translated():
            self._put_back(taken.trial, attempt=attempt)

    def give_sign(self) -> None:
        """Say that this coordinator lives, in a shared database and not too often."""
        if self.shared and time.time() - self._signed > SECONDS_BETWEEN_SIGNS:
            with self._translated():
                self._study.set_user_attr(f"sign of {self._owner}", time.time())
            self._signed = time.time()

    def _plan(self, name: str, *, attempt: int, choices: Mapping[str, Any]) -> None:
        self._study.enqueue_trial({}, user_attrs={"run": name, "attempt": attempt, "choices": choices})

    def _put_back(self, trial: Any, *, attempt: int) -> None:
        held = trial.user_attrs
        if self._tell(trial.number, None, "FAIL"):
            self._plan(held["run"], attempt=attempt, choices=held["choices"])

    def _close(self, number: int, outcome: Mapping[str, Any]) -> bool:
        score = outcome.get("validation_rmse")
        usable = isinstance(score, float) and score == score
        return self._tell(number, score if usable else None, "COMPLETE" if usable else "FAIL")

    def _tell(self, number: int, score: float | None, state: str) -> bool:
        """Close a trial; False where it is closed already."""
        try:
            self._study.tell(number, score, state=_state(state))
        except ValueError:
            return False
        return True

    def _check_same(self, same: dict[str, Any]) -> None:
        held = self._study.user_attrs.get("same")
        if held is None:
            self._study.set_user_attr("same", same)
        elif (change := _difference(held, same)) is not None:
            raise ConfigError(
                f"a resumed study must keep its settings and data; {change} ({self.location}). Set it "
                "back, or use another folder: the runs would not be comparable."
            )

    def _check_choices(self, run: RunPlan, trial: Any) -> None:
        """A result must be of what its name says."""
        change = _difference(trial.user_attrs["choices"], _plain(run.choices))
        if change is not None and not _has_failed(trial):
            raise ConfigError(
                f"run {run.name!r} must keep its settings; {change} ({self.location}). Set them back, give "
                "the changed variant another name, or use another folder."
            )

    def _give_back_lost_runs(self) -> None:
        for trial in self._latest().values():
            if trial.state.name != "RUNNING" or self._lives(trial):
                continue
            if "outcome" in trial.user_attrs:  # written, but the coordinator died before it could close the trial
                self._close(trial.number, trial.user_attrs["outcome"])
            else:
                self._put_back(trial, attempt=trial.user_attrs["attempt"])

    def _lives(self, trial: Any) -> bool:
        """Whether the coordinator of a run still works; a journal has one at a time, which is this one."""
        owner = trial.user_attrs.get("owner")
        # A run is without an owner for the moment between being taken and being signed.
        sign = trial.datetime_start.timestamp() if owner is None else self._study.user_attrs.get(f"sign of {owner}", 0)
        return self.shared and time.time() - sign < SECONDS_UNTIL_LOST

    def _latest(self) -> dict[str, Any]:
        """For each run the trial that counts, in the order in which runs were planned."""
        found: dict[str, Any] = {}
        for trial in self._trials():
            name = trial.user_attrs.get("run")
            if name is None or (trial.state.is_finished() and not _is_finished(trial)):
                continue
            if name not in found or _counts_more(trial, found[name]):
                found[name] = trial
        return found

    def _trials(self) -> Iterable[Any]:
        return self._study.get_trials(deepcopy=False)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Trouble of the disk or the database in this program's words."""
        import sqlalchemy.exc
        from optuna.exceptions import StorageInternalError

        try:
            yield
        except SchemaError as error:
            raise StorageError(
                f"the study's store {self.location} must be as tausid writes it; it is not ({error}). Restore it from "
                "a copy, or run the study in another folder."
            ) from None
        except (OSError, StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
            reason = getattr(error, "strerror", None) or str(error).strip().splitlines()[0]
            raise StorageError(
                f"the study's store {self.location} must be writable; it is not: {reason}. What was written is intact; "
                "free some space or repair the place, then resume with --resume."
            ) from error


def mend_journal(path: Path) -> None:
    """Cut off a last line that was torn when the disk was full or the machine stopped; all others are whole."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)


def _is_finished(trial: Any) -> bool:
    return trial.state.is_finished() and "outcome" in trial.user_attrs


def _has_failed(trial: Any) -> bool:
    return _is_finished(trial) and trial.user_attrs["outcome"]["status"] == StudyStatus.FAILED


def _counts_more(trial: Any, earlier: Any) -> bool:
    """A result counts more than a run that waits or is at work, and that more than the failure before it."""
    if _has_failed(earlier):
        return True
    return _is_finished(trial) and not _has_failed(trial) and not _is_finished(earlier)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON would give them back: lists for tuples, Python's numbers for numpy's."""
    return dict(json.loads(json.dumps(dict(values), default=operator.methodcaller("tolist"))))


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first key that is not as it was, in words."""
    for key in {**before, **now}:
        if before.get(key) != now.get(key):
            was, is_now = (repr(table[key]) if key in table else "not set" for table in (before, now))
            return f"`{key}` was {was} and is now {is_now}"
    return None


def _open(location: str, name: str, *, shared: bool, create: bool) -> Any:
    optuna = _import_optuna()
    if shared:
        storage = _open_database(optuna, location)
    else:
        from optuna.storages.journal import JournalFileBackend

        Path(location).parent.mkdir(parents=True, exist_ok=True)
        if create:  # and so holds the study's lock
            mend_journal(Path(location))
        with _as_written():
            _check_lines(Path(location))
            storage = optuna.storages.JournalStorage(JournalFileBackend(location))
    held = [] if shared else optuna.get_all_study_names(storage)
    try:
        # A journal holds one study, whatever its folder is called by now.
        return optuna.load_study(study_name=held[0] if held else name, storage=storage)
    except KeyError:
        if create:
            return optuna.create_study(study_name=name, storage=storage, load_if_exists=True)
        place = _without_password(location)
        raise ConfigError(f"{place} must hold the study {name!r}; it does not. Check both.") from None


def _check_lines(path: Path) -> None:
    """Each line is a JSON object; the last may be one that is being written. Optuna finds out when it is too late."""
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            as_schema(parse_json(line), dict[str, Any])


@contextlib.contextmanager
def _as_written() -> Iterator[None]:
    """Optuna checks nothing of a journal that it reads: whatever it stumbles over is no line of ours."""
    try:
        yield
    except (OSError, SchemaError):
        raise
    except Exception as error:  # noqa: BLE001 - see above
        raise SchemaError(f"a line of it says something else: {type(error).__name__} {error}".strip()) from None


def _without_password(location: str) -> str:
    """Where the study is stored, as it may be shown."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(location).render_as_string(hide_password=True) if "://" in location else location
    except (ArgumentError, ValueError):
        return "a URL that cannot be read"


def _open_database(optuna: Any, url: str) -> Any:
    from sqlalchemy.exc import ArgumentError

    try:
        storage = optuna.storages.RDBStorage(url)
    except (ArgumentError, ValueError):
        raise ConfigError(
            f"`storage` must be the URL of a database, postgresql://, mysql:// or sqlite:///; got "
            f"{_without_password(url)!r}. Correct it."
        ) from None
    except ImportError as error:
        raise MissingExtraError(f"the database needs a driver that is missing: {error}. Install it with pip.") from None
    # Optuna leaves connections to the garbage collector, and Python 3.13 warns of those that nobody closed.
    weakref.finalize(storage, storage.engine.dispose)
    return storage


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError(
            'studies need optuna, which is missing. Install it with pip install "tausid[study]".'
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _state(name: str) -> Any:
    import optuna

    return optuna.trial.TrialState[name]
