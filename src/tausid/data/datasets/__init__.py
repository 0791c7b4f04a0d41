"""Records by name: benchmarks of the field, checked against their sums, and simulated plants."""

from tausid.data import plants
from tausid.data.datasets._names import describe, fetch, load, names
from tausid.data.plants import response, simulate, simulate_tanks, tanks_response

__all__ = [
    "describe",
    "fetch",
    "load",
    "names",
    "plants",
    "response",
    "simulate",
    "simulate_tanks",
    "tanks_response",
]
