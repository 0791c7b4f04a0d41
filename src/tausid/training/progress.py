"""How a fit tells what it is doing: a live line on a terminal, plain lines elsewhere, always on standard error."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tausid.errors import ConfigError
from tausid.model.model import Model

SECONDS_BETWEEN_LINES = 5.0
# Columns of a terminal that the bar takes, and the spinner with the blanks between them.
BAR, SPINNER = 8, 4


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
        work: how much is done and how much is left, where steps are not equally long.
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
    work: tuple[float, float] | None = None

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


def describe(update: ProgressUpdate, model: Model, left: float | None = None, width: int | None = None) -> str:
    """What is tried, how good it and the best are, and how long it will still take; what is tried is cut to fit."""
    single = len(model.output_names) == 1
    scale = float(model.scaling.y_std[0]) if single else 1.0
    unit = (model.output_units[0] if single else "normalized") or ""
    parts = [f"{update.unit} {update.step}/{update.max_steps}"]
    if math.isnan(update.validation):  # nothing is held out
        parts.append(f"training error {_error(scale * math.sqrt(max(update.loss, 0.0)))} {unit}".rstrip())
    else:
        parts.append(f"held out {_error(scale * update.validation)}")
        parts.append(f"best {_error(scale * update.best)} {unit}".rstrip())
    if update.recoveries:
        parts.append(f"{update.recoveries} recoveries")
    left = update.seconds_left if left is None else left
    parts.append("time left unknown" if math.isnan(left) else f"{describe_duration(left)} left")
    told = ", ".join(parts)
    room = None if width is None else width - len(told) - 2
    return f"{_cut(update.note, room)}, {told}" if update.note and (room is None or room > 4) else told


def _error(value: float) -> str:
    return "diverged" if math.isinf(value) else f"{value:.3g}"


def _cut(text: str, room: int | None) -> str:
    return text if room is None or len(text) <= room else f"{text[: room - 3].rstrip()}..."


class TimeLeft:
    """The time left, from the share of the work that was finished since the first update of its kind."""

    def __init__(self) -> None:
        self.unit, self.since, self.first, self.last = "", 0.0, 0.0, math.nan
        self.until = math.nan

    def update(self, update: ProgressUpdate, now: float) -> None:
        """Take note of what was finished."""
        finished, rest = update.work or (update.step, update.max_steps - update.step)
        if update.unit != self.unit or finished < self.first:
            self.unit, self.since, self.first, self.last = update.unit, now, finished, math.nan
        if finished == self.last and rest > 0:  # nothing was finished since: the time left counts down
            return
        done, self.last = finished - self.first, finished
        # The first part of unequal work took the time of a start, too.
        before = math.nan if update.work else update.seconds_left
        seconds = (now - self.since) * rest / done if done else before
        self.until = now + (0.0 if rest <= 0 else seconds)

    def at(self, now: float) -> float:
        """Seconds left at a time; not a number before anything was finished."""
        return max(self.until - now, 0.0) if not math.isnan(self.until) else math.nan


@contextlib.contextmanager
def _live_line(model: Model) -> Iterator[Callable[[ProgressUpdate], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task
    from rich.text import Text

    clock, console = TimeLeft(), Console(stderr=True)

    class Line(ProgressColumn):
        """The latest update; its time left counts down meanwhile."""

        def render(self, task: Task) -> Text:
            update = task.fields["update"]
            if update is None:
                return Text("training begins")
            room = console.width - BAR - SPINNER
            return Text(describe(update, model, clock.at(time.monotonic()), room), no_wrap=True)

    with Progress(SpinnerColumn(), BarColumn(bar_width=BAR), Line(), console=console) as bar:
        task = bar.add_task("", total=None, update=None)

        def report(update: ProgressUpdate) -> None:
            clock.update(update, time.monotonic())
            bar.update(task, total=update.max_steps, completed=update.step, update=update)

        yield report


@contextlib.contextmanager
def _plain_lines(model: Model) -> Iterator[Callable[[ProgressUpdate], None]]:
    print("training begins", file=sys.stderr, flush=True)
    clock, last = TimeLeft(), -SECONDS_BETWEEN_LINES

    def report(update: ProgressUpdate) -> None:
        nonlocal last
        now = time.monotonic()
        clock.update(update, now)
        if now - last >= SECONDS_BETWEEN_LINES or update.status != "running":
            print(describe(update, model, clock.at(now)), file=sys.stderr, flush=True)
            last = now

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
