"""Figures show the numbers that they are given; pictures of them are looked at by people, not by tests."""

from __future__ import annotations

import builtins
import warnings

import numpy as np
import pytest

from tausid import ConfigError, DataError, Record
from tausid.errors import MissingExtraError
from tausid.plots import (
    plot_comparison,
    plot_simulation,
    plot_study_boxes,
    plot_time_scaling,
    save_figure,
)
from tausid.simulation import Simulation


def make_record(samples: int = 50, *, outputs: int = 2) -> Record:
    y = np.stack([np.sin(np.arange(samples) / (i + 1.0)) for i in range(outputs)], axis=1)
    names = [f"y{i + 1}" for i in range(outputs)]
    units = {"u": "V", "y1": "m", **dict.fromkeys(names[1:], "")}
    return Record.from_arrays(np.arange(samples), y, ts=2.0, output_names=names, units=units, name="sines")


def simulation_of(record: Record, error: float) -> Simulation:
    y = np.where(np.arange(len(record))[:, None] < 3, np.nan, record.y + error)
    return Simulation(record.t, y, np.zeros((len(record), 1)), 3, "ok", record.output_names)


def test_the_figure_shows_measured_simulated_and_residual_of_every_output(tmp_path):
    record = make_record()
    figure = plot_simulation(record, simulation_of(record, 0.25))
    top, residual = figure.axes[0], figure.axes[1]
    assert len(figure.axes) == 4
    np.testing.assert_array_equal(top.lines[0].get_ydata(), record.y[:, 0])
    np.testing.assert_array_equal(top.lines[1].get_ydata()[3:], record.y[3:, 0] + 0.25)
    np.testing.assert_allclose(residual.lines[0].get_ydata()[3:], -0.25)
    assert top.get_ylabel() == "y1 (m)"
    assert figure.axes[2].get_ylabel() == "y2"


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_figure_becomes_a_file_the_same_one_each_time(tmp_path, ending, start):
    record = make_record()
    paths = [
        save_figure(plot_simulation(record, simulation_of(record, 0.1)), tmp_path / f"{i}.{ending}") for i in (1, 2)
    ]
    assert paths[0].read_bytes().startswith(start)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_another_ending_is_refused(tmp_path):
    record = make_record()
    with pytest.raises(ConfigError, match=r"must end in .png, .svg, .pdf; got 'x.jpg'"):
        save_figure(plot_simulation(record, simulation_of(record, 0.1)), tmp_path / "x.jpg")


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    original = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "matplotlib":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r'pip install "tausid\[plots\]"'):
        plot_time_scaling(make_record(), 4.0)


def test_names_from_data_are_text_and_never_formulas(tmp_path):
    y = np.sin(np.arange(20.0))
    record = Record.from_arrays(np.arange(20.0), y, ts=1.0, output_names=["$\\frac{"], name="a $x^$ b")
    figure = plot_simulation(record, simulation_of(record, 0.1))
    save_figure(figure, tmp_path / "x.svg")  # a broken formula would raise
    assert "a $x^$ b" in (tmp_path / "x.svg").read_text()


def test_time_scaling_draws_the_same_outputs_over_both_times():
    record = make_record(outputs=1)
    figure = plot_time_scaling(record, 4.0)
    seconds, scaled = figure.axes[0].lines
    np.testing.assert_array_equal(seconds.get_xdata(), record.t)
    np.testing.assert_array_equal(scaled.get_xdata(), record.t / 4.0)
    np.testing.assert_array_equal(seconds.get_ydata(), scaled.get_ydata())
    labels = [text for axis in (figure.axes[0], *figure.axes[0].child_axes) for text in [axis.get_xlabel()]]
    assert labels == ["time t (s)", "normalized time t / tau (no unit)"]
    with pytest.raises(ConfigError, match="`tau` must be a positive number of seconds; got 0.0"):
        plot_time_scaling(record, 0.0)


