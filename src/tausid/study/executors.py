"""Where runs are computed: local processes, or a Dask cluster; both are `concurrent.futures` executors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from typing import Any

from tausid.errors import ConfigError, MissingExtraError
from tausid.processes import usable_cores, use_one_thread

SECONDS_TO_CONNECT = 10.0


class LocalWorkers(Executor):
    """Single-threaded processes, each a pool of its own: one that dies takes no other with it.

    Args:
        count: how many; by default one per core.

    Raises:
        ConfigError: fewer than one.
    """

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise ConfigError(f"`workers` must be at least 1; got {count}. Leave it out for one per core.")
        self.slots = count or usable_cores()
        self._idle = [_new_pool() for _ in range(self.slots)]
        self._busy: dict[Future[Any], ProcessPoolExecutor] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call in an idle worker.

        Args:
            fn: what to call.
            *args: its arguments.
            **kwargs: its keyword arguments.

        Returns:
            The future result.

        Raises:
            RuntimeError: all workers are busy.
        """
        self._collect()
        if not self._idle:
            raise RuntimeError(f"at most {self.slots} calls at a time; all workers are busy")
        pool = self._idle.pop()
        future = pool.submit(fn, *args, **kwargs)
        self._busy[future] = pool
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers; those that still compute are terminated.

        Args:
            wait: whether to wait until they are gone.
            cancel_futures: without effect, as no call ever waits for a worker.
        """
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
            broken = not future.cancelled() and isinstance(future.exception(), worker_deaths())
            if broken:
                pool.shutdown(wait=False)
            self._idle.append(_new_pool() if broken else pool)


def cluster(address: str) -> tuple[Executor, Callable[[], int]]:
    """A Dask cluster as an executor.

    Args:
        address: of its scheduler, such as `tcp://10.0.0.1:8786`.

    Returns:
        The executor, and a function that says how many calls its workers can take at a time now.

    Raises:
        MissingExtraError: distributed is not installed.
        ConfigError: no scheduler answers there.
    """
    try:
        import distributed
    except ImportError:
        raise MissingExtraError(
            'a cluster needs distributed, which is missing. Install it with pip install "tausid[cluster]".'
        ) from None
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigError(
            f"`scheduler` must be the address of a running Dask scheduler; {address!r} does not answer ({error}). "
            "Start one with `dask scheduler`, and workers with `dask worker ADDRESS --nthreads 1`."
        ) from None
    return client.get_executor(pure=False), lambda: sum(client.nthreads().values())


def worker_deaths() -> tuple[type[BaseException], ...]:
    """Exceptions that mean: not the call failed, but its worker died."""
    from concurrent.futures import BrokenExecutor

    try:
        from distributed import KilledWorker
    except ImportError:
        return (BrokenExecutor,)
    return (BrokenExecutor, KilledWorker)


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare_worker)


def _prepare_worker() -> None:
    use_one_thread()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose coordinator was killed must not go on: its run will be taken up by another."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
