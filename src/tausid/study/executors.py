"""Where runs are computed: local processes, or a Dask cluster; both are `concurrent.futures` executors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor

from tausid.errors import ConfigError, MissingExtraError

SECONDS_TO_CONNECT = 10.0


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
    try:
        from distributed import KilledWorker
    except ImportError:
        return (BrokenExecutor,)
    return (BrokenExecutor, KilledWorker)
