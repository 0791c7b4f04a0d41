"""The command line: parse, call, print. Heavy imports happen inside the commands, so that help is instant."""

from __future__ import annotations

import os
import sys

from tausid.cli.commands import app
from tausid.errors import DivergenceError, TausidError


def main() -> None:
    """Run the program; errors of the user end it with code 2 and one message, no traceback."""
    # Matrices here are small: BLAS threads would only wait for each other. Read when numpy is first imported.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        app.run(sys.argv[1:])
        sys.exit(0)
    except TausidError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, DivergenceError) else 2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
