"""What a user can ask to compute with."""

from __future__ import annotations

from dataclasses import dataclass

from tausid.errors import ConfigError, unknown_name

ENGINES = ("auto", "fused", "scan")
MAX_THREADS = 1024


@dataclass(frozen=True)
class Engine:
    """What computes: `auto` takes C++ where it supports the model on this machine, and JAX elsewhere.

    Args:
        name: `auto`, `fused` (C++) or `scan` (JAX).
        threads: threads that the fused engine shares trajectories among; `scan` leaves that to XLA.

    Raises:
        ConfigError: an unknown name, or a number of threads that is not 1 to 1024.
    """

    name: str = "auto"
    threads: int = 1

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(unknown_name("engine", self.name, ENGINES))
        if not 1 <= self.threads <= MAX_THREADS:
            raise ConfigError(
                f"`threads` must be 1 to {MAX_THREADS}; got {self.threads}. Use 1 unless one run has all cores."
            )


AUTO = Engine()
