"""Files of arrays and plain JSON: safetensors, written atomically, checked when read. Nothing in them can run.

A file holds named arrays, a JSON object, what kind of file it is (`model` or `checkpoint`), the version of
its format, and a checksum over all of it.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import platform
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tausid.errors import StorageError
from tausid.schema import SchemaError, Text, as_schema, parse_json

FORMAT_VERSION = 1
PART = ".part"  # how the names of temporary files end


class Header(msgspec.Struct, frozen=True):
    """What each file says of itself; a later version may say more."""

    kind: Text
    version: int
    checksum: Text
    content: str


def write_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], *, kind: str, content: Mapping[str, Any]
) -> Path:
    """Write arrays and a JSON object as one file; an old file stays whole until the new one is complete."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(content)
    header = {"kind": kind, "version": FORMAT_VERSION, "checksum": _checksum(arrays, text), "content": text}
    # One entry only: safetensors writes several in random order, and the same model must give the same bytes.
    return write_bytes(path, save(arrays, metadata={"tausid": json.dumps(header)}))


def read_arrays(path: str | os.PathLike[str], *, kind: str) -> tuple[dict[str, np.ndarray], Any]:
    """Read a file that `write_arrays` wrote; its JSON is for `as_schema`."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise StorageError(f"{kind} file {path} must exist; there is none. Check the path.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = _read_header(path, kind, file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, MemoryError, TypeError) as error:  # TypeError: numbers that numpy does not have
        raise StorageError(
            f"{kind} file {path} must be a complete safetensors file; it is truncated, corrupted or something "
            f"else ({error}). Copy it again, or make it anew."
        ) from None
    if _checksum(arrays, header.content) != header.checksum:
        raise StorageError(
            f"{kind} file {path} must match its checksum; it does not, so it is corrupted. Copy it again."
        )
    with described(path, kind):
        return arrays, parse_json(header.content)


@contextlib.contextmanager
def described(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Say of which file it is that something is not as its schema says."""
    try:
        yield
    except SchemaError as error:
        raise StorageError(
            f"{kind} file {path} must be as tausid writes it; it is not ({error}). Make it anew."
        ) from None


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file atomically: to a temporary file in the same folder, to the disk, then renamed."""
    path = Path(path)
    with _as_storage_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{_begun(path)}{os.getpid()}.", suffix=PART)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    return path


def remove_leftovers(path: Path) -> None:
    """Remove what processes of this machine that are gone by now had begun to write in the place of this file."""
    if os.name != "posix" or not path.parent.is_dir():
        return
    begun = _begun(path)
    for file in path.parent.iterdir():
        owner = file.name.removeprefix(begun).partition(".")[0]
        if file.name.startswith(begun) and file.suffix == PART and owner.isdecimal() and not _lives(int(owner)):
            file.unlink(missing_ok=True)


def _begun(path: Path) -> str:
    """How the names of temporary files begin: the file and the machine that writes it; the process comes next."""
    return f".{path.name}.{zlib.crc32(platform.node().encode()):08x}."


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file atomically; what is no text, as in names of files that are not UTF-8, is escaped."""
    return write_bytes(path, text.encode(errors="backslashreplace"))


def write_table(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write a CSV table atomically; a number reads back as the same number, NaN and None are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if cell is None or cell != cell else cell for cell in row] for row in rows)
    return write_text(path, text.getvalue())


def check_writable(folder: str | os.PathLike[str]) -> Path:
    """Make a folder and check that files can be written to it, before hours go into what should lie there."""
    folder = Path(folder)
    with _as_storage_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    return folder


@contextlib.contextmanager
def _as_storage_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} must be writable; writing failed: {error.strerror or error}. "
            "Choose another place, free some space, or change its permissions."
        ) from None


def _read_header(path: Path, kind: str, metadata: Mapping[str, str]) -> Header:
    if "tausid" not in metadata:
        raise StorageError(
            f"{kind} file {path} must be written by tausid; it is a safetensors file of another program. "
            f"Make a {kind} with `tausid fit`."
        )
    with described(path, kind):
        header = as_schema(parse_json(metadata["tausid"]), Header)
    if header.version > FORMAT_VERSION:
        raise StorageError(
            f"{kind} file {path} must have format version {FORMAT_VERSION} or older; it has {header.version}. "
            "Update tausid to read it."
        )
    if header.kind != kind:
        raise StorageError(f"{path} must be a {kind} file; it is a {header.kind} file. Give the {kind} file.")
    return header


def _checksum(arrays: Mapping[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
