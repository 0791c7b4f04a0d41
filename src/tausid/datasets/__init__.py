"""Records by name: benchmarks of the field, checked against their sums, and a simulator of the tanks."""

from tausid.datasets._benchmarks import describe, fetch, load, names
from tausid.datasets._tanks import TankParameters, simulate_tanks, tanks_response

__all__ = ["TankParameters", "describe", "fetch", "load", "names", "simulate_tanks", "tanks_response"]
