"""The command line: parse, call, print. Heavy imports happen inside the commands, so that help is instant."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence

from tausid.checks import shortened
from tausid.cli.commands import app
from tausid.errors import DivergenceError, TausidError

NO_READER = 141  # as a shell says of a program that a closed pipe ended


def main() -> None:
    """Run the program; errors of the user end it with code 2 and one message, no traceback."""
    # Matrices here are small: BLAS threads would only wait for each other. Read when numpy is first imported.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere  # None where they were closed before
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # names that the terminal, or UTF-8, cannot show
        sys.exit(_run(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    """The code that the program ends with."""
    try:
        try:
            app.run(words)
        finally:
            sys.stdout.flush()
        return 0
    except TausidError as error:
        _say(f"error: {error}")
        return 1 if isinstance(error, DivergenceError) else 2
    except BrokenPipeError:
        _forget_output()
        return NO_READER
    except OSError as error:
        _forget_output()
        _say(f"error: {_describe(error)}")
        return 2
    except MemoryError:
        _say("error: there must be enough memory; there is not. Take a smaller model or a shorter record.")
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130


def _say(text: str) -> None:
    """On standard error; where that is full, the code that the program ends with must do."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _describe(error: OSError) -> str:
    why = error.strerror or error
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN):
        return f"the system must have open files and processes enough; it has not: {why}. Take fewer workers."
    place = "standard output" if error.filename is None else shortened(os.fspath(error.filename))
    return (
        f"{place} must be usable; it is not: {why}. Choose another place, free some space, or change its permissions."
    )


def _forget_output() -> None:
    """What is still to be printed has nowhere to go; Python would complain of it when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
