"""ONNX: f, g and one step, in double and in single precision; rows of a batch are computed side by side."""

from __future__ import annotations

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
    from onnx import ModelProto

HERE = Path(__file__).parent
OPSET, IR_VERSION = 17, 8  # of 2022: old enough for what runs on devices
# onnxruntime has these in double precision, too.
NODES = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "sin": "Sin", "cos": "Cos",
}  # fmt: skip


def write_onnx(description: Description, name: str, folder: Path) -> list[Path]:
    """Write six models, a check and a README."""
    files = [
        write_bytes(folder / f"{name}_{part}{suffix}.onnx", model.SerializeToString(deterministic=True))
        for suffix, dtype in {"": np.float64, "_float32": np.float32}.items()
        for part, model in to_onnx(description, dtype=dtype).items()
    ]
    return [*files, *write_functions_check(folder, HERE, description, name=name)]


def to_onnx(model: AnyModel | Description, *, dtype: type = np.float64) -> dict[str, ModelProto]:
    """ONNX models of a model; the inputs u and u_next are left out where it has none.

    Args:
        model: the model, an ensemble, or the description of one.
        dtype: `np.float64` or `np.float32`.

    Returns:
        `f` (x, u -> dx), `g` (x, u -> y) and `step` (x, u, u_next, dt -> x_next), by name.

    Raises:
        MissingExtraError: onnx is not installed.
    """
    description = describe(model)
    u = {"u": description.nu} if description.nu else {}
    both = {**u, **({"u_next": description.nu} if u else {}), "dt": 1}
    return {
        "f": _model(description, description.f, "dx", u, dtype),
        "g": _model(description, description.g, "y", u, dtype),
        "step": _model(description, step_function(description), "x_next", both, dtype),
    }


def _model(d: Description, function: Function, result: str, inputs: dict[str, int], dtype: type) -> ModelProto:
    try:
        import onnx
        from onnx import helper
    except ImportError:
        raise MissingExtraError(
            'ONNX files need onnx, which is not installed. Install it with pip install "tausid[export]".'
        ) from None

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensors = [helper.make_tensor_value_info(key, kind, ["N", n]) for key, n in {"x": d.nx, **inputs}.items()]
    graph = _Graph(dtype)
    if len(inputs) > 1:
        graph.node("Concat", list(inputs), "given", axis=1)
    values = ["x", "given" if len(inputs) > 1 else next(iter(inputs), "")]
    for i, operation in enumerate(function.operations[2:], start=2):
        values.append(_emit(graph, function, i, [values[j] for j in operation.inputs], d.nx))
    graph.node("Identity", [_spread(graph, function, len(values) - 1, values[-1], d.nx)], result)
    made = helper.make_graph(
        graph.nodes, result, tensors, [helper.make_tensor_value_info(result, kind, ["N", function.size])], graph.arrays
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="tausid",
        doc_string="\n".join(channel_lines(d)),
    )  # fmt: skip
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Nodes and constant arrays, each with a name of its own."""

    def __init__(self, dtype: type) -> None:
        self.nodes: list[Any] = []
        self.arrays: list[Any] = []
        self.dtype = dtype

    def node(self, kind: str, inputs: list[str], name: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        name = name or f"v{len(self.nodes)}"
        # Nodes without a name confuse fusions of onnxruntime 1.20.
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def array(self, values: np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.arrays)}"
        own = values if values.dtype.kind == "i" else values.astype(self.dtype)
        self.arrays.append(numpy_helper.from_array(np.ascontiguousarray(own), name))
        return name


def _emit(graph: _Graph, function: Function, i: int, a: list[str], nx: int) -> str:
    operation = function.operations[i]
    array = np.asarray(operation.array)
    match operation.kind:
        case "constant":
            return graph.array(array[None])
        case "linear":
            # Not MatMul: onnxruntime joins it with a factor that follows, which it rounds to single precision.
            return graph.node("Gemm", [a[0], graph.array(array)], transB=1)
        case "pick":
            return graph.node("Gather", [a[0], graph.array(array)], axis=1)
        case "concat":
            parts = [_spread(graph, function, j, v, nx) for j, v in zip(operation.inputs, a, strict=True)]
            return graph.node("Concat", parts, axis=1)
        case "expm1":
            return graph.node("Sub", [graph.node("Exp", a), graph.array(np.ones((1, 1)))])
        case "log1p":
            return graph.node("Log", [graph.node("Add", [*a, graph.array(np.ones((1, 1)))])])
        case kind:
            return graph.node(NODES[kind], a)


def _spread(graph: _Graph, function: Function, number: int, value: str, nx: int) -> str:
    """A value that is one row for all, as one row for each of the batch."""
    if function.varying[number]:
        return value
    zero = graph.node("Gemm", ["x", graph.array(np.zeros((function.operations[number].size, nx)))], transB=1)
    return graph.node("Add", [zero, value])
