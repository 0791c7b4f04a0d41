from __future__ import annotations

import numpy as np

from tausid import Record
from tausid.plots import plot_simulation
from tausid.simulation import Simulation


def test_the_figure_shows_measured_simulated_and_residual_of_every_output(tmp_path):
    y = np.stack([np.sin(np.arange(50.0)), np.cos(np.arange(50.0))], axis=1)
    record = Record.from_arrays(np.arange(50.0), y, ts=2.0, units={"u": "V", "y1": "m", "y2": ""})
    simulated = np.where(np.arange(50)[:, None] < 3, np.nan, y + 0.25)
    figure = plot_simulation(record, Simulation(record.t, simulated, np.zeros((50, 1)), 3, "ok", ("y1", "y2")))
    top, residual = figure.axes[0], figure.axes[1]
    assert len(figure.axes) == 4
    np.testing.assert_array_equal(top.lines[0].get_ydata(), y[:, 0])
    np.testing.assert_array_equal(top.lines[1].get_ydata(), simulated[:, 0])
    np.testing.assert_allclose(residual.lines[0].get_ydata()[3:], -0.25)
    assert top.get_ylabel() == "y1 (m)"
    assert figure.axes[2].get_ylabel() == "y2"
    figure.savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
