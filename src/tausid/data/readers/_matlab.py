"""MATLAB files -> a table: version 5 and older with scipy; version 7.3 is HDF5 with rules of its own."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.readers._tables import Table, as_data_error
from tausid.data.readers._trees import DEEPEST, Leaf, table_from_tree
from tausid.data.readers._unpacked import check_unpacked

# Of a file of version 5: the length of its header, and the kind of a variable that is packed by zlib.
HEADER, PACKED = 128, 15
OBJECT = (
    "be an array or a struct; it is an object of a MATLAB class, which only MATLAB can read. In MATLAB save its "
    "parts, for iddata z: s = struct('u', z.u, 'y', z.y, 'Ts', z.Ts); save('data.mat', '-struct', 's')."
)


def table_from_mat5(path: Path) -> Table:
    """The variables of a MATLAB file of version 4 to 7.2."""
    from scipy.io import loadmat  # late: most files are something else

    with as_data_error(path, "a MATLAB file"):
        check_unpacked(path, _claimed(path))
        content = loadmat(path, simplify_cells=True)
        tree = {key: _branch(value, DEEPEST) for key, value in content.items() if not key.startswith("__")}
        return table_from_tree(tree, source=f"'{path}'", name=path.stem, joint=".")


def _claimed(path: Path) -> int:
    """The bytes that the packed variables of a file of version 5 say that they hold, without unpacking them."""
    claimed, size = 0, path.stat().st_size
    with path.open("rb") as file:
        order = {b"IM": "<", b"MI": ">"}.get(file.read(HEADER)[-2:])
        while order and len(tag := file.read(8)) == 8:
            kind, length = struct.unpack(f"{order}II", tag)
            after = file.tell() + length
            if kind == PACKED:
                first = zlib.decompressobj().decompress(file.read(min(length, 1000)), 8)
                claimed += struct.unpack(f"{order}II", first)[1] if len(first) == 8 else 0
            if after > size:
                break
            file.seek(after)
    return claimed


def _branch(value: Any, depth: int) -> Any:
    """A value of scipy's as a tree."""
    if isinstance(value, str) or depth == 0:
        return value if isinstance(value, str) else None
    if isinstance(value, Mapping):
        return {str(key): _branch(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_branch(inner, depth - 1) for inner in value]
    return _leaf(value, depth)


def _leaf(value: Any, depth: int) -> Any:
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype.kind == "U":
        return [str(item) for item in array.ravel()]
    if array.dtype.names is not None or type(value).__name__.startswith("Matlab"):
        return Leaf(array.shape, lambda: array, refused=OBJECT)
    if array.dtype.kind == "O" and array.ndim:
        return [_branch(inner, depth - 1) for inner in array.ravel()]
    if array.dtype.kind not in "biuf":
        return Leaf(array.shape, lambda: array, refused=f"hold real numbers in full; got {type(value).__name__} of "
                    f"{array.dtype}. Convert it before it is saved.")  # fmt: skip
    return Leaf(array.shape, lambda: array)
