"""`tausid plot`: figures, written as PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tausid.cli.options import Columns, Inputs, OneFile, Outputs, Part, Time, Ts, Units, read_part
from tausid.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tausid.simulation import Model

plot_app = typer.Typer(help="Figures, written as PNG, SVG or PDF.", no_args_is_help=True)

Picture = Annotated[Path, typer.Option("--out", help="Picture to write: its ending is .png, .svg or .pdf.")]
DataOption = Annotated[str, typer.Option("--data", help="A CSV file, or @NAME of a known dataset.")]
Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model files, or the folders of runs.")]


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
    record = read_part([data], Columns(input, output, ts, time, unit), part)[0]

    def draw() -> Figure:
        from tausid.plots import plot_time_scaling

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
    record = read_part([data], Columns(input, output, ts, time, unit), part)[0]
    names = name_models(models, label)

    def draw() -> Figure:
        from tausid import plots

        runs = {name: load(path).simulate(record, throw=False) for name, path in zip(names, models, strict=True)}
        return plots.plot_simulation(record, runs[names[0]]) if len(runs) == 1 else plots.plot_comparison(record, runs)

    write_picture(out, draw)


def write_picture(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure, write it and print where; a wrong ending is refused before anything is drawn.

    Args:
        path: where to write.
        draw: draws it.
    """
    from tausid.plots import check_picture, save_figure

    check_picture(path)
    print(save_figure(draw(), path))


def load(path: Path) -> Model:
    """The model of a file, or of a run's folder.

    Args:
        path: the file or the folder.

    Returns:
        The model.
    """
    from tausid.run_folder import MODEL
    from tausid.simulation import load_model

    return load_model(path / MODEL if path.is_dir() else path)


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
    from tausid.run_folder import MODEL

    if labels:
        if len(labels) != len(models) or len(set(labels)) < len(labels):
            raise ConfigError(
                f"`--label` must be given once per model, each another; got {len(labels)} for {len(models)} models. "
                "Give one each, or none."
            )
        return list(labels)
    paths = [path.parent if path.name == MODEL else path for path in models]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-length:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise ConfigError("`MODEL...` must be different files; one is given twice. Leave it out.")
