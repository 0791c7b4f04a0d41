"""Figures show the numbers that they are given; pictures of them are looked at by people, not by tests."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure
from problems import oscillator_record

from tausid import ConfigError, DataError, Record
from tausid.errors import MissingExtraError
from tausid.linear import FrequencyResponse, estimate_bla
from tausid.linear.tau_estimation import estimate_linear_tau
from tausid.model.course import Simulation
from tausid.results.plots import (
    plot_band,
    plot_bla,
    plot_comparison,
    plot_history,
    plot_residuals,
    plot_simulation,
    plot_states,
    plot_study_boxes,
    plot_tau,
    plot_tau_path,
    plot_time_scaling,
    save_figure,
)
from tausid.results.plots._linear import draw_poles
from tausid.results.residuals import analyse_residuals
from tausid.training import HistoryRow


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


def test_a_figure_shows_itself_in_a_notebook():
    record = make_record()
    assert plot_simulation(record, simulation_of(record, 0.1))._repr_png_().startswith(b"\x89PNG")


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
    with pytest.raises(ConfigError, match="`tau` must be a positive number; got 0.0"):
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


def label_boxes(figure):
    figure.draw_without_rendering()
    return [text.get_window_extent() for text in figure.axes[0].get_xticklabels()]


def test_long_labels_slant_and_short_ones_do_not():
    long = {f"variant number {i} with a long name": [1.0, 2.0] for i in range(10)}
    figure = plot_study_boxes(long, x_label="", y_label="")
    assert {text.get_rotation() for text in figure.axes[0].get_xticklabels()} == {30.0}
    short = plot_study_boxes({"tanh": [1.0], "relu": [2.0], "polynomial": [3.0]}, x_label="", y_label="")
    boxes = label_boxes(short)
    assert {text.get_rotation() for text in short.axes[0].get_xticklabels()} == {0.0}
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_a_second_set_stands_beside_and_marks_are_lines():
    groups, published = {0.1: [1.0, 2.0], 1.0: [1.0, 2.0]}, {0.1: [1.0, 3.0], 1.0: [1.0, 3.0]}
    figure = plot_study_boxes(groups, x_label="", y_label="", beside={"paper": published}, marks={"BLA": 0.5})
    assert box_edges(figure, 0)[2] < -1.0 < box_edges(figure, 2)[2]
    (mark,) = [line for line in figure.axes[0].lines if line.get_label() == "BLA"]
    np.testing.assert_allclose(mark.get_xdata(), np.log10(0.5))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["here", "paper", "BLA"]


def test_four_sets_stand_side_by_side_and_five_are_refused():
    others = {name: {0.1: [1.0, 2.0], 1.0: [2.0, 3.0]} for name in "abcd"}
    first = others.pop("d")
    figure = plot_study_boxes(first, x_label="", y_label="", beside=others, name="d")
    at = [box_edges(figure, i)[2] for i in (0, 2, 4, 6)]
    assert at == sorted(at) and at[-1] < -0.5  # all of them nearer to their value than to the next
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["d", "a", "b", "c"]
    with pytest.raises(ConfigError, match="`beside` must hold at most 3 sets; got 4"):
        plot_study_boxes(first, x_label="", y_label="", beside={**others, "e": first})
    with pytest.raises(ConfigError, match="`beside` must have other names than the first set; both have 'a'"):
        plot_study_boxes(first, x_label="", y_label="", beside=others, name="a")


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


HISTORY = (
    HistoryRow(50, 0.04, 0.5, 3e-3, 70.0, 1.0, 2.0),
    HistoryRow(100, 0.01, 0.3, 2e-3, 60.0, 2.0, 1.0),
    HistoryRow(150, 0.01, np.inf, 1e-3, 50.0, 3.0, 0.5),
)


def test_the_history_shows_errors_rates_and_the_best_step():
    figure = plot_history(HISTORY, best_step=100)
    errors, rates = figure.axes
    windows, validation, line, best = errors.lines
    np.testing.assert_allclose(windows.get_ydata(), [0.2, 0.1, 0.1])  # roots of the losses
    np.testing.assert_array_equal(validation.get_ydata(), [0.5, 0.3, np.nan])
    assert list(line.get_xdata()) == [100, 100]
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (100, 0.3)
    np.testing.assert_array_equal(rates.lines[0].get_ydata(), [3e-3, 2e-3, 1e-3])
    np.testing.assert_array_equal(rates.lines[1].get_ydata(), [2.0, 1.0, 0.5])
    with pytest.raises(DataError, match="`history` must have at least one row"):
        plot_history(())


def test_without_validation_the_history_shows_the_windows_only():
    rows = [HistoryRow(50, 0.04, float("nan"), 3e-3, 70.0, 1.0)]
    figure = plot_history(rows, best_step=50)
    assert len(figure.axes[0].lines) == 2  # the windows, and the line at the best step
    assert len(figure.axes[1].lines) == 1


def test_the_path_of_tau_is_drawn_for_one_and_for_several():
    figure = plot_tau_path(HISTORY, best_step=100)
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [70.0, 60.0, 50.0])
    several = [HistoryRow(1, 0.1, 0.1, 1e-3, (1.0, 200.0), 0.0), HistoryRow(2, 0.1, 0.1, 1e-3, (1.0, 100.0), 0.0)]
    panel = plot_tau_path(several).axes[0]
    np.testing.assert_array_equal(panel.lines[1].get_ydata(), [200.0, 100.0])
    assert panel.get_yscale() == "log"
    with pytest.raises(DataError, match="`history` must have at least one row"):
        plot_tau_path([])


def test_the_linear_approximation_is_drawn_with_noise_and_distortion():
    model = estimate_bla(oscillator_record(), nx=2)
    freq = np.array([0.05, 0.1])
    gain = model.frequency_response(freq)[:, :, 0]
    levels = np.full((2, 1), 1e-3)
    measured = FrequencyResponse(freq, gain, levels, 2 * levels, np.array([[0.0], [1e-2]]), 4, 2)
    figure = plot_bla(model, measured)
    amplitude, phase, poles = figure.axes
    curve, points, noise, distortion = amplitude.lines
    drawn = np.interp(freq, curve.get_xdata(), curve.get_ydata())
    z = np.exp(2j * np.pi * freq * 0.5)[:, None, None]  # the exact response from sample to sample
    sampled = model.Cd @ np.linalg.solve(z * np.eye(2) - model.Ad, model.Bd[None]) + model.Dd
    sampled = sampled[:, 0, 0] * model.scaling.y_std / model.scaling.u_std
    np.testing.assert_allclose(drawn, np.abs(sampled), rtol=1e-2)  # 400 points over three decades
    alone = plot_bla(model).axes[0].lines[0]
    continuous = np.interp(freq, alone.get_xdata(), alone.get_ydata())
    np.testing.assert_allclose(continuous, np.abs(gain[:, 0]), rtol=1e-2)
    np.testing.assert_allclose(points.get_ydata(), np.abs(gain[:, 0]))
    np.testing.assert_array_equal(noise.get_ydata(), [1e-3, 1e-3])
    np.testing.assert_array_equal(distortion.get_ydata(), [np.nan, 1e-2])  # none is no level
    np.testing.assert_allclose(phase.lines[1].get_ydata(), np.degrees(np.angle(gain[:, 0])))
    np.testing.assert_allclose(poles.lines[0].get_xdata(), model.poles.real)
    two = FrequencyResponse(freq, np.ones((2, 2), complex), *[np.ones((2, 2))] * 3, 4, 2)
    with pytest.raises(
        DataError, match="`response` must be of the model's channels, 1 inputs and 1 outputs; got 1 and 2"
    ):
        plot_bla(model, two)


def test_residuals_have_a_panel_for_themselves_and_one_per_input():
    record = make_record(200)
    rng = np.random.default_rng(0)
    y = record.y + rng.normal(size=record.y.shape)
    test = analyse_residuals(Simulation(record.t, y, y, 0, "ok", record.output_names), record)
    figure = plot_residuals(test)
    assert len(figure.axes) == 4
    inside, outside = figure.axes[1].lines[:2]
    drawn = np.sort(np.concatenate([inside.get_ydata(), outside.get_ydata()]))
    np.testing.assert_array_equal(drawn, np.sort(test.cross[:, 0, 0]))


def ticks(axis) -> int:
    """Ticks with a number that can be seen."""
    (low, high), places = sorted(axis.get_view_interval()), axis.get_majorticklocs()
    texts = axis.get_major_formatter().format_ticks(places)
    return sum(low <= place <= high and bool(text) for place, text in zip(places, texts, strict=True))


@pytest.mark.parametrize("span", [1.001, 1.3, 1.9, 3.0, 11.0, 1e6])
def test_axes_have_three_ticks_at_least(span):
    rows = tuple(HistoryRow(k, e**2, e, 1e-3, 2.0, 1.0, 0.1) for k, e in enumerate(np.geomspace(1.0, span, 5), 1))
    record = make_record()
    small = dataclasses.replace(record, y=1e-4 * (span - 1) * record.y + 5.0)
    for figure in (plot_history(rows, best_step=1), plot_simulation(small, simulation_of(small, 1e-6 * span))):
        figure.draw_without_rendering()
        for panel in figure.axes:
            assert ticks(panel.yaxis) >= 3, panel.get_ylabel()
        assert ticks(figure.axes[-1].xaxis) >= 3


def test_real_poles_have_no_axis_of_rounding_errors():
    figure = Figure()
    panel = figure.add_subplot()
    draw_poles(panel, np.array([-2.0 + 1e-17j, -0.5 + 0j]))
    assert panel.get_ylim() == (-2.0, 2.0)
    assert not panel.lines[0].get_ydata().any()


def test_tau_is_drawn_with_every_output_and_its_words_stand_over_the_lines():
    record = oscillator_record(200)
    both = Record.from_arrays(record.u, np.hstack([record.y, 2 * record.y + 0.1 * record.u]), ts=record.ts)
    figure = plot_tau(estimate_linear_tau(both, nx=2), both)
    for channel in range(2):
        np.testing.assert_array_equal(figure.axes[channel].lines[0].get_ydata(), both.y[:, channel])
        np.testing.assert_allclose(figure.axes[channel].lines[1].get_ydata(), both.y[:, channel], atol=0.1)
    constants = figure.axes[-1]
    line = max(entry.get_zorder() for entry in constants.lines)
    assert all(text.get_zorder() > line and text.get_bbox_patch() for text in constants.texts)


def test_states_and_bands_are_drawn_as_given():
    record = make_record(outputs=1)
    x = np.random.default_rng(0).normal(size=(50, 3))
    run = Simulation(record.t, record.y, x, 0, "ok", record.output_names)
    states = plot_states(run)
    assert len(states.axes) == 3
    np.testing.assert_array_equal(states.axes[2].lines[0].get_ydata(), x[:, 2])
    band = plot_band(record, run, low=run.y - 1, high=run.y + 2, label="of 5 models")
    edges = band.axes[0].collections[0].get_paths()[0].vertices
    assert edges[:, 1].min() == pytest.approx(run.y.min() - 1)
    assert edges[:, 1].max() == pytest.approx(run.y.max() + 2)
    with pytest.raises(DataError, match=r"`low` and `high` must have the mean's shape, \(50, 1\); got \(3,\)"):
        plot_band(record, run, low=np.zeros(3), high=run.y)
