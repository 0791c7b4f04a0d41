"""Faults that happen to every program, for each command: it ends with a code and one sentence, never with a traceback.

Disks that are full, places that cannot be written, terminals that know only ASCII, names in any script and in none,
numbers without end, a reader that goes away, signals. One table for most of them.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import wiener_record
from studies import QUICK, TINY, write_study

import tausid
from tausid import ConfigError, Integration, Scaling, StorageError, Structure, Tau, cli
from tausid.cli.runs import run_folder
from tausid.locks import only_writer
from tausid.model.build import Weights, build_state_space
from tausid.model.model import Model
from tausid.storage import PART, _begun, write_bytes
from tausid.study import parse_spec, read_results, run_study, study_counts
from tausid.study.store import JOURNAL, Store

READ = ("--input", "u", "--output", "y", "--time", "t")
FIT = ("fit", "d.csv", *READ, "--nx", "1", "--hidden", "3", "--tau", "2", "--delays", "none", "--iterations", "2",
       "--set", "search=fixed", "--set", "holdout=none", "--no-report")  # fmt: skip
LONG = "a" * 300
WRITES: dict[str, Callable[[str], tuple[str, ...]]] = {
    "fit": lambda place: (*FIT, "--out", place),
    "simulate": lambda place: ("simulate", "m", "d.csv", "--out", f"{place}/s.csv"),
    "export": lambda place: ("export", "m", "--to", "c", "--out", place),
    "study": lambda place: ("study", "run", "study.toml", "--out", place),
    "look": lambda place: ("look", "d.csv", "--plot", f"{place}/p.png"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a model and a study."""
    folder = tmp_path_factory.mktemp("faults")
    record = wiener_record(80)
    rows = np.column_stack([record.t, record.u, record.y])
    for name, header in {"d.csv": "t,u,y", "umlaut.csv": "t,Füllstand,Größe,液位"}.items():
        columns = np.column_stack([rows, rows[:, 2]])[:, : header.count(",") + 1]
        np.savetxt(folder / name, columns, delimiter=",", header=header, comments="", encoding="utf-8")
    structure = Structure(nx=1, hidden=(2,), activation="tanh")
    rng = np.random.default_rng(0)
    space = build_state_space(structure, Tau(1.0), Weights(), nu=1, ny=1, n_records=1, rng=rng)
    scaling = Scaling.from_records(record)
    Model(space, scaling, structure, Integration(), record.ts, ("u",), ("y",), ("",), ("",)).save(folder / "m")
    data = '[data]\ntrain = "d.csv"\ninputs = ["u"]\noutputs = ["y"]\ntime = "t"\n'
    (folder / "study.toml").write_text(f"{data}[axes]\nseed = [0]\n")
    (folder / "file").touch()
    return folder


