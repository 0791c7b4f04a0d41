"""`tausid plot`: figures, written as PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tausid.cli.arguments import Argument, Commands, Option
from tausid.cli.options import ModelFile, OneFile, Part, Picture, Skip, reads_files
from tausid.errors import ConfigError

if TYPE_CHECKING:
    from tausid.data.sources import Columns

plot_app = Commands("Figures, written as PNG, SVG or PDF.")

DataOption = Annotated[str, Option("--data", help="A data file, or @NAME of a known dataset.")]
Models = Annotated[list[Path], Argument(metavar="MODEL", help="Model files, or the folders of runs.")]
RunArgument = Annotated[Path, Argument(metavar="RUN", help="Folder that `tausid fit` wrote to.")]


@plot_app.command("scaling")
@reads_files
def plot_scaling(
    data: OneFile,
    tau: Annotated[float, Option(help="The normalization constant in seconds.")],
    out: Picture,
    columns: Columns,
    part: Part = None,
) -> None:
    """Outputs over seconds and over normalized time."""
    from tausid.data.sources import read_part
    from tausid.results.plots import plot_time_scaling, save_figure

    print(save_figure(plot_time_scaling(read_part([data], columns, part)[0], tau), out))


@plot_app.command("simulation")
@reads_files
def plot_simulation(
    models: Models,
    data: DataOption,
    out: Picture,
    columns: Columns,
    label: Annotated[list[str] | None, Option("--label", help="Name of a model; one each, in order.")] = None,
    part: Part = None,
) -> None:
    """Measured outputs and the simulations of one or several models, residuals below."""
    from tausid.cli.runs import read_for
    from tausid.model.ensembles import load_model
    from tausid.results import plots

    names = name_models(models, label)
    loaded = [load_model(path) for path in models]
    record = read_for(loaded[0], [data], columns, part)[0]
    runs = {name: model.simulate(record, throw=False) for name, model in zip(names, loaded, strict=True)}
    first = runs[names[0]]
    if len(runs) > 1:
        figure = plots.plot_comparison(record, runs)
    elif first.low is None or first.high is None:
        figure = plots.plot_simulation(record, first)
    else:
        figure = plots.plot_band(record, first, low=first.low, high=first.high, label="four fifths of the models")
    print(plots.save_figure(figure, out))


@plot_app.command("residuals")
@reads_files
def plot_residuals(
    model: ModelFile,
    data: DataOption,
    out: Picture,
    columns: Columns,
    max_lag: Annotated[int | None, Option(help="Largest lag in samples; 50 by default.")] = None,
    skip: Skip = None,
    part: Part = None,
) -> None:
    """Correlation of a model's residuals with themselves and with the inputs, and what it means."""
    from tausid.cli.runs import read_for
    from tausid.model.ensembles import load_model
    from tausid.results.plots import plot_residuals, save_figure
    from tausid.results.residuals import analyse_residuals

    loaded = load_model(model)
    record = read_for(loaded, [data], columns, part)[0]
    found = analyse_residuals(loaded.simulate(record), record, skip=skip, max_lag=max_lag)
    print("\n".join(found.describe()))
    print(save_figure(plot_residuals(found), out))


@plot_app.command("states")
@reads_files
def plot_states(model: ModelFile, data: DataOption, out: Picture, columns: Columns, part: Part = None) -> None:
    """The normalized states during a simulation."""
    from tausid.cli.runs import read_for
    from tausid.model.ensembles import load_model
    from tausid.results.plots import plot_states, save_figure

    loaded = load_model(model)
    print(save_figure(plot_states(loaded.simulate(read_for(loaded, [data], columns, part)[0])), out))


@plot_app.command("history")
def plot_history(run: RunArgument, out: Picture) -> None:
    """Errors, learning rate and gradient norm over the steps of a training, the best step marked."""
    from tausid.results.plots import plot_history, save_figure
    from tausid.results.runs import RunFolder

    files = RunFolder(run)
    print(save_figure(plot_history(files.read_history(), best_step=files.best_step), out))


@plot_app.command("tau")
def plot_tau_path(run: RunArgument, out: Picture) -> None:
    """Tau over the steps of a training."""
    from tausid.results.plots import plot_tau_path, save_figure
    from tausid.results.runs import RunFolder

    files = RunFolder(run)
    print(save_figure(plot_tau_path(files.read_history(), best_step=files.best_step), out))


@plot_app.command("bla")
@reads_files
def plot_bla(
    data: OneFile,
    out: Picture,
    columns: Columns,
    nx: Annotated[int | None, Option(help="Order; chosen automatically by default.")] = None,
    hold: Annotated[str, Option(help="Inputs between samples: zero or first.")] = "zero",
    period: Annotated[
        int | None, Option(help="Samples per period of a periodic input: also draws noise and distortion.")
    ] = None,
    skip_periods: Annotated[int, Option(help="Leading periods to leave out.")] = 0,
    part: Part = None,
) -> None:
    """Poles and frequency response of the best linear approximation."""
    from tausid.data.sources import read_part
    from tausid.linear import estimate_bla, estimate_frf
    from tausid.results.plots import plot_bla, save_figure

    record = read_part([data], columns, part)[0]
    model = estimate_bla(record, nx="auto" if nx is None else nx, hold=hold)
    measured = None if period is None else estimate_frf(record, period=period, skip_periods=skip_periods)
    print(save_figure(plot_bla(model, measured), out))


def name_models(models: Sequence[Path], labels: Sequence[str] | None) -> list[str]:
    """One name per model: those given, or the shortest ends of their paths that differ."""
    from tausid.results.runs import RunFolder

    if labels:
        if len(labels) != len(models) or len(set(labels)) < len(labels):
            raise ConfigError(
                f"`--label` must be given once per model, all different; got {len(labels)} for {len(models)} models. "
                "Give one each, or none."
            )
        return list(labels)
    paths = [path.resolve().parent if path == RunFolder(path.parent).model_file else path for path in models]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-length:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise ConfigError("`MODEL...` must be different files; one is given twice. Leave it out.")
