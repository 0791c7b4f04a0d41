"""The commands of `tausid study`."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

from tausid.cli.arguments import Argument, Commands, Option
from tausid.cli.options import Json, Picture, split_pair
from tausid.errors import ConfigError, ExecutorError, StorageError

if TYPE_CHECKING:
    from rich.table import Table

    from tausid.study import StudyResults, StudyUpdate

app = Commands("Many fits: run them, follow them, compare them.")
Folder = Annotated[Path, Argument(metavar="STUDY", help="A study's folder.")]
ScoreColumn = Annotated[
    str | None, Option("--score", help="Column to compare; the test error by default, or the validation error.")
]
WIDEST = 1000  # more than any table that is printed whole
By = Annotated[list[str] | None, Option("--by", help="Column to group by; repeat for several.")]


@app.command("run")
def run(
    spec: Annotated[Path, Argument(metavar="SPEC.toml", help="What to run.")],
    out: Annotated[Path | None, Option(help="Folder of the study; by default that of the spec.")] = None,
    workers: Annotated[int | None, Option(help="Runs at a time; one per core by default.")] = None,
    scheduler: Annotated[str | None, Option(help="Address of a Dask scheduler, tcp://HOST:PORT.")] = None,
    storage: Annotated[str | None, Option(help="URL of a database, for many machines.")] = None,
    resume: Annotated[bool, Option("--resume", help="Resume a study.")] = False,
) -> None:
    """Run all runs of a study that are not finished yet."""
    from tausid.study import run_study

    hint = shlex.join(["tausid", *(word for word in sys.argv[1:] if word != "--resume"), "--resume"])
    shown = _Shown()
    try:
        with shown:
            results = run_study(
                spec,
                out=out,
                workers=workers,
                scheduler=scheduler,
                storage=storage,
                resume=resume,
                report=shown,
            )
    except KeyboardInterrupt:
        print(f"stopped; finished runs are kept. Resume with: {hint}", file=sys.stderr)
        raise SystemExit(130) from None
    except (ExecutorError, StorageError) as error:
        print(f"error: {error}" + (f"\nResume with: {hint}" if shown.begun else ""), file=sys.stderr)
        raise SystemExit(2) from None
    print_table(results)


@app.command("status")
def status(
    study: Folder,
    storage: Annotated[str | None, Option(help="URL of the database, where the study has one.")] = None,
    json: Json = False,
) -> None:
    """Show the progress of a study: runs waiting, running, finished, failed."""
    import dataclasses

    from tausid.cli.printing import print_json, print_pairs
    from tausid.study import study_counts

    counts = dataclasses.asdict(study_counts(study, storage=storage))
    print_json(counts) if json else print_pairs(counts)


@app.command("table")
def table(
    study: Folder,
    by: By = None,
    score: ScoreColumn = None,
    runs: Annotated[bool, Option("--runs", help="One row per run instead of one per group.")] = False,
    json: Json = False,
) -> None:
    """Compare the finished runs: how many, best, median, mean, standard deviation, worst; or with reference values."""
    from tausid.cli.printing import print_json
    from tausid.results.comparison import compare, read_compared, read_references
    from tausid.study import read_results

    references = () if runs or by or score else read_references(study)
    if references:
        results = read_compared(study)
        compared = compare(results, references)
        if json:  # which has no infinite numbers
            rows = [{key: None if value == math.inf else value for key, value in row.items()} for row in compared]
            print_json({"name": results.name, "compared": rows})
        else:
            _print_compared(results.name, compared)
        return
    results = read_results(study)
    if json:
        content = [dict(row) for row in results.rows] if runs else results.summary(by, score=score)
        print_json({"name": results.name, "runs" if runs else "groups": content})
    elif runs:
        _print_runs(results)
    else:
        print_table(results, by, score)


@app.command("plot")
def plot(
    study: Folder,
    out: Picture,
    by: Annotated[str | None, Option("--by", help="Column to group by; by default the study's only axis.")] = None,
    score: ScoreColumn = None,
    name: Annotated[str, Option(help="What the study is, for the legend.")] = "here",
    beside: Annotated[
        list[str] | None, Option("--beside", help="Another study to draw beside, as NAME=PATH; repeat for several.")
    ] = None,
    mark: Annotated[list[str] | None, Option("--mark", help="A value to mark, as NAME=VALUE.")] = None,
    y_max: Annotated[float | None, Option(help="Upper end of the axis.")] = None,
    unit: Annotated[str, Option(help="Unit of the score.")] = "",
) -> None:
    """Draw a box plot of the scores over an axis."""
    from tausid.results.plots import plot_study_boxes, save_figure
    from tausid.study import read_results

    results = read_results(study)
    column, compared = by or _only_axis(results), score or results.score
    boxes = results_by(results, column, compared)
    named = dict(split_pair(text, "--beside", "paper=paper.csv") for text in beside or ())
    if len(named) < len(beside or ()):
        raise ConfigError(f"`--beside` must have a name of its own for each study; got {', '.join(beside or ())}.")
    others = {other: results_by(read_results(Path(path)), column, compared) for other, path in named.items()}
    marks = dict(_read_mark(text) for text in mark or ())
    label = f"{compared} ({unit})" if unit else compared
    figure = plot_study_boxes(boxes, x_label=column, y_label=label, beside=others, marks=marks, y_max=y_max, name=name)
    print(save_figure(figure, out))


def results_by(results: StudyResults, column: str, score: str) -> dict[Any, list[float]]:
    """Scores by the values of a column; infinite where a run has none."""
    if not results.rows:
        raise ConfigError(f"a box plot must have finished runs; {results.name} has none yet. Wait for the first.")
    results.check_score(score)
    groups = results.groups([column]).items()
    return {
        str(list(value)) if isinstance(value, tuple) else value: [_number(row.get(score)) for row in rows]
        for (value,), rows in groups
    }


def _read_mark(text: str) -> tuple[str, float]:
    name, value = split_pair(text, "--mark", "BLA=0.05")
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(f"`--mark` must be NAME=NUMBER; got {text!r}. Write, for instance, BLA=0.05.") from None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("inf")


def _only_axis(results: StudyResults) -> str:
    if len(results.axes) != 1:
        raise ConfigError(
            f"a box plot must have one axis; {results.name} has {', '.join(results.axes) or 'none'}. Choose with --by."
        )
    return results.axes[0]


def print_table(results: StudyResults, by: Sequence[str] | None = None, score: str | None = None) -> None:
    """Print one row per group of runs."""
    column = results.score if score is None else score
    groups = results.summary(by, score=column)
    if not groups:
        _print_nothing(results)
        return
    _print_rows(f"{results.name}: {len(results.rows)} finished runs, {column}", list(groups[0]), groups)
    if not any(group["scored"] for group in groups):
        print(f"No run has a {column}. {_describe_failures(results)}")


def _print_compared(name: str, compared: Sequence[Mapping[str, Any]]) -> None:
    columns = [key for key in compared[0] if any(row[key] is not None for row in compared)]
    _print_rows(f"{name}: free-run errors beside reference values", columns, compared, whole=True)


def _print_runs(results: StudyResults) -> None:
    if not results.rows:
        _print_nothing(results)
        return
    rows = results.rows
    scores = [key for key in results.columns if "_rmse" in key]
    wanted = ("run", "status", "steps", "seconds", *scores, "message")
    columns = [key for key in wanted if any(row.get(key) not in (None, "") for row in rows)]
    _print_rows(f"{results.name}: {len(rows)} finished runs", columns, rows)


def _print_nothing(results: StudyResults) -> None:
    print(f"{results.name}: no run has finished yet. See its progress with `tausid study status`.")


def _describe_failures(results: StudyResults) -> str:
    from tausid.results.study_results import StudyStatus

    reasons = [str(row.get("message") or row["status"]) for row in results.rows if row["status"] == StudyStatus.FAILED]
    return f"{len(reasons)} of {len(results.rows)} failed, the first one: {reasons[0]}" if reasons else "None failed."


def _print_rows(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, whole: bool = False) -> None:
    """A table, folded to the width of the terminal, or whole where a cell is a number to be read."""
    from rich.console import Console
    from rich.table import Table

    made = Table(title=title)
    for name in columns:
        made.add_column(name, justify="right", overflow="fold", no_wrap=whole)
    for row in rows:
        made.add_row(*(_cell(row.get(name)) for name in columns))
    console = Console()
    if whole:
        console.width = max(console.width, Console(width=WIDEST).measure(made).maximum)
    console.print(made)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return str(list(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _Shown:
    """How a study goes, on standard error: a live table on a terminal, a line per finished run elsewhere."""

    def __init__(self) -> None:
        self.begun = False
        self._waits = False
        self._live: Any = None

    def __enter__(self) -> _Shown:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, update: StudyUpdate) -> None:
        self.begun = True
        if self._live is not None:
            self._live.update(_live_table(update))
        elif update.just_finished is not None:
            _print_line(f"{_describe_run(update.just_finished)}; {_progress(update)}")
        elif _waits_for_workers(update) and not self._waits:
            _print_line("waiting for workers: the cluster has none yet")
        self._waits = _waits_for_workers(update)


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _describe_run(row: Mapping[str, Any]) -> str:
    return f"{row['run']}: {row['status']}, {_describe_score(row)}"


def _waits_for_workers(update: StudyUpdate) -> bool:
    return update.slots == 0 and update.counts.waiting + len(update.running) > 0


def _live_table(update: StudyUpdate) -> Table:
    from rich.table import Table

    made = Table(title=f"study {update.name}", show_header=False)
    counts = update.counts
    made.add_row("done", f"{counts.finished} of {sum(vars(counts).values())}")
    idle = "waiting for workers" if _waits_for_workers(update) else "-"
    made.add_row("running", ", ".join(update.running) or idle)
    made.add_row("failed", str(counts.failed))
    made.add_row("time left", _time_left(update))
    made.add_row("best so far", _best(update))
    return made


def _progress(update: StudyUpdate) -> str:
    counts = update.counts
    failed = f", {counts.failed} failed" if counts.failed else ""
    return f"{counts.finished} of {sum(vars(counts).values())} done{failed}, {_time_left(update)} left"


def _time_left(update: StudyUpdate) -> str:
    from tausid.training.progress import describe_duration

    return describe_duration(update.seconds_left) if update.seconds_left == update.seconds_left else "unknown time"


def _best(update: StudyUpdate) -> str:
    scored = [row for row in update.results.rows if row.get("validation_rmse") is not None]
    if not scored:
        return "-"
    best = min(scored, key=lambda row: row["validation_rmse"])
    return f"{best['run']}: {_describe_score(best)}"


def _describe_score(row: Mapping[str, Any]) -> str:
    from tausid.results.study_results import StudyStatus

    if row["status"] == StudyStatus.FAILED:
        return str(row["message"])
    named = {"validation": row.get("validation_rmse"), "test": row.get("test_rmse")}
    return ", ".join(f"{name} RMSE {value:.4g}" for name, value in named.items() if value is not None) or "no score"
