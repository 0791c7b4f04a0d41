"""A first look finds what was put into the data, and suggests the option that deals with it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tausid
from tausid import DataError, Record
from tausid.data.clocks import split_at_gaps
from tausid.data.inspection import look
from tausid.data.readers import read, read_channels
from tausid.results.plots import plot_record

RANDOM = np.random.default_rng(0)
N = 4000


def channels(**changes: object) -> dict[str, object]:
    """A clean plant at 100 Hz: white input, output that is a 1 Hz sine and some noise."""
    t = 0.01 * np.arange(N)
    y = np.sin(2 * np.pi * t) + 0.01 * RANDOM.standard_normal(N)
    return {"t": t, "u": RANDOM.standard_normal(N), "y": y, **changes}


def said(source: object, **choice: object) -> str:
    return " ".join(look(source, **choice).suggestions)


NAMED = {"inputs": "u", "outputs": "y", "time": "t"}


def test_a_clean_record_stands_in_nobodys_way():
    found = look(channels(), **NAMED)
    assert found.suggestions == ("No problem was found: the data are ready for a fit.",)
    assert found.clock.is_uniform
    assert (found.clock.samples, found.clock.gaps, found.clock.backwards) == (N, 0, 0)
    assert found.clock.ts == pytest.approx(0.01)
    assert [channel.role for channel in found.channels] == ["time", "input", "output"]


def test_numbers_of_a_channel_are_those_of_its_samples():
    y = channels()["y"]
    y[[3, 5]] = np.nan, np.inf
    report = look(channels(y=y), **NAMED).channels[2]
    known = y[np.isfinite(y)]
    assert (report.samples, report.missing, report.levels) == (N, 2, N - 2)
    assert (report.minimum, report.maximum) == (known.min(), known.max())
    assert report.mean == pytest.approx(known.mean())
    assert report.std == pytest.approx(known.std())
    # A sine of amplitude 1 deviates by sqrt(2) standard deviations at most, and by the noise.
    assert report.crest == pytest.approx(np.sqrt(2), rel=0.05)


def test_the_band_of_a_sine_is_its_frequency_and_that_of_white_noise_reaches_the_nyquist_frequency():
    found = look(channels(), **NAMED)
    # Windows of 40 s blur a line by some 1/40 Hz.
    assert found.channels[2].band_hz == pytest.approx(1.0, abs=0.1)
    assert found.channels[1].band_hz == pytest.approx(0.99 * 50.0, rel=0.02)


def test_channels_without_roles_ask_for_them_and_for_the_clock():
    clean = channels()
    unnamed = {"t": clean["t"], "vir": clean["u"], "qm": clean["y"]}
    text = said(unnamed)
    assert "--input NAME --output NAME. Channels: t, vir, qm" in text
    assert "Channel t increases from sample to sample. If it is time: --time t." in text
    assert look(unnamed).clock is None
    assert look(clean).clock.ts == pytest.approx(0.01)  # u, y and t say themselves what they are
    assert "--ts 4." in said({"uEst": np.arange(5.0), "Ts": 4.0})
    assert "The sampling time is not known" in said({"u": RANDOM.standard_normal(9)})


def test_jitter_and_gaps_of_the_clock():
    t = 0.01 * np.arange(N) + 0.001 * RANDOM.uniform(-1, 1, N)
    t[2000:] += 0.5
    found = look(channels(t=t), **NAMED)
    # The difference of two independent uniform shifts of +-10 % has a deviation of 0.1 sqrt(2/3).
    assert found.clock.jitter == pytest.approx(0.1 * np.sqrt(2 / 3), rel=0.05)
    assert (found.clock.gaps, found.clock.is_uniform) == (1, False)
    assert found.clock.longest_gap_from == t[1999]
    assert found.clock.longest == pytest.approx(t[2000] - t[1999])
    assert f'--prepare "interpolate {found.clock.ts:.4g}"' in found.suggestions[0]
    assert "50 lost samples, 1 gap (the longest 0.51" in found.suggestions[0]


def test_a_gap_is_where_a_fit_splits_the_record_and_shorter_steps_have_lost_samples():
    t = 0.01 * np.arange(N)
    t[1000:] += 0.03  # three samples lost: four steps in one
    t[2000:] += 0.2
    found, record = look(channels(t=t), **NAMED).clock, read(channels(t=t), **NAMED)
    assert (found.gaps, found.lost) == (1, 3 + 20)
    assert len(split_at_gaps(record)) == found.gaps + 1


def test_time_that_runs_backwards_is_counted():
    t = channels()["t"]
    t[[10, 20]] = t[[9, 5]]
    assert look(channels(t=t), **NAMED).clock.backwards == 2
    assert "Time steps of 1e-300 s are none of a measurement" in said(channels(t=np.arange(4000) * 1e-300), **NAMED)
    assert "Time does not increase at 2 of 4000 samples" in said(channels(t=t), **NAMED)


def test_limits_are_found_and_switches_are_not_taken_for_them():
    y = np.clip(channels()["y"], -2.0, 0.8)
    report = look(channels(y=y), **NAMED).channels[2]
    assert report.at_maximum == np.mean(y == 0.8)
    assert report.limited == report.at_maximum
    assert "y is at its maximum, 0.8, for" in said(channels(y=y), **NAMED)
    switch = look(channels(u=np.sign(RANDOM.standard_normal(N))), **NAMED).channels[1]
    assert (switch.levels, switch.limited) == (2, 0.0)


def test_missing_constant_and_still_channels_come_with_the_option_to_type():
    u = channels()["u"]
    u[7:9] = np.nan
    assert "u lacks 2 of 4000 samples; an input must be complete. Fill it: --fill hold" in said(channels(u=u), **NAMED)
    assert "y lacks 1 of 4000 samples: allowed for an output" in said(
        channels(y=np.append(np.nan, np.arange(N - 1))), **NAMED
    )
    assert "u is constant at 3: it says nothing about the plant" in said(channels(u=np.full(N, 3.0)), **NAMED)
    y = channels()["y"]
    y[3000:3500] = 0.123
    report = look(channels(y=y), **NAMED).channels[2]
    assert (report.still_from, report.longest_still) == (3000, 500)
    text = said(channels(y=y), **NAMED)
    assert "y does not change from sample 3000 to 3499 (5 s)" in text
    assert '--prepare "trim 0 3000 samples"' in text
    step = np.where(np.arange(N) < 2000, 0.0, 1.0)
    assert "u changes only 1 time: it excites little" in said(channels(u=step), **NAMED)


def test_a_record_sampled_too_fast_is_to_be_decimated_by_what_its_channels_allow():
    t = 0.001 * np.arange(40_000)
    slow = {"t": t, "u": np.sin(2 * np.pi * 3 * t), "y": np.sin(2 * np.pi * t)}
    # 20 samples per period of y's 1 Hz and 2.5 per period of u's 3 Hz: 20 Hz would do; windows of 8 s blur the lines.
    (sentence,) = look(slow, **NAMED).suggestions
    factor = int(sentence.split('"decimate ')[1].split('"')[0])
    assert 1000 / 20 / 1.3 <= factor <= 1000 / 20
    assert "Sampled at 1000 Hz" in sentence


def test_a_column_of_text_is_listed_with_the_reason_and_a_named_one_is_an_error(tmp_path):
    (tmp_path / "log.csv").write_text("u,note,y\n1,on,2\n3,off,4\n")
    found = look(tmp_path / "log.csv")
    assert [channel.name for channel in found.channels] == ["u", "note", "y"]
    assert "column 'note' of" in found.channels[1].note
    assert "must hold numbers; line 2 has 'on'. Correct that cell" in found.channels[1].note
    with pytest.raises(DataError, match="line 2 has 'on'"):
        look(tmp_path / "log.csv", inputs="note", outputs="y", ts=1.0)


def test_records_and_channels_can_be_looked_at_and_all_of_it_is_json():
    data = tausid.prepare(tausid.datasets.simulate_tanks(samples=400, seed=0).train, "trim 400 1200")
    found = look(data)
    assert found.history == data.history
    assert found.clock.ts == data.ts
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["channels"][1]["role"] == "input"
    assert look(read_channels({"u": [1.0, 2.0], "y": [1.0, 3.0]})).clock is None


def test_the_picture_shows_every_channel_missing_samples_and_spectra(tmp_path):
    y = channels()["y"]
    y[100:110] = np.nan
    data = channels(y=y)
    record = Record.from_arrays(data["u"], y, t=data["t"], units={"u": "V", "y": "m"}, name="bench")
    figure = plot_record(record)
    left = figure.axes[::2]
    assert [panel.get_ylabel() for panel in left] == ["u\ninput\nV", "y\noutput\nm"]
    np.testing.assert_array_equal(left[1].lines[0].get_ydata(), y)
    np.testing.assert_array_equal(left[1].lines[1].get_xdata(), data["t"][100:110])
    frequency, amplitude = figure.axes[3].lines[0].get_data()
    assert frequency[np.argmax(amplitude)] == pytest.approx(1.0, abs=0.05)
    assert tausid.plots.save_figure(figure, tmp_path / "look.svg").stat().st_size > 1000


def test_a_long_record_is_drawn_by_its_envelope_and_names_without_samples_are_refused():
    long = RANDOM.standard_normal(200_000)
    long[5] = 50.0
    drawn = plot_record(read_channels({"y": long})).axes[0].lines[0].get_ydata()
    assert len(drawn) <= 2 * 25_000
    assert (drawn.max(), drawn.min()) == (50.0, long.min())
    with pytest.raises(DataError, match="must have a channel of at least two samples to be drawn"):
        plot_record(read_channels({"Ts": 4.0}))
