"""Lock files: one coordinator per study, one writer per run folder, also across machines that share a file system."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tausid.errors import ConfigError, StorageError

STUDY_LOCK = ".study.lock"
RUN_LOCK = ".run.lock"


@contextlib.contextmanager
def hold(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold a lock file while the block lasts; the system lets go of it when the process dies.

    A thread that holds it already holds it once more: the run of a study holds its folder, and so does the fit in it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, is_singleton=True)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        pass
    except OSError as error:
        raise StorageError(
            f"{path} must be writable; writing failed: {error.strerror or error}. Free some space, or change its "
            "permissions."
        ) from None
    held = lock.is_locked
    try:
        yield held
    finally:
        if held:
            lock.release()


@contextlib.contextmanager
def only_coordinator(folder: Path) -> Iterator[None]:
    """Hold a study's lock: two coordinators on one journal would repeat each other's runs."""
    with hold(folder / STUDY_LOCK, seconds=0.0) as held:
        if not held:
            raise ConfigError(
                f"a study must be run by one process at a time; another process is running the one in {folder}. "
                "Wait for it, or see its progress with `tausid study status`."
            )
        yield


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder: two fits in one folder would write over each other's checkpoints."""
    with hold(folder / RUN_LOCK, seconds=0.0) as held:
        if not held:
            raise ConfigError(
                f"`out` must be a folder that no other fit is writing to; another one is writing to {folder}. Wait "
                "until it ends, or choose another folder."
            )
        yield
