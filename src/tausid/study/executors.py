"""Where runs are computed: local processes, or a Dask cluster; both are `concurrent.futures` executors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

from tausid.errors import ConfigError, MissingExtraError
from tausid.processes import LocalWorkers, worker_deaths

__all__ = ["SECONDS_TO_CONNECT", "LocalWorkers", "cluster", "worker_deaths"]

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
