"""Ctrl-C: what is at hand is finished first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

# The events of all that is interruptible now, the outermost first: Ctrl-C in a member of an ensemble is meant for both.
_events: list[threading.Event] = []


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Ctrl-C sets the event, so that the chunk of steps at hand is finished; a second one breaks off at once."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # signals reach the main thread only
        return

    def note(signum: int, frame: Any) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        for event in _events:
            event.set()

    _events.append(interrupted)
    previous = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
        _events.remove(interrupted)
