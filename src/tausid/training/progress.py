"""How a fit tells what it is doing: a live line on a terminal, plain lines elsewhere, always on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tausid.errors import ConfigError
from tausid.model.model import Model

SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True)
class ProgressUpdate:
    """What is known after a chunk of steps.

    Args:
        step: steps taken.
        max_steps: most steps to take.
        loss: mean squared simulation error of the last windows, normalized.
        validation: free-run error on the validation records or of the fold at hand, normalized; NaN without any.
        best: the lowest of these.
        best_step: its step.
        recoveries: how often training went back to its best state.
        steps_per_second: speed of the last chunk; NaN where most of it went into compiling.
        status: `running`, or how training ended.
        note: what to say first, such as the fold at hand, or how many members of an ensemble are done.
        unit: what is counted: a `step`, or a `fit` in a search.
    """

    step: int
    max_steps: int
    loss: float
    validation: float
    best: float
    best_step: int
    recoveries: int
    steps_per_second: float
    status: str
    note: str = ""
    unit: str = "step"

    @property
    def seconds_left(self) -> float:
        """Time to the last step at the present speed."""
        return (self.max_steps - self.step) / max(self.steps_per_second, 1e-9)


Reporter = AbstractContextManager[Callable[[ProgressUpdate], None]]


def make_reporter(progress: Callable[[ProgressUpdate], None] | str | None, model: Model) -> Reporter:
    """A context in which progress is reported."""
    if progress is None:
        return contextlib.nullcontext(lambda update: None)
    if callable(progress):
        return contextlib.nullcontext(progress)
    if progress != "auto":
        raise ConfigError(f"`progress` must be 'auto', None or a function; got {progress!r}. Use 'auto'.")
    return _live_line(model) if sys.stderr.isatty() else _plain_lines(model)


def describe(update: ProgressUpdate, model: Model) -> str:
    """The update in one line; the validation error in the output's unit where there is one output."""
    single = len(model.output_names) == 1
    scale = float(model.scaling.y_std[0]) if single else 1.0
    unit = (model.output_units[0] if single else "normalized") or ""
    parts = [update.note] if update.note else []
    parts += [f"{update.unit} {update.step}/{update.max_steps}", f"loss {update.loss:.3g}"]
    if update.validation == update.validation:  # not NaN: there are validation records
        parts += [
            f"held-out RMSE {scale * update.validation:.4g} {unit}".rstrip(),
            f"best {scale * update.best:.4g}" + (f" at {update.best_step}" if update.unit == "step" else ""),
        ]
    if update.recoveries:
        parts.append(f"{update.recoveries} recoveries")
    if update.steps_per_second == update.steps_per_second:
        speed = _rounded(update.steps_per_second)
        parts += [f"{speed} {update.unit}s/s", f"{describe_duration(update.seconds_left)} left"]
    return ", ".join(parts)


def _rounded(speed: float) -> str:
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.2g}"


@contextlib.contextmanager
def _live_line(model: Model) -> Iterator[Callable[[ProgressUpdate], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), BarColumn(bar_width=20), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("training begins", total=None)

        def report(update: ProgressUpdate) -> None:
            line = describe(update, model)
            bar.update(task, total=update.max_steps, completed=update.step, description=line)

        yield report


@contextlib.contextmanager
def _plain_lines(model: Model) -> Iterator[Callable[[ProgressUpdate], None]]:
    print("training begins", file=sys.stderr, flush=True)
    last = -SECONDS_BETWEEN_LINES

    def report(update: ProgressUpdate) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES or update.status != "running":
            print(describe(update, model), file=sys.stderr, flush=True)
            last = time.monotonic()

    yield report


def describe_duration(seconds: float) -> str:
    """A time span in words.

    Example:
        >>> describe_duration(75.2)
        '1 min 15 s'
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
