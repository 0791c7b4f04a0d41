"""Benchmarks downloaded from a server on this machine, with everything that can go wrong on the way."""

from __future__ import annotations

import hashlib
import importlib
import io
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loopback import Loopback, body, drip, serve, silence, status

from tausid import datasets
from tausid.data.datasets import _benchmarks, _download
from tausid.errors import DataError

CONTENT = b'"uEst","uVal","yEst","yVal","Ts",\n1,2,3,4,4,\n5,6,7,8,,\n\n'
FILE = "dataBenchmark.csv"


def archive(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


GOOD = archive(("CascadedTanksFiles/Tanks.pdf", b"x" * 3000), (f"CascadedTanksFiles/{FILE}", CONTENT))


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    """A cache of its own, no local folder, no proxy, and downloads that are shown only where a test says so."""
    monkeypatch.delenv("TAUSID_DATA", raising=False)
    monkeypatch.setenv("TAUSID_CACHE", str(tmp_path / "cache"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    monkeypatch.setattr(_download, "QUIET_SECONDS", 60.0)
    return tmp_path / "cache"


@pytest.fixture
def server():
    with serve() as running:
        yield running


@pytest.fixture
def publish(monkeypatch):
    """Make `CONTENT` the published record of the tanks, at these addresses."""

    def _publish(*addresses: str) -> None:
        files = {FILE: hashlib.sha256(CONTENT).hexdigest()}
        changed = replace(_benchmarks.BENCHMARKS["cascaded_tanks"], files=files, addresses=addresses)
        monkeypatch.setitem(_benchmarks.BENCHMARKS, "cascaded_tanks", changed)

    return _publish


def closed_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}/gone.zip"


def refusal(**options) -> str:
    with pytest.raises(DataError) as caught:
        datasets.load("cascaded_tanks", **options)
    return str(caught.value)


def kept(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# Good downloads


def test_a_download_is_kept_and_needs_no_server_the_second_time(publish, cache, capfd):
    with serve() as server:
        publish(server.address("/tanks", body(GOOD)))
        data = datasets.load("cascaded_tanks")
    np.testing.assert_array_equal(data.test.y[:, 0], [4.0, 8.0])
    assert server.asked == ["/tanks"]
    assert kept(cache) == ["cascaded_tanks", f"cascaded_tanks/{FILE}"]
    assert datasets.fetch("cascaded_tanks") == (cache / "cascaded_tanks" / FILE,)
    assert capfd.readouterr() == ("", "")  # a command that prints JSON must not print anything else


def test_a_redirection_is_followed(server, publish):
    moved = server.address("/moved", body(GOOD))
    publish(server.address("/old", status(302, Location=moved)))
    assert len(datasets.load("cascaded_tanks").train) == 2
    assert server.asked == ["/old", "/moved"]


def test_the_next_address_is_tried(server, publish):
    publish(closed_address(), server.address("/none", status(404)), server.address("/good", body(GOOD)))
    assert len(datasets.load("cascaded_tanks").train) == 2
    assert server.asked == ["/none", "/good"]


def test_a_silent_server_leaves_time_for_the_next_address(server, publish, monkeypatch):
    monkeypatch.setattr(_download, "SILENCE_SECONDS", 0.3)
    publish(server.address("/silent", silence), server.address("/good", body(GOOD)))
    assert len(datasets.load("cascaded_tanks").train) == 2


def test_a_damaged_file_in_the_cache_is_downloaded_again(server, publish, cache):
    publish(server.address("/tanks", body(GOOD)))
    path = cache / "cascaded_tanks" / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-10])
    assert datasets.fetch("cascaded_tanks") == (path,)
    assert path.read_bytes() == CONTENT


def test_only_named_files_are_unpacked_by_their_base_names(server, publish, cache, tmp_path):
    members = [("../../evil.txt", b"x"), (f"a/{FILE}", b"another file"), (f"..\\../{FILE}", CONTENT)]
    publish(server.address("/tanks", body(archive(*members))))
    assert datasets.fetch("cascaded_tanks")[0].read_bytes() == CONTENT
    assert kept(tmp_path) == ["cache", "cache/cascaded_tanks", f"cache/cascaded_tanks/{FILE}"]


def test_the_users_cache_folder_is_the_default(monkeypatch):
    monkeypatch.delenv("TAUSID_CACHE")
    assert "tausid" in _download.cache_folder().parts


def test_importing_the_datasets_imports_neither_scipys_readers_nor_what_downloads():
    code = "import sys, tausid.data.datasets as _; print({'scipy.io', 'platformdirs', 'requests'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_official_address_is_one_with_a_certificate():
    for benchmark in _benchmarks.BENCHMARKS.values():
        assert benchmark.addresses
        assert all(address.startswith("https://") for address in benchmark.addresses)


# What goes wrong


def wrong_size(content: bytes) -> bytes:
    """An archive whose directory says that its only file has ten bytes."""
    start = content.index(b"PK\x01\x02") + 24
    return content[:start] + (10).to_bytes(4, "little") + content[start + 4 :]


FAILURES = {
    "cut off": (body(GOOD[:200], length=len(GOOD)), "127.0.0.1 closed the connection during the download"),
    "cut off, unnoticed": (body(GOOD[:200]), "127.0.0.1 sent 200 bytes that are not a complete zip archive"),
    "another record": (
        body(archive((FILE, b"changed"))),
        f"sent a file '{FILE}' with sha256 {hashlib.sha256(b'changed').hexdigest()}; the published one has "
        + hashlib.sha256(CONTENT).hexdigest(),
    ),
    "a web page": (
        body(b"\n<!DOCTYPE html><html>Too many users</html>", kind="text/html"),
        "127.0.0.1 sent a web page where a zip archive was expected",
    ),
    "nothing": (body(b""), "127.0.0.1 sent 0 bytes that are not a complete zip archive"),
    "not there": (status(404), "127.0.0.1 answered 404 Not Found"),
    "overloaded": (status(503), "127.0.0.1 answered 503 Service Unavailable"),
    "without the file": (body(archive(("readme.txt", b"x"))), f"sent an archive without the file '{FILE}'"),
    "a bomb": (
        body(archive((FILE, bytes(50_000)))),
        f"whose file '{FILE}' has 50000 bytes unpacked; at most 20000 are allowed",
    ),
    "a bomb in disguise": (body(wrong_size(archive((FILE, bytes(50_000))))), "not a complete zip archive (BadZipFile"),
    "too much": (body(bytes(30_000)), "127.0.0.1 sent more than 20000 bytes"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_is_told_with_what_to_do_and_leaves_nothing(failure, server, publish, cache, monkeypatch):
    answer, words = FAILURES[failure]
    monkeypatch.setattr(_download, "MOST_BYTES", 20_000)
    publish(server.address("/tanks", answer))
    reasons, remedy = refusal().splitlines()
    assert reasons.startswith("dataset 'cascaded_tanks' is not available: TAUSID_DATA is not set; 127.0.0.1 ")
    assert words in reasons
    assert remedy == (
        f"Set TAUSID_DATA to a folder that holds cascaded_tanks/{FILE}, or connect to the internet and try again, "
        "or use tausid.datasets.simulate_tanks(seed=0), which needs no files."
    )
    assert not cache.exists()


def test_without_a_network_every_address_is_named(publish, cache):
    publish(closed_address(), closed_address().replace("127.0.0.1", "localhost"))
    assert "is not set; 127.0.0.1 could not be reached; localhost could not be reached.\n" in refusal()
    assert not cache.exists()


def test_a_failed_download_keeps_what_was_in_the_cache(server, publish, cache):
    publish(server.address("/tanks", body(GOOD[:200])))
    path = cache / "cascaded_tanks" / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    assert "not a complete zip archive" in refusal()
    assert kept(cache) == ["cascaded_tanks", f"cascaded_tanks/{FILE}"]


DRIPS = {
    "header": b"HTTP/1.0 200 OK\r\nX-Slow: ",
    "content": b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n",
}


@pytest.mark.parametrize("part", DRIPS)
def test_a_server_that_drips_is_given_up(part, server, publish, cache):
    publish(server.address("/slow", drip(DRIPS[part])), server.address("/good", body(GOOD)))
    start = time.monotonic()
    message = refusal(timeout=1.0)
    # 1024 bytes are taken at once, which would last 51 s here.
    assert time.monotonic() - start < 15.0
    assert "127.0.0.1 did not send the whole archive in time; the time limit is 1 s.\n" in message
    assert server.asked == ["/slow"]
    assert not cache.exists()


def test_a_server_that_is_silent_is_given_up(server, publish):
    publish(server.address("/silent", silence))
    message = refusal(timeout=0.5)
    assert "did not answer within 0.5 s" in message or "did not send the whole archive in time" in message


def test_no_time_is_no_download(server, publish):
    publish(server.address("/good", body(GOOD)))
    assert "TAUSID_DATA is not set; the time limit is 0 s.\n" in refusal(timeout=0.0)
    assert server.asked == []


def test_a_cache_that_cannot_be_written_is_named(server, publish, cache):
    cache.write_text("a file, no folder")
    publish(server.address("/tanks", body(GOOD)))
    message = refusal()
    assert f"the download cannot be kept: {cache / 'cascaded_tanks' / FILE} must be writable" in message
    assert "TAUSID_CACHE names the folder for downloads" in message


# Certificates


@pytest.fixture
def certificate(tmp_path) -> str:
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl makes the certificate of this test, and is not here")
    path = tmp_path / "own.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tests -keyout {path} -out {tmp_path}/public"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + (tmp_path / "public").read_bytes())
    return str(path)


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate, publish, cache, monkeypatch, tmp_path):
    with serve(certificate) as server:
        publish(server.address("/tanks", body(GOOD), scheme="https"))
        message = refusal()
        assert "127.0.0.1 has a certificate that is not trusted (REQUESTS_CA_BUNDLE can name" in message
        assert server.asked == []
        assert not cache.exists()
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "public"))
        assert len(datasets.load("cascaded_tanks").train) == 2


# Progress


def show_slow_download(server: Loopback, publish, monkeypatch) -> None:
    monkeypatch.setattr(_download, "QUIET_SECONDS", 0.1)
    publish(server.address("/slow", drip(DRIPS["content"] + GOOD)))
    refusal(timeout=2.0)


def test_a_slow_download_is_shown_on_standard_error(server, publish, monkeypatch, capfd):
    show_slow_download(server, publish, monkeypatch)
    assert capfd.readouterr() == ("", "Downloading cascaded_tanks from 127.0.0.1 ...\n")


def test_a_slow_download_is_a_bar_on_a_terminal(server, publish, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    importlib.import_module("rich.progress")  # which takes its time, and not that of the download
    show_slow_download(server, publish, monkeypatch)
    assert "Downloading cascaded_tanks from 127.0.0.1" in screen.getvalue()
    assert "/100.0 kB" in screen.getvalue()
