"""CasADi: `Function`s of f, g and one step, for optimization and optimal control."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tausid.errors import MissingExtraError
from tausid.export.check import write_functions_check
from tausid.export.description import Description, describe, step_function
from tausid.export.names import channel_lines
from tausid.export.operations import Function
from tausid.model.ensembles import AnyModel
from tausid.storage import write_bytes

if TYPE_CHECKING:
    import casadi

HERE = Path(__file__).parent
NAMES = {"maximum": "fmax", "minimum": "fmin", "abs": "fabs", "subtract": "minus", "multiply": "times"}
NAMES |= {"add": "plus", "divide": "rdivide"}


def write_casadi(description: Description, name: str, folder: Path) -> list[Path]:
    """Write the functions as CasADi's own files, a check and a README."""
    functions = to_casadi(description)
    files = [write_bytes(folder / f"{name}_{part}.casadi", _saved(f)) for part, f in functions.items()]
    channels = "\n".join(f"    {line}" for line in channel_lines(description))
    return [*files, *write_functions_check(folder, HERE, description, name=name, channels=channels)]


def to_casadi(model: AnyModel | Description) -> dict[str, casadi.Function]:
    """CasADi functions of a model.

    Args:
        model: the model, an ensemble, or the description of one.

    Returns:
        `f` (x, u -> dx), `g` (x, u -> y) and `step` (x, u, u_next, dt -> x_next), by name.

    Raises:
        MissingExtraError: casadi is not installed.
    """
    try:
        import casadi
    except ImportError:
        raise MissingExtraError(
            'CasADi functions need casadi, which is not installed. Install it with pip install "tausid[export]".'
        ) from None

    description = describe(model)
    x, u, u_next = (
        casadi.SX.sym(*size) for size in (("x", description.nx), ("u", description.nu), ("w", description.nu))
    )
    dt = casadi.SX.sym("dt")
    x_next = _evaluate(casadi, step_function(description), x, casadi.vertcat(u, u_next, dt))
    return {
        "f": casadi.Function("f", [x, u], [_evaluate(casadi, description.f, x, u)], ["x", "u"], ["dx"]),
        "g": casadi.Function("g", [x, u], [_evaluate(casadi, description.g, x, u)], ["x", "u"], ["y"]),
        "step": casadi.Function("step", [x, u, u_next, dt], [x_next], ["x", "u", "u_next", "dt"], ["x_next"]),
    }


def _saved(function: casadi.Function) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "function.casadi"
        function.save(str(path))
        return path.read_bytes()


def _evaluate(casadi: Any, function: Function, x: Any, u: Any) -> Any:
    values = [x, u]
    for operation in function.operations[2:]:
        a = [values[i] for i in operation.inputs]
        match operation.kind:
            case "constant":
                values.append(casadi.DM(np.asarray(operation.array)))
            case "linear":
                values.append(casadi.mtimes(casadi.DM(np.asarray(operation.array)), a[0]))
            case "pick":
                values.append(a[0][np.asarray(operation.array).tolist()])
            case "concat":
                values.append(casadi.vertcat(*a))
            case kind:
                values.append(getattr(casadi, NAMES.get(kind, kind))(*a))
    return values[-1]
