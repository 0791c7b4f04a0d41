"""Benchmark archives from their official addresses: received in memory, unpacked, checked, then kept on disk."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tausid.errors import StorageError
from tausid.storage import write_bytes

CACHE_VARIABLE = "TAUSID_CACHE"
# A server that is silent for this long is given up, so that there is time for the next address.
SILENCE_SECONDS = 10.0
# A download that takes longer than this is shown.
QUIET_SECONDS = 2.0
REFRESH_SECONDS = 0.1
# The largest archive that is received and the largest file that is unpacked; the benchmarks have less than 8 MB.
MOST_BYTES = 64 * 2**20


class NotAvailableError(Exception):
    """One place does not have the files; the message says which place and why."""


def cache_folder() -> Path:
    """Where downloads are kept: the folder that `TAUSID_CACHE` names, else one in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("tausid", appauthor=False)


def download(name: str, sums: Mapping[str, str], addresses: Sequence[str], *, timeout: float) -> tuple[Path, ...]:
    """Download files and keep them in the cache; they are written only when all of them are whole and checked."""
    deadline = time.monotonic() + timeout
    silence = min(SILENCE_SECONDS, timeout / len(addresses))
    reasons = []
    for address in addresses:
        if time.monotonic() >= deadline:
            break
        try:
            contents = unpack(_receive(address, name, silence, deadline), sums)
        except NotAvailableError as reason:
            reasons.append(f"{urlsplit(address).hostname} {reason}")
        else:
            return _keep(cache_folder() / name, contents)
    if time.monotonic() >= deadline:
        reasons.append(f"the time limit is {timeout:g} s")
    raise NotAvailableError("; ".join(reasons))


def unpack(archive: bytes, sums: Mapping[str, str]) -> dict[str, bytes]:
    """The named files of a zip archive, from whatever folders they are in; nothing else is unpacked."""
    if archive.lstrip()[:1] == b"<":
        raise NotAvailableError("sent a web page where a zip archive was expected")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return {file: _member(opened, file, expected) for file, expected in sums.items()}
    except NotAvailableError:
        raise
    except Exception as error:  # noqa: BLE001 - zipfile raises whatever it stumbles over in damaged bytes
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise NotAvailableError(f"sent {len(archive)} bytes that are not a complete zip archive ({reason})") from None


def _member(archive: zipfile.ZipFile, file: str, expected: str) -> bytes:
    """A file of an archive by its name without folders; of several, the one with the right sum."""
    received = ""
    for entry in archive.infolist():
        if re.split(r"[\\/]", entry.filename)[-1] != file:
            continue
        if entry.file_size > MOST_BYTES:
            raise NotAvailableError(
                f"sent an archive whose file '{file}' has {entry.file_size} bytes unpacked; at most {MOST_BYTES} are "
                "allowed"
            )
        with archive.open(entry) as opened:
            content = opened.read(MOST_BYTES)
        received = hashlib.sha256(content).hexdigest()
        if received == expected:
            return content
    if not received:
        raise NotAvailableError(f"sent an archive without the file '{file}'")
    raise NotAvailableError(f"sent a file '{file}' with sha256 {received}; the published one has {expected}")


def _keep(folder: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    try:
        return tuple(write_bytes(folder / file, content) for file, content in contents.items())
    except StorageError as error:
        raise NotAvailableError(
            f"the download cannot be kept: {error} {CACHE_VARIABLE} names the folder for downloads"
        ) from None


def _receive(address: str, name: str, silence: float, deadline: float) -> bytes:
    transfer = _Transfer(address, silence)
    transfer.start()
    try:
        _wait(transfer, f"Downloading {name} from {urlsplit(address).hostname}", deadline)
    finally:
        transfer.is_wanted = False
    if transfer.is_alive():
        raise NotAvailableError("did not send the whole archive in time")
    if transfer.error is not None:
        raise NotAvailableError(_explain(transfer.error, transfer))
    return bytes(transfer.body)


def _wait(transfer: _Transfer, label: str, deadline: float) -> None:
    shown_from = time.monotonic() + QUIET_SECONDS
    transfer.join(max(0.0, min(shown_from, deadline) - time.monotonic()))
    if not transfer.is_alive() or time.monotonic() >= deadline:
        return
    with _progress(label) as show:
        while transfer.is_alive() and time.monotonic() < deadline:
            transfer.join(REFRESH_SECONDS)
            show(len(transfer.body), transfer.total)


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; one line where that is not a terminal."""
    if not sys.stderr.isatty():
        print(f"{label} ...", file=sys.stderr, flush=True)
        yield lambda received, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda received, total: bar.update(task, completed=received, total=total or None)


class _Transfer(threading.Thread):
    """One download into memory; certificates are checked, and redirections followed.

    It has a thread of its own, as a name server that is silent, or a server that sends a byte now and then, cannot be
    left from within. A transfer that is given up ends with its next bytes; it has no file open.
    """

    def __init__(self, address: str, silence: float) -> None:
        super().__init__(name="tausid download", daemon=True)
        self.address = address
        self.silence = silence
        self.is_wanted = True
        self.total = 0
        self.body = bytearray()
        self.error: Exception | None = None

    def run(self) -> None:
        """Download until all is there or no more is wanted."""
        import requests

        try:
            with requests.get(self.address, stream=True, timeout=self.silence) as response:
                response.raise_for_status()
                self.total = int(response.headers.get("content-length", 0))
                for chunk in response.iter_content(1024):
                    self.body += chunk
                    if not self.is_wanted or len(self.body) > MOST_BYTES:
                        raise _TooMuchError
        except Exception as error:  # noqa: BLE001 - the thread that waits tells it
            self.error = error


class _TooMuchError(Exception):
    """No further bytes are wanted."""


def _explain(error: Exception, transfer: _Transfer) -> str:
    """Why a transfer failed, as what the server did."""
    from requests import exceptions

    if isinstance(error, _TooMuchError):
        return f"sent more than {MOST_BYTES} bytes"
    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, exceptions.SSLError):
        return "has a certificate that is not trusted (REQUESTS_CA_BUNDLE can name a company's own certificates)"
    if isinstance(error, exceptions.Timeout):
        return f"did not answer within {transfer.silence:g} s"
    if isinstance(error, exceptions.ChunkedEncodingError) or transfer.body:
        return "closed the connection during the download"
    if isinstance(error, exceptions.ConnectionError):
        return "could not be reached"
    return f"could not be read ({type(error).__name__}: {error})"