@pytest.fixture
def command(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., tuple[int, str]]:
    """Run a command as the program does; gives its code and what it says on standard error."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.chdir(made)
        monkeypatch.setattr(sys, "argv", ["tausid", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    "place", ["file", "file/sub", LONG, f"{LONG}/sub"], ids=["file", "below", "long", "below long"]
)
def test_a_place_that_cannot_be_written_is_named(name, place, command, made):
    code, said = command(*WRITES[name](place))
    assert code == 2 and said.count("error: ") == 1
    assert any(words in said for words in ("must be writable", "must be usable", "must be a folder")), said
    assert (made / "file").is_file() and not (made / "file").stat().st_size


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*FIT, "--nx", "1000000"), "`nx` must be a whole number of at least 1 and at most 1000; got 1000000"),
        ((*FIT, "--nx", "9" * 4000), "`nx` must be a whole number of at least 1 and at most 1000"),
        ((*FIT, "--seed", "9" * 4000), "`seed` must be a whole number of at least 0 and at most 2147483647"),
        ((*FIT, "--hidden", "9" * 10), "`hidden` must be a whole number of at least 1 and at most 65536"),
        ((*FIT, "--hidden", ",".join(["2"] * 99)), "`hidden` must be a list of at most 16 widths"),
        ((*FIT, "--set", "structure.network=polynomial", "--set", "structure.degree=99"), "at most 10; got 99"),
        ((*FIT, "--set", f"structure.hidden={'[' * 20_000}"), "a value must be at most 32 lists deep"),
        ((*FIT, "--set", f"structure.hidden={'[' * 500 + ']' * 500}"), "a value must be at most 32 lists deep"),
        ((*FIT, "--set", "trainer.iterations=" + "9" * 5000), "a number have at most 4300 digits"),
        ((*FIT, "--set", "integration.substeps=9999999"), "at most 100000; got 9999999"),
        ((*FIT[:-1], "--set", "integration.max_dt=1e-200"), "`max_dt` must be at least a 100000th of"),
        (("simulate", "m", "d.csv", "--dt", "1e-9"), "must give at most 1e+08 samples"),
        (("simulate", "m", "d.csv", "--dt", "1e-300"), "must give at most 1e+08 samples"),
        (("simulate", "m", "d.csv", "--dt", "nan"), "`dt` must be a positive number"),
        (("tau", "d.csv", "--input", "u", "--output", "y", "--ts", "1e-300"), "must be at least 1e-100 s"),
        (("fit", "d.csv", "--output", "y", "--time", "t", "--prepare", "trim 0 5"), "must be long enough to hold"),
        (("fit", "d.csv", "--output", "y", "--time", "t", "--prepare", "trim 0 15"), "--set trainer.horizon="),
        (("tau", "d.csv", "--input", "u", "--output", "y", "--ts", "1e300"), "must be finite and below 1e+100 s"),
        (("study", "run", "nested.toml"), "the spec of a study must be TOML"),
        (("study", "run", "many.toml"), "axis `seed` must have at most 100000 runs"),
        (("study", "run", "product.toml"), "a study must have at most 100000 runs; got 1000000"),
    ],
)  # fmt: skip
def test_a_value_without_bounds_is_refused_with_its_largest(words, message, command, made):
    (made / "nested.toml").write_text("a = " + "[" * 20_000)
    head = (made / "study.toml").read_text().partition("seed")[0]
    (made / "many.toml").write_text(f"{head}seed = {{ range = [0, 1000000000] }}\n")
    (made / "product.toml").write_text(f"{head}seed = {{ range = [0, 1000] }}\nnx = {{ range = [1, 1001] }}\n")
    code, said = command(*words)
    assert code == 2 and message in said
    assert len(said) < 1000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
@pytest.mark.parametrize("words", [("info", "m"), ("look", "d.csv"), ("info", "m", "--json"), ("--help",)])
def test_output_to_a_full_device_is_said(words, command, monkeypatch):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stdout", full)
        code, said = command(*words)
        with contextlib.suppress(OSError):
            full.flush()
    assert code == 2 and "standard output must be usable; it is not: No space left on device" in said


class Full(io.StringIO):
    """A stream that takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("words", [("info", "missing"), ("none",), (*FIT, "--out", "unread")], ids=lambda w: w[0])
def test_an_error_that_nobody_can_read_still_has_its_code(words, command, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Full())
    assert command(*words) == (2, "")


@pytest.mark.parametrize("names", [["stdout"], ["stderr"], ["stdout", "stderr"]], ids=" and ".join)
def test_streams_that_were_closed_before_are_no_error(names, command, monkeypatch):
    for words, code in ((("info", "m"), 0), (("info", "missing"), 2)):
        for name in names:
            monkeypatch.setattr(sys, name, None)
        assert command(*words)[0] == code


