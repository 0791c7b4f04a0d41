"""`tausid plot`: figures, written as PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tausid.cli.options import Inputs, OneFile, Outputs, Part, Skip, Time, Ts, Units, read_columns
from tausid.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

plot_app = typer.Typer(help="Figures, written as PNG, SVG or PDF.", no_args_is_help=True, rich_markup_mode=None)

Picture = Annotated[Path, typer.Option("--out", help="Picture to write: its ending is .png, .svg or .pdf.")]
DataOption = Annotated[str, typer.Option("--data", help="A CSV file, or @NAME of a known dataset.")]
Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model files, or the folders of runs.")]

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `tausid fit` wrote to.")]


@plot_app.command("scaling")
def plot_scaling(
    data: OneFile,
    tau: Annotated[float, typer.Option(help="The normalization constant in seconds.")],
    out: Picture,
    input: Inputs = None,
    output: Outputs = None,
    ts: Ts = None,
    time: Time = None,
    unit: Units = None,
    part: Part = None,
) -> None:
    """Outputs over seconds and over normalized time."""
    from tausid.data.sources import read_part

    record = read_part([data], read_columns(input, output, ts, time, unit), part)[0]

    def draw() -> Figure:
        from tausid.results.plots import plot_time_scaling

        return plot_time_scaling(record, tau)

    write_picture(out, draw)


@plot_app.command("simulation")
def plot_simulation(
    models: Models,
    data: DataOption,
    out: Picture,
    label: Annotated[list[str] | None, typer.Option("--label", help="Name of a model; one each, in order.")] = None,
    input: Inputs = None,
    output: Outputs = None,
    ts: Ts = None,
    time: Time = None,
    unit: Units = None,
    part: Part = None,
) -> None:
    """Measured outputs against the simulations of one or several models, residuals below."""
    from tausid.data.sources import read_part

    record = read_part([data], read_columns(input, output, ts, time, unit), part)[0]
    names = name_models(models, label)

    def draw() -> Figure:
        from tausid.cli.runs import load
        from tausid.results import plots

        runs = {name: load(path).simulate(record, throw=False) for name, path in zip(names, models, strict=True)}
        first = runs[names[0]]
        if len(runs) > 1:
            return plots.plot_comparison(record, runs)
        if first.low is None or first.high is None:
            return plots.plot_simulation(record, first)
        return plots.plot_band(record, first, low=first.low, high=first.high, label="four fifths of the models")

    write_picture(out, draw)


@plot_app.command("residuals")
def plot_residuals(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")],
    data: DataOption,
    out: Picture,
    max_lag: Annotated[int | None, typer.Option(help="Largest lag in samples; 50 by default.")] = None,
    skip: Skip = None,
    input: Inputs = None,
    output: Outputs = None,
    ts: Ts = None,
    time: Time = None,
    unit: Units = None,
    part: Part = None,
) -> None:
    """Correlation of a model's residuals with themselves and with the inputs, and what it says."""
    from tausid.data.sources import read_part

    record = read_part([data], read_columns(input, output, ts, time, unit), part)[0]

    def draw() -> Figure:
        from tausid.cli.runs import load
        from tausid.results.plots import plot_residuals
        from tausid.results.residuals import analyse_residuals

        found = analyse_residuals(load(model).simulate(record), record, skip=skip, max_lag=max_lag)
        print("\n".join(found.describe()))
        return plot_residuals(found)

    write_picture(out, draw)


@plot_app.command("states")
def plot_states(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")],
    data: DataOption,
    out: Picture,
    input: Inputs = None,
    output: Outputs = None,
    ts: Ts = None,
    time: Time = None,
    part: Part = None,
) -> None:
    """The normalized states along a simulation."""
    from tausid.data.sources import read_part

    record = read_part([data], read_columns(input, output, ts, time), part)[0]

    def draw() -> Figure:
        from tausid.cli.runs import load
        from tausid.results.plots import plot_states

        return plot_states(load(model).simulate(record))

    write_picture(out, draw)


@plot_app.command("history")
def plot_history(run: RunArgument, out: Picture) -> None:
    """Errors, learning rate and gradient norm over the steps of a training, the best step marked."""

    def draw() -> Figure:
        from tausid.results.plots import plot_history
        from tausid.results.runs import RunFolder

        files = RunFolder(run)
        return plot_history(files.read_history(), best_step=files.best_step)

    write_picture(out, draw)


@plot_app.command("tau")
def plot_tau_path(run: RunArgument, out: Picture) -> None:
    """Tau over the steps of a training."""

    def draw() -> Figure:
        from tausid.results.plots import plot_tau_path
        from tausid.results.runs import RunFolder

        files = RunFolder(run)
        return plot_tau_path(files.read_history(), best_step=files.best_step)

    write_picture(out, draw)


@plot_app.command("bla")
def plot_bla(
    data: OneFile,
    out: Picture,
    nx: Annotated[int | None, typer.Option(help="Order; chosen by itself by default.")] = None,
    hold: Annotated[str, typer.Option(help="Inputs between samples: zero or first.")] = "zero",
    period: Annotated[
        int | None, typer.Option(help="Samples per period of a periodic input: draws noise and distortion, too.")
    ] = None,
    skip_periods: Annotated[int, typer.Option(help="Leading periods to leave out.")] = 0,
    input: Inputs = None,
    output: Outputs = None,
    ts: Ts = None,
    time: Time = None,
    part: Part = None,
) -> None:
    """Poles and frequency response of the best linear approximation."""
    from tausid.data.sources import read_part

    record = read_part([data], read_columns(input, output, ts, time), part)[0]

    def draw() -> Figure:
        from tausid.linear import estimate_bla, estimate_frf
        from tausid.results.plots import plot_bla

        model = estimate_bla(record, nx="auto" if nx is None else nx, hold=hold)
        measured = None if period is None else estimate_frf(record, period=period, skip_periods=skip_periods)
        return plot_bla(model, measured)

    write_picture(out, draw)


def write_picture(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure, write it and print where; a wrong ending is refused before anything is drawn.

    Args:
        path: where to write.
        draw: draws it.
    """
    from tausid.results.plots import check_picture, save_figure

    check_picture(path)
    print(save_figure(draw(), path))


def name_models(models: Sequence[Path], labels: Sequence[str] | None) -> list[str]:
    """One name per model: those given, or the shortest ends of their paths that differ.

    Args:
        models: the model files.
        labels: names that were given.

    Returns:
        The names.

    Raises:
        ConfigError: not as many labels as models, or a label twice.
    """
    from tausid.results.runs import RunFolder

    if labels:
        if len(labels) != len(models) or len(set(labels)) < len(labels):
            raise ConfigError(
                f"`--label` must be given once per model, each another; got {len(labels)} for {len(models)} models. "
                "Give one each, or none."
            )
        return list(labels)
    paths = [path.parent if path == RunFolder(path.parent).model_file else path for path in models]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-length:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise ConfigError("`MODEL...` must be different files; one is given twice. Leave it out.")
