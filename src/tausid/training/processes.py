"""Processes that compute side by side: how they are set up, and a pool of them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from types import ModuleType
from typing import Any

from tausid.errors import ConfigError

# Processes at a time, far beyond the cores of a machine.
MOST_WORKERS = 1024


def use_one_thread() -> None:
    """One single-threaded process per core is fastest for models this small; read when JAX first computes."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def usable_cores() -> int:
    """Cores that this process may use: one where it is itself a worker among others."""
    if parent_process() is not None:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_workers(count: int | None) -> None:
    """Check a number of calls at a time."""
    if count is not None and not 1 <= count <= MOST_WORKERS:
        raise ConfigError(f"`workers` must be 1 to {MOST_WORKERS}; got {count}. Leave it out for one per core.")


class LocalWorkers(Executor):
    """Single-threaded processes, each a pool of its own: one that dies takes no other with it.

    Args:
        count: how many; by default one per core.
        initializer: what each process calls first, after it was set to one thread.
        initargs: its arguments.
        program: whether processes import the program that was started, for what it defines; that must be under
            `if __name__ == "__main__":` then.

    Raises:
        ConfigError: fewer than one.
    """

    def __init__(
        self,
        count: int | None = None,
        *,
        initializer: Callable[..., None] | None = None,
        initargs: tuple[Any, ...] = (),
        program: bool = True,
    ) -> None:
        check_workers(count)
        self.slots = count or usable_cores()
        self._first = (initializer, initargs)
        self._program = program
        self._lock = threading.Lock()
        self._idle = [_new_pool(*self._first) for _ in range(self.slots)]
        self._busy: dict[Future[Any], ProcessPoolExecutor] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call in an idle worker."""
        with self._lock, contextlib.nullcontext() if self._program else _without_program():
            self._collect()
            if not self._idle:
                raise RuntimeError(f"at most {self.slots} calls at a time; all workers are busy")
            pool = self._idle.pop()
            future = pool.submit(fn, *args, **kwargs)
            self._busy[future] = pool
            return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers; those that still compute are terminated."""
        self._collect()
        for pool in self._busy.values():
            for process in list((pool._processes or {}).values()):
                process.terminate()
        for pool in (*self._idle, *self._busy.values()):
            pool.shutdown(wait=wait)
        self._idle, self._busy = [], {}

    def _collect(self) -> None:
        """Workers that are done are idle again; a broken one is replaced."""
        for future in [future for future in self._busy if future.done()]:
            pool = self._busy.pop(future)
            broken = not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
            if broken:
                pool.shutdown(wait=False)
            self._idle.append(_new_pool(*self._first) if broken else pool)


@contextlib.contextmanager
def _without_program() -> Iterator[None]:
    """Processes that begin now know nothing of the program that was started."""
    program, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


def _new_pool(initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> ProcessPoolExecutor:
    context = get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_prepare_worker, initargs=(initializer, initargs))


def _prepare_worker(initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> None:
    use_one_thread()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _end_with_parent() -> None:
    """A worker whose coordinator was killed must not go on: its run will be taken up by another."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
