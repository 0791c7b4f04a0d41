"""A start from short stretches of the records, each with an initial state of its own, that grow step by step.

Over whole records the error of a plant that is strongly nonlinear and hardly damped has many minima: once a simulation
is out of step, there is no way back. Over short stretches it has few. What fits these, with the states found along
them, is the start for longer ones (multiple shooting).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tausid.model.state_space import StateSpace
from tausid.shapes import Float
from tausid.training.full_error import FullError
from tausid.training.least_squares import Point, begin, iterate

# Iterations for each length.
ITERATIONS = 15


def join_stretches(error: FullError, start: StateSpace, shortest: int, is_over: Callable[[], bool]) -> StateSpace:
    """The model that stretches lead to, from those of so many samples at least to half of the longest record, with the
    initial states of whole records; the start where a simulation diverges."""
    whole, theta = error.squares, error.parameters.pack(start)
    lengths = whole.samples.lengths
    states = np.zeros((lengths.sum(), start.nx))
    for length in _growing(int(lengths.max()), shortest):
        stretches = error.over(whole.cut(length))
        point = begin(stretches.squares, theta, _first(states, stretches.squares.samples.lengths), error.decay)
        for _ in range(ITERATIONS):
            if point.converged or is_over():
                break
            point = iterate(*stretches.at(point), error.decay)
        theta, states = point.theta, stretches.squares.states(point.theta, point.x0)
    x0 = _first(states, lengths)
    cost = whole.cost(theta, x0)
    return error.model(Point(theta, x0, cost, error.decay.first(len(theta)))) if np.isfinite(cost) else start


def _growing(longest: int, shortest: int) -> list[int]:
    """Lengths, each twice the one before, up to half of the longest."""
    lengths = []
    while (longest := -(-longest // 2)) >= shortest:
        lengths.append(longest)
    return lengths[::-1]


def _first(states: Float[np.ndarray, "N nx"], lengths: np.ndarray) -> Float[np.ndarray, "B nx"]:
    """The states at the first samples of records that lie one after the other."""
    return states[np.cumsum(lengths) - lengths]
