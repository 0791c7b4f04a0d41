"""Studies: what the store remembers, and what the coordinator makes of what workers tell it. Nothing is trained."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from studies import QUICK, TINY, write_study
from test_model_files import spoil_content

from tausid import ConfigError, ExecutorError, StorageError
from tausid.errors import MissingExtraError
from tausid.locks import STUDY_LOCK, hold
from tausid.results.runs import RunFolder
from tausid.study import coordinator, executors, one_run, parse_spec, read_results, run_study, study_counts
from tausid.study.store import JOURNAL, Store

GOOD = {"status": "completed", "train_rmse": 0.3, "validation_rmse": 0.2, "test_rmse": None}


class Work:
    """Stands for training: says what was run, and gives outcomes in turn."""

    def __init__(self, *outcomes: dict | Exception) -> None:
        self.outcomes, self.done = list(outcomes), []

    def __call__(self, job: one_run.Job) -> dict:
        self.done.append(job.name)
        outcome = self.outcomes.pop(0) if self.outcomes else GOOD
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def spec(tmp_path) -> Path:
    return write_study(tmp_path / "s", QUICK, "seed = [0, 1]")


def study(spec: Path, monkeypatch, *outcomes: dict | Exception, **options):
    """A study with outcomes as given, and what was run for it."""
    stand_in = Work(*outcomes)
    monkeypatch.setattr(coordinator, "execute", stand_in)
    return run_study(spec, **{"executor": ThreadPoolExecutor(1), **options}), stand_in.done


def plans(seeds: list[int], **settings):
    return parse_spec({**TINY, "settings": settings, "axes": {"seed": seeds}}, folder=Path()).runs()


def test_an_error_after_the_outcome_is_stored_is_told_as_it_is(spec, monkeypatch):
    write, written = coordinator.write_results, []

    def tear(folder, results):
        written.append(results)
        if len(results.rows) == 1:
            raise StorageError("the disk is full")
        return write(folder, results)

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="the disk is full"):
        patch.setattr(coordinator, "write_results", tear)
        study(spec, patch)
    assert study_counts(spec.parent).finished == 1
    results, done = study(spec, monkeypatch, resume=True)
    assert done == ["seed=1"]  # what was stored is not repeated
    assert len(results.rows) == 2


def test_a_table_that_was_lost_is_written_when_a_study_is_resumed(spec, monkeypatch):
    study(spec, monkeypatch)
    whole = (spec.parent / "results.csv").read_text()
    (spec.parent / "results.csv").write_text("status\n")
    _, done = study(spec, monkeypatch, resume=True)
    assert done == []
    assert (spec.parent / "results.csv").read_text() == whole


def test_a_variant_that_was_changed_is_noticed(spec, monkeypatch):
    text = spec.read_text()
    spec.write_text(text + "[variants.a]\ntrainer.learning_rate = 0.001\n[variants.b]\n")
    study(spec, monkeypatch)
    spec.write_text(text + "[variants.a]\ntrainer.learning_rate = 0.002\n[variants.b]\n")
    message = "run 'a,seed=0' must keep its settings; `trainer.learning_rate` was 0.001 and is now 0.002.*another name"
    with pytest.raises(ConfigError, match=message):
        study(spec, monkeypatch, resume=True)
    spec.write_text(text + "[variants.a]\ntrainer.learning_rate = 0.001\n[variants.b]\nintegration.stepper = 'heun'\n")
    with pytest.raises(ConfigError, match="`integration.stepper` was not set and is now 'heun'"):
        study(spec, monkeypatch, resume=True)
    spec.write_text(
        text
        + "[variants.a]\ntrainer.learning_rate = 0.001\n[variants.b]\n[variants.c]\ntrainer.learning_rate = 0.002\n"
    )
    assert study(spec, monkeypatch, resume=True)[1] == ["c,seed=0", "c,seed=1"]


def test_a_setting_that_all_share_cannot_change_not_even_by_becoming_an_axis(tmp_path):
    Store(tmp_path / JOURNAL, "s").begin(plans([0]), {"nx": 2})
    with pytest.raises(ConfigError, match="`nx` was 2 and is now not set.*Set it back, or use another folder"):
        Store(tmp_path / JOURNAL, "s").begin(plans([0]), {})


def test_failed_runs_are_taken_up_again_and_diverged_ones_are_not(spec, monkeypatch):
    diverged = {"status": "diverged", "message": "it diverged"}
    results, _ = study(spec, monkeypatch, ValueError("no memory"), diverged)
    failed = results.rows[0]
    assert (failed["status"], failed["message"]) == ("failed", "ValueError: no memory")
    assert failed["version"] == one_run.version()
    assert 0 <= failed["seconds"] < 600  # it took some time, on this clock
    results, done = study(spec, monkeypatch, ValueError("again"), resume=True)
    assert done == ["seed=0"]
    assert [row.get("message") for row in results.rows] == ["ValueError: again", "it diverged"]
    results, done = study(spec, monkeypatch, resume=True)
    assert done == ["seed=0"]
    assert [row["status"] for row in results.rows] == ["completed", "diverged"]
    assert study(spec, monkeypatch, resume=True)[1] == []


def test_a_failed_run_may_be_corrected(tmp_path):
    store = Store(tmp_path / JOURNAL, "s")
    store.begin(plans([0], nx=2), {})
    store.finish(store.take(), {"status": "failed"})
    again = Store(tmp_path / JOURNAL, "s")
    again.begin(plans([0], nx=3), {}, retry_failed=True)
    assert again.take().trial.user_attrs["choices"] == {"nx": 3, "seed": 0}


def test_a_run_whose_folder_another_process_holds_waits(spec, monkeypatch):
    folder = spec.parent / "runs" / "seed=0"
    folder.mkdir(parents=True)
    monkeypatch.setattr(one_run, "SECONDS_TO_WAIT_FOR_FOLDER", 0.05)
    order: list[str] = []

    def stop_when_first_waits_again(update):
        order.extend(update.running)
        if update.counts.finished == 1 and holder.is_locked:
            holder.release()

    from filelock import FileLock

    holder = FileLock(RunFolder(folder).lock_file, thread_local=False)
    with holder:
        results = run_study(spec, executor=ThreadPoolExecutor(1), report=stop_when_first_waits_again)
    assert order[0] == "seed=0"  # it was tried first,
    assert [row["run"] for row in results.rows] == ["seed=1", "seed=0"]  # and came after the other
    assert {row["status"] for row in results.rows} == {"completed"}


def test_a_lock_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="must be writable"), hold(tmp_path / "file" / STUDY_LOCK, seconds=0.0):
        pass


class LateWorkers(ThreadPoolExecutor):
    """A cluster without workers for a while."""

    def __init__(self) -> None:
        super().__init__(1)
        self.answers = [0, 0, 0]

    def slots(self) -> int:
        return self.answers.pop() if self.answers else 1


def test_a_study_waits_for_workers_and_says_so(spec, monkeypatch, capfd):
    from tausid.cli.study import _Shown

    pool, shown, work_done = LateWorkers(), _Shown(), Work()
    monkeypatch.setattr(coordinator, "execute", work_done)
    monkeypatch.setattr(coordinator, "SECONDS_BETWEEN_LOOKS", 0.01)
    store = Store(spec.parent / JOURNAL, "s")
    plan = coordinator.read_spec(spec)
    store.begin(plan.runs(), {})
    jobs = {run.name: coordinator._job(run, spec.parent) for run in plan.runs()}
    results = coordinator._Coordinator(spec.parent, store, jobs, shown).run(pool, pool.slots)
    assert len(results.rows) == 2
    printed = capfd.readouterr().err
    assert printed.count("waiting for workers") == 1
    assert "seed=1: completed, validation RMSE 0.2; 2 of 2 done" in printed


class Cancelling(Executor):
    """A scheduler that went away."""

    def submit(self, fn, /, *args, **kwargs) -> Future:
        future: Future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_a_cancelled_run_ends_the_study_in_words_and_waits(spec):
    with pytest.raises(ExecutorError, match="'seed=0' was, or its scheduler is gone. Resume with --resume"):
        run_study(spec, executor=Cancelling())
    assert study_counts(spec.parent).waiting == 2


class Client:
    """A client whose scheduler went away."""

    def __init__(self, status: str) -> None:
        self.status = status

    def nthreads(self) -> dict[str, int]:
        raise OSError("timed out")


@pytest.mark.parametrize("status", ["connecting", "closed"])
def test_a_scheduler_that_went_away_is_told_in_words(status):
    with pytest.raises(ExecutorError, match="the scheduler tcp://x must answer while a study runs.*--resume"):
        executors._count_threads(Client(status), "tcp://x")


def test_what_is_queued_is_cancelled_when_a_study_stops(spec, monkeypatch):
    begun, go = threading.Event(), threading.Event()
    done: list[str] = []

    def slow(job):
        begun.set()
        go.wait(60)
        done.append(job.name)
        return GOOD

    def stop(update):
        if begun.is_set():
            raise KeyboardInterrupt

    monkeypatch.setattr(coordinator, "execute", slow)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            run_study(spec, executor=pool, workers=2, report=stop)
        go.set()
    assert done == ["seed=0"]  # seed=1 was never begun


def test_coordinators_that_begin_together_leave_each_other_alone(tmp_path):
    url = f"sqlite:///{tmp_path}/studies.db"
    first, second = Store(url, "s"), Store(url, "s")
    first.begin(plans([0, 1]), {})
    assert first.take().name == "seed=0"
    second.begin(plans([0, 1]), {})
    assert second.take().name == "seed=1"
    assert second.take() is None


def test_a_run_that_was_taken_but_not_signed_yet_is_left_alone(tmp_path):
    url = f"sqlite:///{tmp_path}/studies.db"
    first, second = Store(url, "s"), Store(url, "s")
    first.begin(plans([0]), {})
    first._study.ask()  # what `take` does before it signs
    second.begin(plans([0]), {})
    assert second.take() is None


def test_a_coordinator_that_was_taken_for_dead_leaves_its_run_to_the_other(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/studies.db"
    first, second = Store(url, "s"), Store(url, "s")
    first.begin(plans([0]), {})
    lost = first.take()
    monkeypatch.setattr("tausid.study.store.SECONDS_UNTIL_LOST", 0.0)
    second.begin(plans([0]), {})
    taken = second.take()
    assert taken.name == "seed=0"
    assert not first.finish(lost, {**GOOD, "test_rmse": 1.0})
    first.put_back(lost, attempt=2)
    assert second.finish(taken, GOOD)
    assert Store(url, "s").outcomes() == {"seed=0": GOOD}
    assert Store(url, "s").counts().waiting == 0


@pytest.mark.parametrize(
    ("storage", "error", "message"),
    [
        ("mydb", ConfigError, "`storage` must be the URL of a database; got 'mydb'. Write postgresql://"),
        (
            "postgres://host/db",
            ConfigError,
            "`storage` must be the URL of a database, postgresql://.*'postgres://host/db'",
        ),
    ],
)
def test_a_storage_that_is_none_is_refused(spec, storage, error, message, monkeypatch):
    monkeypatch.chdir(spec.parent)  # where a journal of that name would appear
    with pytest.raises(error, match=message):
        run_study(spec, storage=storage)
    with pytest.raises(error, match=message):
        study_counts(spec.parent, storage=storage)
    assert not Path("mydb").exists()


@pytest.fixture(scope="module")
def journal(tmp_path_factory) -> list[str]:
    """The lines of a journal with a finished run and one that waits."""
    folder = tmp_path_factory.mktemp("journal")
    store = Store(folder / JOURNAL, "s")
    store.begin(parse_spec({**TINY, "axes": {"seed": [0, 1]}}, folder=folder).runs(), {"data": "x"})
    store.finish(store.take(), {"run": "seed=0", "status": "completed", "validation_rmse": 0.5})
    return (folder / JOURNAL).read_text().splitlines()


@settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_journal_of_something_else_is_refused_or_used(journal, tmp_path, data):
    """Lines changed, left out, repeated and torn: an error of ours, or a study that goes on."""
    lines = list(journal)
    place = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[place])
    spoil_content(data.draw, line)
    lines[place : place + 1] = data.draw(
        st.sampled_from([[json.dumps(line)], [], [lines[place]] * 2, ["[" * 100_000], [lines[place][:9]], ["7"]])
    )
    (tmp_path / JOURNAL).write_text("\n".join(lines) + "\n")
    runs = parse_spec({**TINY, "axes": {"seed": [0, 1]}}, folder=tmp_path).runs()
    try:
        store = Store(tmp_path / JOURNAL, "s")
        store.begin(runs, {"data": "x"})
    except (ConfigError, StorageError):  # the former where a setting seems to have changed
        return
    while (taken := store.take()) is not None:
        store.finish(taken, {"run": taken.name, "status": "completed"})
    assert {run.name for run in runs} <= set(store.outcomes())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"attempt":1', '"attempt":"x"', r"Expected `int`, got `str` - at `\$.attempt`"),
        ('"status":"completed"', '"status":[]', r"Expected `str`, got `array` - at `\$.outcome.status`"),
        ('"op_code":0', '"op_code":99', "a line of it says something else"),
    ],
)
def test_what_is_wrong_in_a_journal_is_named(old, new, reason, journal, tmp_path):
    text = "\n".join(journal)
    assert old in text
    (tmp_path / JOURNAL).write_text(text.replace(old, new, 1) + "\n")
    with pytest.raises(StorageError, match=f"{JOURNAL} must be as tausid writes it; it is not .*{reason}"):
        Store(tmp_path / JOURNAL, "s")


def test_without_optuna_a_study_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] in ("optuna", "sqlalchemy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(
        MissingExtraError, match=r"studies need optuna, which is missing. Install it with.*tausid\[study\]"
    ):
        Store(tmp_path / JOURNAL, "s")


def test_a_number_of_workers_is_checked_whoever_computes(spec):
    with pytest.raises(ConfigError, match="`workers` must be 1 to 1024; got -1"):
        run_study(spec, executor=ThreadPoolExecutor(1), workers=-1)


def test_the_journal_says_nothing_of_the_machine(spec, monkeypatch):
    import socket

    monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
    study(spec, monkeypatch)
    assert "secret-host" not in (spec.parent / JOURNAL).read_text()


def test_runs_are_checked_once():
    spec = parse_spec(TINY, folder=Path())
    assert spec.runs() is spec.runs()


def test_outcomes_are_read_once_per_finished_run(spec, monkeypatch):
    counted: list[int] = []
    read = Store.outcomes

    def count(store):
        counted.append(1)
        return read(store)

    monkeypatch.setattr(Store, "outcomes", count)
    study(spec, monkeypatch, report=lambda update: time.sleep(0))
    assert len(counted) == 4  # at the beginning, after each of two runs, at the end
    assert len(read_results(spec.parent).rows) == 2


def test_passwords_of_databases_are_not_shown(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/runs.db", "figure")
    assert store.location == f"sqlite:///{tmp_path}/runs.db"
    with pytest.raises(ConfigError, match=r"got 'nonsense://ada:\*\*\*@host/runs'"):
        Store("nonsense://ada:secret:@host/runs", "figure")
    with pytest.raises(ConfigError, match="got 'a URL that cannot be read'"):
        Store("postgresql://ada:secret@host:port/runs", "figure")
