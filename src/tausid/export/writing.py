"""Write a model for a target."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tausid.checks import check_choice
from tausid.export.description import Description, describe
from tausid.export.names import check_name
from tausid.model.ensembles import AnyModel
from tausid.storage import check_writable

# Where the function of each target lies: it takes a description, a name and a folder, and gives the files it wrote.
TARGETS = {
    "c": "c99:write_c99",
    "onnx": "onnx_files:write_onnx",
    "casadi": "casadi_files:write_casadi",
    "matlab": "matlab:write_matlab",
    "fmu": "fmu:write_fmu",
}


def write_model(model: AnyModel, to: str, out: str | os.PathLike[str], *, name: str = "model") -> list[Path]:
    """Write a model for another program, with a README that says how to use and how to verify it.

    Args:
        model: the model, or an ensemble.
        to: the target: `c`, `onnx`, `casadi`, `matlab` or `fmu`.
        out: folder to write to.
        name: what functions and files are called; letters, digits and underscores.

    Returns:
        The files.

    Raises:
        MissingExtraError: the target needs a library that is not installed.
        ConfigError: an unknown target, a name that is none, or a model that cannot be described.
        DivergenceError: the model diverges at once.
        StorageError: the folder cannot be written to.
    """
    check_choice("to", to, TARGETS)
    check_name(name)
    module, function = TARGETS[to].split(":")
    write: Callable[[Description, str, Path], list[Path]] = getattr(import_module(f"tausid.export.{module}"), function)
    return write(describe(model), name, check_writable(out))
