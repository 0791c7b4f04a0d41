"""HDF5 files -> a table; MATLAB files of version 7.3 are HDF5 with arrays transposed and text and cells encoded."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tausid.data.readers._matlab import OBJECT
from tausid.data.readers._tables import Table, as_data_error
from tausid.data.readers._trees import DEEPEST, Leaf, table_from_tree
from tausid.data.readers._unpacked import most_unpacked
from tausid.errors import MissingExtraError

# More than compression can save: a dataset that claims more than this many times its file is damaged.
LARGEST_RATIO = 2000
# Cells and text of MATLAB structs hold names and units; longer ones are no such thing.
MOST_TEXT = 10_000


def import_h5py() -> ModuleType:
    """The library for HDF5."""
    try:
        import h5py
    except ImportError:
        raise MissingExtraError(
            "HDF5 files and MATLAB files of version 7.3 need h5py, which is not installed. Install it with "
            'pip install "tausid[files]", or save the file with -v7 in MATLAB.'
        ) from None
    return h5py


def table_from_hdf5(path: Path, *, matlab: bool) -> Table:
    """The datasets of an HDF5 file.

    Links to other files are not followed, and a dataset that can be reached in two ways has the name of the first.
    """
    h5py = import_h5py()
    kind = "a MATLAB file of version 7.3" if matlab else "an HDF5 file"
    with as_data_error(path, kind), h5py.File(path, "r") as file:
        tree = _Walk(h5py, file, path, matlab).group(file, DEEPEST)
    return table_from_tree(tree, source=f"'{path}'", name=path.stem, joint="." if matlab else "/")


class _Walk:
    """One walk through a file, which visits every object once."""

    def __init__(self, h5py: ModuleType, file: Any, path: Path, matlab: bool) -> None:
        self.h5py, self.file, self.path, self.matlab = h5py, file, path, matlab
        self.largest = min(LARGEST_RATIO * max(path.stat().st_size, 1_000), most_unpacked(path))
        self.seen: set[object] = set()
        self._is_new(file)

    def group(self, group: Any, depth: int) -> dict[str, Any]:
        """What lies in a group, datasets first, without what was seen before, broken links and MATLAB's own parts."""
        names = [name for name in group if not (self.matlab and name.startswith("#"))]
        links = {name: group.get(name, getlink=True) for name in names}
        items = {name: group.get(name) for name in names if not isinstance(links[name], self.h5py.ExternalLink)}
        found: dict[str, Any] = {}
        for name in sorted(items, key=lambda name: isinstance(items[name], self.h5py.Group)):
            item = items[name]  # None for a link to nowhere
            branch = self.branch(item, depth) if item is not None and self._is_new(item) else None
            if branch is not None:
                found[str(name)] = branch
        return found

    def branch(self, item: Any, depth: int) -> Any:
        """A group or dataset as a tree."""
        if isinstance(item, self.h5py.Group):
            return self.group(item, depth - 1) if depth > 0 else None
        if not isinstance(item, self.h5py.Dataset):
            return None
        return self._matlab_dataset(item, depth) if self.matlab else self._dataset(item)

    def _is_new(self, item: Any) -> bool:
        info = self.h5py.h5o.get_info(item.id)
        key = (info.fileno, info.addr)
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def _dataset(self, dataset: Any) -> Any:
        unit = _text_attribute(dataset, "units") or _text_attribute(dataset, "unit")
        if dataset.dtype.names is not None:
            return {
                name: self._leaf(dataset, dataset.shape, field=name, kind=dataset.dtype[name].kind)
                for name in dataset.dtype.names
            }
        return self._leaf(dataset, dataset.shape, unit=unit)

    def _leaf(
        self, dataset: Any, shape: tuple[int, ...] | None, *, unit: str = "", field: str = "", kind: str = ""
    ) -> Leaf:
        kind = kind or dataset.dtype.kind
        refused = "" if kind in "biuf" else f"hold real numbers; got {dataset.dtype}. Choose another one."
        if shape is None or np.prod(shape, dtype=np.float64) * dataset.dtype.itemsize > self.largest:
            refused = f"fit its file; it claims shape {shape}, which the file cannot hold. Save it again."
        return Leaf(shape or (), _Reader(self.path, dataset.name, field, self.matlab), unit, refused)

    def _matlab_dataset(self, dataset: Any, depth: int) -> Any:
        kind = _text_attribute(dataset, "MATLAB_class")
        empty = "MATLAB_empty" in dataset.attrs
        if kind == "char" and not empty and dataset.size <= MOST_TEXT:
            rows = np.atleast_2d(np.asarray(dataset[()])).T  # one row of characters per row of text
            texts = ["".join(chr(int(code)) for code in row) for row in rows]
            return texts[0] if len(texts) == 1 else texts
        if dataset.dtype.kind == "O" and kind == "cell" and not empty:
            return self._cells(dataset, depth)
        if dataset.dtype.kind == "O" or "MATLAB_object_decode" in dataset.attrs:
            return Leaf((1,), list, refused=OBJECT)
        shape = (0,) if empty else tuple(n for n in reversed(dataset.shape or ()) if n != 1) or (1,)
        return self._leaf(dataset, shape)

    def _cells(self, dataset: Any, depth: int) -> Any:
        if depth == 0 or dataset.size > MOST_TEXT:
            return None
        targets = [self.file[reference] for reference in np.asarray(dataset[()]).ravel(order="F") if reference]
        return [self.branch(target, depth - 1) for target in targets if self._is_new(target)]


class _Reader:
    """Reads one dataset of a file when it is called."""

    def __init__(self, path: Path, dataset: str, field: str, matlab: bool) -> None:
        self.path, self.dataset, self.field, self.matlab = path, dataset, field, matlab

    def __call__(self) -> np.ndarray:
        with as_data_error(self.path, "a whole HDF5 file"), import_h5py().File(self.path, "r") as file:
            values = file[self.dataset][()]
            values = values[self.field] if self.field else values
            return np.squeeze(np.asarray(values).T) if self.matlab else np.asarray(values)


def _text_attribute(item: Any, name: str) -> str:
    if name not in item.attrs:
        return ""
    value = item.attrs[name]
    return value.decode(errors="replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""
