from __future__ import annotations

import os
import stat
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from tausid import StorageError
from tausid.storage import check_writable, read_arrays, write_arrays, write_bytes

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(3.5, np.float32), "empty": np.zeros((2, 0))}


@pytest.fixture
def file(tmp_path):
    return write_arrays(tmp_path / "deep" / "x.safetensors", ARRAYS, kind="model", content={"n": 1, "s": "ü"})


def test_what_was_written_comes_back(file):
    arrays, content = read_arrays(file, kind="model")
    assert content == {"n": 1, "s": "ü"}
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].shape == array.shape


def test_a_truncated_file_is_refused(file):
    whole = file.read_bytes()
    for length in (0, 4, 40, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(StorageError, match="truncated, corrupted or something else"):
            read_arrays(file, kind="model")


def test_every_corrupted_byte_is_noticed(file):
    whole = file.read_bytes()
    data_start = 8 + struct.unpack("<Q", whole[:8])[0]
    for place in range(data_start, len(whole)):
        spoiled = bytearray(whole)
        spoiled[place] ^= 0x10
        file.write_bytes(spoiled)
        with pytest.raises(StorageError, match="must match its checksum"):
            read_arrays(file, kind="model")


def test_files_of_other_programs_are_refused(tmp_path):
    save_file({"w": np.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(StorageError, match="a safetensors file of another program"):
        read_arrays(tmp_path / "other.safetensors", kind="model")
    (tmp_path / "text").write_text("u,y\n1,2\n")
    with pytest.raises(StorageError, match="truncated, corrupted or something else"):
        read_arrays(tmp_path / "text", kind="model")


def test_a_future_version_is_refused(file):
    file.write_bytes(file.read_bytes().replace(b'version\\": 1', b'version\\": 9'))
    with pytest.raises(StorageError, match="format version 1 or older; it has 9. Update tausid"):
        read_arrays(file, kind="model")


def test_another_kind_is_refused(file):
    with pytest.raises(StorageError, match="must be a checkpoint file; it is a model file"):
        read_arrays(file, kind="checkpoint")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"model file .*none\.safetensors must exist"):
        read_arrays(tmp_path / "none.safetensors", kind="model")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for act in (lambda p: write_bytes(p / "x", b"1"), check_writable):
        with pytest.raises(StorageError, match=r"must be writable; writing failed: .* Choose another place"):
            act(tmp_path / "file" / "sub")


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = write_bytes(tmp_path / "x", b"old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StorageError, match="No space left on device"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_have_ordinary_permissions(file):
    assert stat.S_IMODE(file.stat().st_mode) & stat.S_IRGRP == stat.S_IRGRP & ~os.umask(os.umask(0)) | 0
