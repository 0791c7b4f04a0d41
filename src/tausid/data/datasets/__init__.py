"""Records by name: benchmarks of the field, checked against their sums, and simulated plants."""

from tausid.data.datasets._names import describe, fetch, load, names
from tausid.data.datasets._plants import AbstractPlant, Duffing, Neutralization, TwoMassDrive, response, simulate
from tausid.data.datasets._tanks import TankParameters, simulate_tanks, tanks_response

__all__ = [
    "AbstractPlant",
    "Duffing",
    "Neutralization",
    "TankParameters",
    "TwoMassDrive",
    "describe",
    "fetch",
    "load",
    "names",
    "response",
    "simulate",
    "simulate_tanks",
    "tanks_response",
]
