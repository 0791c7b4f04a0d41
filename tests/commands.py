"""Commands within the test's own process."""

from __future__ import annotations

import contextlib
import io

from tausid.cli.commands import app


def printed(*arguments: object) -> str:
    """What a command prints; an error of it is raised here."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        app.run([str(argument) for argument in arguments])
    return out.getvalue()
