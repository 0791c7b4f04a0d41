"""Transport delays: inputs as they act, from inputs as they are given, one sample at a time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tausid.export.description import Description

# A held sample counts as old enough from this share of the sampling time before: clocks are rounded.
SLACK = 1e-3


class DelayLine:
    """Past inputs, as far back as the longest delay; before the first one the inputs were as there."""

    def __init__(self, description: Description) -> None:
        self.delays, self.hold = description.delays, description.hold
        self.slack = np.where(self.hold > 0, 0.0, SLACK * description.ts)
        self.past: deque[tuple[float, np.ndarray]] = deque()  # newest first: how long it lasted, inputs

    def acting(self, u: np.ndarray) -> np.ndarray:
        """The inputs that act now, where the given ones are u."""
        found = np.array(u, float)
        for i in np.flatnonzero(self.delays):
            age, value, delay = 0.0, found[i], self.delays[i]
            for dt, row in self.past:
                if age >= delay - self.slack[i]:
                    break
                newer, age, value = value, age + dt, row[i]
                if self.hold[i] and age > delay:
                    value += (age - delay) / dt * (newer - value)
            found[i] = value
        return found

    def remember(self, u: np.ndarray, dt: float) -> None:
        """Let `dt` seconds pass, at whose beginning the given inputs were u."""
        self.past.appendleft((dt, np.array(u, float)))
        longest = float(np.max(self.delays, initial=0.0))
        while len(self.past) > 1 and sum(dt for dt, _ in self.past) - self.past[-1][0] > longest:
            self.past.pop()


def acting_inputs(description: Description, u: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The inputs that act at each time stamp, shape (N, nu)."""
    if not np.any(description.delays):
        return u
    line, rows = DelayLine(description), []
    for row, dt in zip(u, [*np.diff(t), 0.0], strict=True):
        rows.append(line.acting(row))
        line.remember(row, float(dt))
    return np.array(rows)
