"""The commands."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tausid import __version__
from tausid.cli.arguments import Argument, Commands, Option
from tausid.cli.options import (
    X0,
    After,
    Data,
    Json,
    ModelFile,
    OneFile,
    Part,
    PlotOption,
    Skip,
    parse_delays,
    parse_settings,
    parse_shortcuts,
    parse_tau,
    reads_files,
)
from tausid.cli.plot import plot_app
from tausid.cli.report import report_command
from tausid.cli.study import app as study_app

if TYPE_CHECKING:
    from tausid.data.sources import Columns

app = Commands("Continuous-time nonlinear system identification with state derivative normalization.", __version__)
datasets_app = Commands("Benchmark records by name.")


@app.command("fit")
@reads_files
def fit(
    data: Data,
    columns: Columns,
    tau: Annotated[str, Option(help="bla, spectrum, trained, or seconds (several by commas).")] = "bla",
    train_tau: Annotated[bool, Option("--train-tau", help="Train tau, starting from --tau.")] = False,
    nx: Annotated[int | None, Option(help="Number of states; by default the recipe's.")] = None,
    delays: Annotated[str, Option(help="Delays of the inputs: auto, none, or seconds (by commas).")] = "auto",
    seed: Annotated[int, Option(help="Seed of the initial weights and of the windows.")] = 0,
    ensemble: Annotated[int | None, Option(help="Train this many models and average them.")] = None,
    keep: Annotated[int | None, Option(help="Members to keep: the best on held-out data.")] = None,
    workers: Annotated[int | None, Option(help="Processes for the ensemble; one per core.")] = None,
    physics: Annotated[str | None, Option(help="Known equations: CascadedTanks or MassWithFriction.")] = None,
    iterations: Annotated[int | None, Option(help="Maximum iterations of Levenberg-Marquardt.")] = None,
    hidden: Annotated[str | None, Option(help="Widths of the hidden layers, such as 20 or 64,64.")] = None,
    activation: Annotated[str | None, Option(help="leaky_relu, tanh, relu, elu, sigmoid, ...")] = None,
    recipe: Annotated[str, Option(help="default, windows or paper.")] = "default",
    protocol: Annotated[str, Option(help="clean, or paper, which validates on test data.")] = "clean",
    validation: Annotated[list[str] | None, Option(help="Validation file or folder; repeat for several.")] = None,
    test: Annotated[list[str] | None, Option(help="Test file or folder; repeat for several.")] = None,
    test_input: Annotated[list[str] | None, Option(help="Input column of the test record, if different.")] = None,
    test_output: Annotated[list[str] | None, Option(help="Output column of the test record, if different.")] = None,
    skip: Skip = None,
    set: Annotated[list[str] | None, Option("--set", help="A setting, such as trainer.iterations=60.")] = None,
    out: Annotated[Path | None, Option(help="Folder of the run; runs/... by default.")] = None,
    resume: Annotated[bool, Option("--resume", help="Resume the run in --out.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in --out.")] = False,
    report: Annotated[bool, Option(help="Write report.html.")] = True,
    json: Json = False,
) -> None:
    """Identify a model from measured data, score it by free-run simulation, and save it."""
    import tausid
    from tausid.checks import check_whole
    from tausid.cli.printing import describe_physics, describe_tau, print_json, print_notes, print_pairs, print_scores
    from tausid.cli.report import write_report_if_possible
    from tausid.cli.runs import run_folder
    from tausid.data.sources import read_fit_data, source_sums
    from tausid.model.evaluation import check_skip
    from tausid.results.runs import Run
    from tausid.training.run_state import Status

    records = read_fit_data(
        data, columns, validation=validation, test=test, test_inputs=test_input, test_outputs=test_output
    )
    print_notes((*records.train, *records.validation, *records.tests))
    shortcuts = {"trainer.iterations": iterations, "structure.hidden": hidden, "structure.activation": activation}
    settings = parse_settings(set) | parse_shortcuts(shortcuts)
    for record in (*records.train, *records.tests):
        check_skip(record, skip or 0)
    check_whole("seed", seed, 0)  # before a folder is named by it
    with run_folder(out, records.name, seed, resume=resume, overwrite=overwrite) as files:
        result = tausid.fit(
            records.train,
            tau=parse_tau(tau, trainable=train_tau),
            seed=seed,
            nx=nx,
            delays=parse_delays(delays),
            physics=physics,
            ensemble=ensemble,
            keep=keep,
            workers=workers,
            recipe=recipe,
            protocol=protocol,
            validation=records.validation or None,
            test=records.tests or None,
            out=files.path,
            resume=resume,
            overwrite=overwrite,
            settings=settings,
        )
        if result.status == Status.INTERRUPTED:
            print(f"{result.message}\nresume with: {_command(files.path)} --resume", file=sys.stderr)
            raise SystemExit(130)
        run = Run.from_result(result, train=records.train, tests=records.tests, skip=skip)
        sources = source_sums([*data, *(validation or ()), *(test or ())])
        reading = {"name": data[0], **columns.options}
        run = replace(run, name=records.name, command=_command(files.path), sources=sources, reading=reading)
        summary = files.write(run)
        if not json:  # the report takes a moment
            about = {"tau": describe_tau(result.model), "status": f"{result.status}: {result.message}"}
            print_pairs({**about, **describe_physics(result.model)})
            print_scores(run.scores, result.model)
        page = write_report_if_possible(files.path) if report else {}
    if json:
        print_json({**summary, **{name: str(path) for name, path in page.items()}})
    else:
        print_pairs({"model": files.model_file, "history": files.history_file, "summary": files.summary_file, **page})
    if result.status == Status.DIVERGED:
        print(f"error: {result.message}", file=sys.stderr)
        raise SystemExit(1)


@app.command("look")
@reads_files
def look(
    data: OneFile,
    columns: Columns,
    part: Part = None,
    plot: PlotOption = None,
    json: Json = False,
) -> None:
    """Take a first look at data: channels, clock, gaps, limits, excitation, and what to do about them."""
    from tausid.cli.look import channels_to_look_at, print_inspection
    from tausid.cli.printing import print_json
    from tausid.data.inspection import inspect_channels
    from tausid.results.plots import plot_record, save_figure

    channels = channels_to_look_at(data, columns, part)
    found = inspect_channels(channels)
    picture = None if plot is None else save_figure(plot_record(channels), plot)
    if json:
        print_json({**found.as_dict(), **({} if picture is None else {"picture": str(picture)})})
    else:
        print_inspection(found, picture)


@app.command("tau")
@reads_files
def tau(
    data: Data,
    columns: Columns,
    method: Annotated[str, Option(help="bla, spectrum, trained or cv.")] = "bla",
    nx: Annotated[str, Option(help="Order of the linear approximation, or auto.")] = "auto",
    hold: Annotated[str, Option(help="Inputs between samples: zero or first.")] = "zero",
    trials: Annotated[int | None, Option(help="Fits of a cross-validation; 20 by default.")] = None,
    search: Annotated[str | None, Option(help="Cross-validation: refine (default) or grid.")] = None,
    seed: Annotated[int | None, Option(help="Seed of the fits, for trained and cv; 0 by default.")] = None,
    set: Annotated[list[str] | None, Option("--set", help="A setting of the fits, as KEY=VALUE.")] = None,
    out: Annotated[
        Path | None, Option(help="Folder of the training or cross-validation; resumed if it holds one.")
    ] = None,
    plot: PlotOption = None,
    json: Json = False,
) -> None:
    """Estimate tau from data and say how."""
    from tausid.cli.printing import print_json, print_notes, print_pairs
    from tausid.cli.tau import describe_estimate, estimate, estimate_dict
    from tausid.data.sources import read_part
    from tausid.results.plots import plot_tau, save_figure

    records = read_part(data, columns, "train" if data[0].startswith("@") else None)
    print_notes(records)
    options = {"seed": seed, "trials": trials, "search": search, "out": out}
    given = {name: value for name, value in options.items() if value is not None}
    found = estimate(records, method, nx, hold, given | ({"settings": parse_settings(set)} if set else {}))
    paths = {} if plot is None else {"picture": save_figure(plot_tau(found, records[0]), plot)}
    if json:
        print_json({**estimate_dict(found, records[0]), **{name: str(path) for name, path in paths.items()}})
    else:
        print_pairs({**describe_estimate(found, records[0]), **paths})


@app.command("order")
@reads_files
def order(
    data: Data,
    columns: Columns,
    hold: Annotated[str, Option(help="Inputs between samples: zero or first.")] = "zero",
    plot: PlotOption = None,
    json: Json = False,
) -> None:
    """Show how many states data need: the held-out error of linear models over their order."""
    import tausid
    from tausid.cli.printing import print_columns, print_json, print_notes
    from tausid.data.sources import read_part
    from tausid.results.plots import plot_order, save_figure

    records = read_part(data, columns, "train" if data[0].startswith("@") else None)
    print_notes(records)
    found = tausid.estimate_order(records, hold=hold)
    picture = None if plot is None else str(save_figure(plot_order(found), plot))
    if json:
        print_json({"order": found.order, "errors": dict(found.errors), "picture": picture})
        return
    rows = [(str(n), f"{100 * error:.2f}", "<" if n == found.order else "") for n, error in found.errors.items()]
    print_columns(("states", "held-out error (% of deviation)", ""), rows)
    states = f"{found.order} state{'s' * (found.order > 1)}"
    print(f"{states}: the fewest within 3 % of the best linear model. For a fit: --nx {found.order}")
    if picture is not None:
        print(picture)


@app.command("simulate")
@reads_files
def simulate(
    model: ModelFile,
    data: OneFile,
    columns: Columns,
    out: Annotated[Path, Option(help="CSV file to write.")] = Path("simulation.csv"),
    part: Part = None,
    dt: Annotated[float | None, Option(help="Seconds between simulated samples.")] = None,
    x0: X0 = None,
    after: After = None,
) -> None:
    """Simulate a model over the inputs of a record, with or without outputs, and write its outputs to a CSV file."""
    import tausid
    from tausid.cli.runs import parse_x0, read_for, write_simulation

    loaded = tausid.load_model(model)
    record = read_for(loaded, [data], columns, part, inputs_alone=True)[0]
    simulation = loaded.simulate(record, dt=dt, x0=parse_x0(x0, after, loaded, columns))
    path = write_simulation(out, record, simulation)
    print(f"simulated {len(simulation.t)} samples of {record.name}, the first {simulation.n_skipped} for the "
          f"initial state ({simulation.initial_state}): {path}")  # fmt: skip


@app.command("evaluate")
@reads_files
def evaluate(
    model: ModelFile,
    data: Data,
    columns: Columns,
    part: Part = None,
    skip: Skip = None,
    x0: X0 = None,
    official: Annotated[
        bool, Option("--official", help="The benchmark's own score: its window, its rate, its test records.")
    ] = False,
    json: Json = False,
) -> None:
    """Score a model on records by free-run simulation, in physical units."""
    import tausid
    from tausid.cli.printing import print_json, print_scores
    from tausid.cli.runs import read_for
    from tausid.data.sources import read_official

    loaded = tausid.load_model(model)
    if official:
        scores = tausid.evaluate_official(loaded, read_official(data, columns, part=part, skip=skip, x0=x0))
    else:
        scores = tausid.evaluate_records(loaded, read_for(loaded, data, columns, part), skip=skip, x0=x0)
    if not json:
        print_scores({"": scores}, loaded)
        return
    from tausid.results.summary import describe_model, score_dict

    print_json({**score_dict(scores), **describe_model(loaded, model)})


@app.command("info")
def info(
    model: Annotated[Path | None, Argument(metavar="MODEL", help="A model file, or the folder of a run.")] = None,
    all: Annotated[bool, Option("--all", help="Show every setting and where the model came from.")] = False,
    engines: Annotated[bool, Option("--engines", help="Show which engine is used here, and why.")] = False,
    json: Json = False,
) -> None:
    """Describe a model, or the compute engines of this machine."""
    import tausid
    from tausid.cli.info import describe_all, describe_engines, describe_in_short, describe_json
    from tausid.cli.printing import print_json, print_pairs

    loaded = None if model is None else tausid.load_model(model)
    if engines or model is None or loaded is None:
        about: dict[str, Any] = dict(describe_engines(loaded))
    elif json:
        about = describe_json(loaded, model)
    else:
        about = describe_all(loaded, model) if all else describe_in_short(loaded, model)
    print_json(about) if json else print_pairs(about)


@app.command("export")
def export(
    model: ModelFile,
    to: Annotated[str, Option(help="What to write: c, fmu, onnx, casadi or matlab.")],
    out: Annotated[Path, Option(help="Folder to write to.")],
    name: Annotated[str, Option(help="What functions and files are called.")] = "model",
) -> None:
    """Write a model for another program, with a README that says how to use and how to verify it."""
    import tausid
    from tausid.export import write_model

    for path in write_model(tausid.load_model(model), to, out, name=name):
        print(path)


@app.command("demo")
def demo(
    out: Annotated[Path, Option(help="Folder to write to.")] = Path("demo"),
    iterations: Annotated[int | None, Option(help="Maximum iterations; by default the recipe's.")] = None,
) -> None:
    """Identify the cascaded tanks, from data to a model, scores, a picture and a report."""
    from tausid.cli.demo import run_demo

    run_demo(out, iterations)


@datasets_app.command("list")
def list_datasets() -> None:
    """List the datasets that can be used as @NAME."""
    from tausid.cli.printing import print_pairs
    from tausid.data import datasets

    print_pairs({f"@{name}": datasets.describe(name) for name in datasets.names()})


@datasets_app.command("get")
def get_dataset(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the dataset.")],
    out: Annotated[Path | None, Option(help="Write its records to this folder: train.csv, test.csv, ...")] = None,
) -> None:
    """Find or download a dataset, check it, and print the paths of its files; or write its records as CSV files."""
    from tausid.cli.runs import write_dataset
    from tausid.data import datasets

    name = name.removeprefix("@")
    paths = datasets.fetch(name) if out is None else write_dataset(out, datasets.load(name))
    for path in paths:
        print(path)
    if not paths:
        print(f"note: @{name} is simulated and has no files; --out FOLDER writes some", file=sys.stderr)


for _name, _group in {"datasets": datasets_app, "plot": plot_app, "study": study_app}.items():
    app.add(_name, _group)
app.command("report")(report_command)


def _command(folder: Path) -> str:
    """The command that makes the same run, into the same folder."""
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--resume", "--overwrite")]
    where = [] if "--out" in arguments else ["--out", str(folder)]
    return shlex.join(["tausid", *arguments, *where])