def test_a_comparison_names_every_model_with_its_error():
    record = make_record(outputs=1)
    runs = {"good": simulation_of(record, 0.1), "bad $": simulation_of(record, -0.5)}
    figure = plot_comparison(record, runs)
    top, residuals = figure.axes
    texts = [text.get_text() for text in top.get_legend().get_texts()]
    assert texts == ["measured", "good (RMSE 0.1 m)", r"bad \$ (RMSE 0.5 m)"]
    np.testing.assert_allclose(residuals.lines[1].get_ydata()[3:], 0.5)
    with pytest.raises(DataError, match="must hold at least one simulation"):
        plot_comparison(record, {})
    with pytest.raises(DataError, match="simulation 'one' must have the record's 2 outputs; got 1"):
        plot_comparison(make_record(outputs=2), {"one": runs["good"]})


def test_a_simulation_on_another_grid_is_compared_without_an_error():
    record = make_record(outputs=1)
    fine = Simulation(np.linspace(0, 98, 99), np.zeros((99, 1)), np.zeros((99, 1)), 0, "ok", ("y1",))
    figure = plot_comparison(record, {"fine": fine, "own": simulation_of(record, 0.5)})
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["measured", "fine", "own (RMSE 0.5 m)"]


def box_edges(figure, index=0):
    """Lower and upper quartile, and the middle of the box on the x-axis."""
    corners = figure.axes[0].patches[index].get_path().vertices
    return corners[:, 1].min(), corners[:, 1].max(), (corners[:4, 0].min() + corners[:4, 0].max()) / 2


def test_boxes_show_quartiles_medians_and_the_whole_range_at_the_logarithm_of_their_value():
    scores = np.arange(1.0, 12.0)
    figure = plot_study_boxes({0.01: scores, 1.0: scores + 1}, x_label="Ts / tau", y_label="RMSE (V)")
    np.testing.assert_allclose(box_edges(figure), [3.5, 8.5, -2.0])
    np.testing.assert_allclose(box_edges(figure, 1), [4.5, 9.5, 0.0], atol=1e-12)
    heights = np.concatenate([line.get_ydata() for line in figure.axes[0].lines])
    assert heights.min() == 1.0
    assert heights.max() == 12.0
    assert 6.0 in heights  # the median
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0.01", "1"]


def test_runs_above_the_axis_are_counted_diverged_ones_among_them():
    groups = {"a": [0.1, 0.2, 0.3], "b": [0.5, 2.0, np.inf, np.nan]}
    figure = plot_study_boxes(groups, x_label="", y_label="", y_max=1.0)
    assert [text.get_text() for text in figure.axes[0].texts] == ["\N{UPWARDS ARROW}3"]
    assert figure.axes[0].get_ylim() == (0.0, 1.0)
    low, high, _ = box_edges(figure, 1)
    assert low == pytest.approx(1.625)  # the quartile of 0.5, 2, endless, endless
    assert high == 2.0  # cut off at twice the axis, out of sight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()


def test_a_second_set_stands_beside_and_marks_are_lines():
    groups, published = {0.1: [1.0, 2.0], 1.0: [1.0, 2.0]}, {0.1: [1.0, 3.0], 1.0: [1.0, 3.0]}
    figure = plot_study_boxes(
        groups, x_label="", y_label="", beside=published, marks={"BLA": 0.5}, names=("here", "paper")
    )
    assert box_edges(figure, 0)[2] < -1.0 < box_edges(figure, 2)[2]
    (mark,) = [line for line in figure.axes[0].lines if line.get_label() == "BLA"]
    np.testing.assert_allclose(mark.get_xdata(), np.log10(0.5))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["here", "paper", "BLA"]


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        ({}, {}, "`groups` must hold at least one group"),
        ({"a": []}, {}, "got none or an empty one"),
        ({"a": [1.0], 1.0: [1.0]}, {}, "positive numbers, or all by text"),
        ({-1.0: [1.0]}, {}, "positive numbers, or all by text"),
        ({"a": [1.0]}, {"marks": {"BLA": 1.0}}, "`marks` must stand on an axis of numbers"),
        ({1.0: [1.0]}, {"marks": {"BLA": 0.0}}, "`marks` must be positive numbers; 'BLA' is 0.0"),
        ({1.0: [np.inf]}, {}, "all runs diverged. Give `y_max`"),
        ({1.0: [1.0]}, {"y_max": -1.0}, "`y_max` must be a positive number; got -1.0"),
    ],
)
def test_boxes_refuse_what_cannot_be_drawn(groups, options, message):
    with pytest.raises(ConfigError, match=message):
        plot_study_boxes(groups, x_label="", y_label="", **options)
