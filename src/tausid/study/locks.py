"""Lock files: one coordinator per study, one writer per run folder, also across machines that share a file system."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tausid.errors import ConfigError, MissingExtraError, StorageError

STUDY_LOCK = ".study.lock"


@contextlib.contextmanager
def hold(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold a lock file while the block lasts; the system lets go of it when the process dies."""
    try:
        from filelock import FileLock, Timeout
    except ImportError:
        raise MissingExtraError(
            'studies need filelock, which is missing. Install it with pip install "tausid[study]".'
        ) from None
    lock = FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        pass
    except OSError as error:
        raise StorageError(
            f"{path} must be writable; writing failed: {error.strerror or error}. Free some space, or change its "
            "permissions."
        ) from None
    try:
        yield lock.is_locked
    finally:
        lock.release()


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a study's lock: two coordinators on one journal would repeat each other's runs."""
    with hold(folder / STUDY_LOCK, seconds=0.0) as held:
        if not held:
            raise ConfigError(
                f"a study must be run by one process at a time; another process is running the one in {folder}. "
                "Wait for it, or see its progress with `tausid study status`."
            )
        yield
