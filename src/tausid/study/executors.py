"""Where runs are computed: local processes, or a Dask cluster; both are `concurrent.futures` executors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor
from typing import Any

from tausid.errors import ConfigError, ExecutorError, MissingExtraError
from tausid.training.processes import LocalWorkers, check_workers

SECONDS_TO_CONNECT = 10.0


@contextlib.contextmanager
def open_workers(
    count: int | None = None, *, scheduler: str | None = None, executor: Executor | None = None
) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """What computes, for as long as the block lasts; calls that are not done by its end are given up."""
    check_workers(count)
    if executor is not None:
        yield executor, lambda: count or 1
    elif scheduler is not None:
        with _cluster(scheduler) as (pool, slots):
            yield pool, (lambda: min(slots(), count)) if count else slots
    else:
        with LocalWorkers(count) as local:
            yield local, lambda: local.slots


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, Callable[[], int]]]:
    client = _connect(address)
    pool = client.get_executor(pure=False)
    try:
        yield pool, lambda: _count_threads(client, address)
    finally:
        # A call that is at work goes on in its worker, as a thread cannot be stopped: its folder's lock says so. To
        # wait for it here would make Ctrl-C last as long as a training.
        if client.status == "running":
            pool.shutdown(wait=False)
        client.close(timeout=SECONDS_TO_CONNECT)


def _connect(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtraError(
            'a cluster needs distributed, which is missing. Install it with pip install "tausid[cluster]".'
        ) from None
    try:
        return distributed.Client(address, timeout=SECONDS_TO_CONNECT)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigError(
            f"`scheduler` must be the address of a running Dask scheduler; {address!r} does not answer ({error}). "
            "Start one with `dask scheduler`, and workers with `dask worker ADDRESS --nthreads 1`."
        ) from None


def _count_threads(client: Any, address: str) -> int:
    if client.status != "closed":  # as it is when a scheduler was away for too long
        with contextlib.suppress(OSError):
            return sum(client.nthreads().values())
    raise ExecutorError(
        f"the scheduler {address} must answer while a study runs; it no longer does. Start it again, then resume "
        "with --resume."
    )


def worker_deaths() -> tuple[type[BaseException], ...]:
    """Exceptions that mean: not the call failed, but its worker died."""
    distributed = sys.modules.get("distributed")  # a study on a cluster has imported it, others need not
    return (BrokenExecutor,) if distributed is None else (BrokenExecutor, distributed.KilledWorker)