def test_a_reader_that_goes_away_is_no_error(command, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert command("info", "m", "--all") == (141, "")


def test_a_terminal_that_only_knows_ascii_shows_any_name(command, monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    assert command("look", "umlaut.csv")[0] == 0
    shown.seek(0)
    assert r"F\xfcllstand" in shown.read()


def test_names_of_files_need_not_be_utf_8(command, made):
    odd = made / os.fsdecode(b"d\xff.csv")
    odd.write_bytes((made / "d.csv").read_bytes())
    folder = os.fsdecode(b"run\xff")
    code, said = command(FIT[0], odd.name, *FIT[2:-1], "--out", folder)  # with its report
    assert code == 0, said
    for words in (("info", folder), ("info", folder, "--json"), ("report", folder), ("evaluate", folder, odd.name)):
        assert command(*words)[0] == 0, words


SEVERAL = """
import shlex, sys
from tausid import cli
for line in sys.stdin.read().splitlines():
    sys.argv = ["tausid", *shlex.split(line)]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code, line
"""


def test_no_home_no_locale_and_names_in_any_script(made):
    """A fit, an export and a study, by one process with next to no environment."""
    (made / "ü.toml").write_text(
        '[data]\ntrain = "umlaut.csv"\ninputs = ["Füllstand"]\noutputs = ["液位"]\ntime = "t"\n[settings]\nnx = 1\n'
        'tau = 2.0\nsearch = "fixed"\nholdout = "none"\ntrainer.iterations = 2\n[axes]\nseed = [0]\n',
        encoding="utf-8",
    )
    names = ["fit", "umlaut.csv", "--input", "Füllstand", "--output", "Größe", "--time", "t", *FIT[8:]]
    commands = [
        shlex.join([*names, "--out", "Läufe"]),
        "info Läufe",
        "export Läufe --to c --out Ausfuhr-ü",
        "study run ü.toml --workers 1 --out Prüfstand",
    ]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL], cwd=made, env=environment, input="\n".join(commands).encode(), check=False,
        capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "Größe" in done.stdout.decode()
    assert [row["status"] for row in read_results(made / "Prüfstand").rows] == ["completed"]


def test_a_report_that_cannot_be_written_is_said(command, made):
    assert command(*FIT, "--out", "reported")[0] == 0
    code, said = command("report", "reported", "--out", "file/report.html")
    assert code == 2 and "must be writable" in said and said.count("error: ") == 1


def test_an_offset_of_any_size_is_no_constant(command, made):
    rows = np.loadtxt(made / "d.csv", delimiter=",", skiprows=1)
    rows[:, 2] += 1e12
    np.savetxt(made / "offset.csv", rows, delimiter=",", header="t,u,y", comments="", fmt="%.17g")
    assert command("tau", "offset.csv", *READ)[0] == 0
    rows[:, 2] = 1e12 + 1e-5
    np.savetxt(made / "constant.csv", rows, delimiter=",", header="t,u,y", comments="", fmt="%.17g")
    code, said = command("tau", "constant.csv", *READ)
    assert code == 2 and "it is constant at 1e+12" in said


def test_too_little_memory_is_said(command, monkeypatch):
    def no_memory(words: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cli.app, "run", no_memory)
    code, said = command("info", "m")
    assert code == 2 and "there must be enough memory" in said


def test_too_many_processes_are_not_blamed_on_the_output(command, monkeypatch):
    def no_more(words: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(cli.app, "run", no_more)
    assert "must have open files and processes enough; it has not: Too many" in command("info", "m")[1]


def test_what_a_dead_writer_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    target = tmp_path / "x.json"
    dead = tmp_path / f"{_begun(target)}{ended.pid}.abc{PART}"
    others = [
        tmp_path / f"{_begun(target)}{os.getppid()}.abc{PART}",  # its writer lives
        tmp_path / f"{_begun(tmp_path / 'y.json')}{ended.pid}.abc{PART}",  # of another file
        tmp_path / f".x.json.00000000.{ended.pid}.abc{PART}",  # of another machine
        tmp_path / f".x.json.mine{PART}",
    ]
    for file in (dead, *others):
        file.touch()
    write_bytes(target, b"1")
    assert not dead.exists()
    assert sorted(tmp_path.iterdir()) == sorted([target, *others])


def small_fit(out: Path, **more: Any) -> tausid.FitResult:
    """A fit of about a second, by folds and then by all."""
    settings = {"search": "fixed", "structure.hidden": [3], "trainer.iterations": 2}
    return tausid.fit(wiener_record(80), seed=0, nx=1, tau=2.0, delays=None, out=out, settings=settings, **more)


# A process that begins the fit above and, once it has something to keep, goes no further.
HALF_A_FIT = """
import pathlib, sys, test_faults
out = pathlib.Path(sys.argv[1])
def stay(update):
    if list(out.glob("checkpoint*")):
        print("writing", flush=True)
        sys.stdin.read()
test_faults.small_fit(out, progress=stay)
"""


@pytest.fixture
def half_a_fit(tmp_path) -> Iterator[tuple[Path, subprocess.Popen]]:
    """A folder and the process whose fit is writing to it."""
    words = [sys.executable, "-c", HALF_A_FIT, str(tmp_path / "run")]
    with subprocess.Popen(words, cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"writing\n"
        yield tmp_path / "run", process
        process.kill()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("more", [(), ("--resume",), ("--overwrite",)], ids=["new", "resume", "overwrite"])
def test_a_folder_that_a_fit_is_writing_to_is_left_alone(more, half_a_fit, command):
    folder, process = half_a_fit
    before = contents(folder)
    code, said = command(*FIT, "--out", str(folder), *more)
    assert code == 2 and said.count("error: ") == 1
    assert f"`out` must be a folder that no other fit is writing to; another one is writing to {folder}. Wait" in said
    assert contents(folder) == before and process.poll() is None


def test_the_lock_of_a_killed_fit_blocks_nobody_and_nothing_is_lost(half_a_fit, tmp_path):
    folder, process = half_a_fit
    before = contents(folder)
    with pytest.raises(ConfigError, match="no other fit is writing to"):
        small_fit(folder, resume=True, progress=None)
    assert contents(folder) == before
    process.kill()
    process.wait()
    resumed, whole = small_fit(folder, resume=True, progress=None), small_fit(tmp_path / "whole", progress=None)
    assert resumed.model.save(tmp_path / "a").read_bytes() == whole.model.save(tmp_path / "b").read_bytes()


def test_two_threads_do_not_share_a_folder(tmp_path):
    with ThreadPoolExecutor(1) as other, only_writer(tmp_path), only_writer(tmp_path):  # one thread may, twice
        refused = other.submit(small_fit, tmp_path, progress=None).exception()
    assert isinstance(refused, ConfigError) and "no other fit is writing to" in str(refused)


def test_fits_without_a_folder_find_one_each_and_leave_none_that_is_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    free = {"resume": False, "overwrite": False}
    with run_folder(None, "d", 0, **free) as first, run_folder(None, "d", 0, **free) as second:
        first.summary_file.touch()
    assert [file.path for file in (first, second)] == [Path("runs/d-seed0"), Path("runs/d-seed0-2")]
    assert [path.name for path in Path("runs").iterdir()] == ["d-seed0"]


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP))],
)
def test_a_fit_that_a_signal_ended_is_resumed(number, made, command):
    """One fit, ended as soon as it has something to keep, then resumed to its end."""
    folder = f"run-{number}"
    words = ["fit", "d.csv", *READ, "--nx", "2", "--tau", "2", "--no-report", "--delays", "none", "--out", folder]
    process = subprocess.Popen(
        [sys.executable, "-m", "tausid.cli", *words], cwd=made, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not list((made / folder).glob("checkpoint*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(60) == -number
    code, said = command(*words, "--resume")
    assert code == 0, said
    assert not list((made / folder).glob(f".*{PART}"))


def test_a_full_disk_under_a_run_ends_the_study_and_the_run_waits(tmp_path):
    spec = write_study(tmp_path / "s", QUICK, "seed = [0, 1]")
    with limited_file_size(5000), pytest.raises(StorageError, match="File too large"):  # no checkpoint fits
        run_study(spec, executor=ThreadPoolExecutor(1))
    counts = study_counts(spec.parent)
    assert (counts.waiting, counts.finished, counts.failed) == (2, 0, 0)  # not the run's fault
    results = run_study(spec, resume=True, executor=ThreadPoolExecutor(1))
    assert [row["status"] for row in results.rows] == ["completed", "completed"]


def test_a_full_disk_under_the_journal_tears_no_outcome(tmp_path):
    runs = parse_spec({**TINY, "axes": {"seed": [0, 1]}}, folder=tmp_path).runs()
    store = Store(tmp_path / JOURNAL, "s")
    store.begin(runs, {})
    store.finish(store.take(), {"run": "seed=0", "status": "completed"})
    taken = store.take()
    size = (tmp_path / JOURNAL).stat().st_size
    outcome = {"run": "seed=1", "status": "completed", "message": "x" * 1000}
    with limited_file_size(size + 500), pytest.raises(StorageError, match="must be writable.*File too large.*--resume"):
        store.finish(taken, outcome)
    assert (tmp_path / JOURNAL).stat().st_size > size  # the line is there, and torn
    again = Store(tmp_path / JOURNAL, "s")
    assert list(again.outcomes()) == ["seed=0"]
    again.begin(runs, {})
    again.finish(again.take(), outcome)
    assert Store(tmp_path / JOURNAL, "s").outcomes()["seed=1"] == outcome


@contextlib.contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """No file of this process may grow beyond this size: a write that would is torn by the kernel."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
