"""Reports in a real browser: Debian's Chromium without a window, driven by playwright."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pages import SCRIPT, run_with, sines, write_study

from tausid.results.report import run_page, write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: pages are not looked at in a browser here")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser can be driven")
    # Chromium's sandbox does not work for root, as whom containers often run tests.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a peak of one sample in a long record, and channels named like scripts."""
    record = sines(40_000, input=SCRIPT, output="level")
    y = record.y.copy()
    y[27_777] = 9.0
    test = dataclasses.replace(record, y=y, name="long & <i>test</i>")
    run = run_with([("train", sines(500, input=SCRIPT), 0.1), ("test", test, 0.2)], name=SCRIPT)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(run_page(run))
    return path


class Opened:
    """A page, what its console said, and what it asked of the network."""

    def __init__(self, browser, path: Path, *, width: int = 1200, height: int = 900, **options) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        # Chromium's advice on reading pixels is for this test, which reads them, and not for the page.
        self.page.on("console", lambda m: None if "willReadFrequently" in m.text else self.said.append(m.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.canvas = self.page.locator("canvas").first

    def view(self) -> tuple[float, float]:
        data = self.canvas.evaluate("canvas => [Number(canvas.dataset.from), Number(canvas.dataset.to)]")
        return data[0], data[1]

    def box(self) -> dict:
        self.canvas.scroll_into_view_if_needed()
        return self.canvas.bounding_box()

    def inked(self, locator) -> int:
        """Pixels of a canvas that are not white."""
        return locator.evaluate(
            "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
            " for (let i = 0; i < d.length; i += 4) n += d[i] + d[i + 1] + d[i + 2] < 600; return n; }"
        )


@pytest.fixture(scope="module")
def shared(browser, report) -> Iterator[Opened]:
    page = Opened(browser, report)
    yield page
    page.context.close()


@pytest.fixture
def opened(shared) -> Opened:
    """One page for all tests, shown from its top with the whole records."""
    for canvas in shared.page.locator("canvas").all():
        canvas.press("Home")
    shared.page.evaluate("scrollTo(0, 0)")
    return shared


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait until something holds: wheels turn and pages scroll a moment after they are told to."""
    ends = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < ends, "waited ten seconds"
        time.sleep(0.02)


def test_it_opens_without_a_word_on_the_console_and_without_network(opened, report):
    assert opened.page.locator("canvas").count() == 2
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith("data:")] == [report.as_uri()]
    for canvas in opened.page.locator("canvas").all():
        assert opened.inked(canvas) > 2000
    broken = opened.page.evaluate("[...document.images].filter(image => !image.naturalWidth).length")
    assert (opened.page.locator("img").count() >= 2, broken) == (True, 0)


def test_names_from_data_are_text(opened):
    assert opened.page.locator("h1").inner_text() == SCRIPT
    assert SCRIPT in opened.page.title()
    assert opened.page.locator("script").count() == 3  # two sets of numbers, and the page's own
    assert opened.page.locator("i").count() == 0
    opened.box()
    opened.canvas.hover()
    assert SCRIPT in opened.page.locator(".readout").first.inner_text()
    assert opened.said == []


def test_dragging_zooms_and_a_double_click_shows_all(opened):
    first, last = opened.view()
    box = opened.box()
    y = box["y"] + 60
    left, right = box["x"] + 66, box["x"] + box["width"] - 10
    opened.page.mouse.move(left + 0.25 * (right - left), y)
    opened.page.mouse.down()
    opened.page.mouse.move(left + 0.5 * (right - left), y, steps=5)
    opened.page.mouse.up()
    # A pixel is a thousandth of the panel.
    np.testing.assert_allclose(opened.view(), [first + 0.25 * (last - first), first + 0.5 * (last - first)], rtol=5e-3)
    opened.canvas.dblclick(position={"x": 300, "y": 60})
    assert opened.view() == (first, last)


def test_the_wheel_zooms_around_the_pointer_and_scrolls_when_all_is_seen(opened):
    first, last = opened.view()
    box = opened.box()
    opened.page.mouse.move(box["x"] + 66 + 0.5 * (box["width"] - 76), box["y"] + 60)
    opened.page.mouse.wheel(0, -600)
    wait_for(lambda: opened.view()[0] > first)
    start, stop = opened.view()
    assert (start + stop) / 2 == pytest.approx((first + last) / 2, rel=1e-2)
    assert stop - start == pytest.approx((last - first) / np.e, rel=1e-2)  # a turn is at most a factor e
    opened.canvas.dblclick(position={"x": 300, "y": 60})
    before = opened.page.evaluate("scrollY")
    opened.page.mouse.wheel(0, 200)
    wait_for(lambda: opened.page.evaluate("scrollY") > before)
    assert opened.view() == (first, last)


def test_buttons_keys_and_shift_drag_move(opened):
    first, last = opened.view()
    figure = opened.page.locator("figure").first
    figure.get_by_label("zoom in").click()
    start, stop = opened.view()
    assert stop - start == pytest.approx((last - first) / 2)
    figure.get_by_label("move right").click()
    assert opened.view()[0] == pytest.approx(start + 0.3 * (stop - start))
    opened.canvas.focus()
    opened.page.keyboard.press("ArrowLeft")
    assert opened.view()[0] == pytest.approx(start)
    box = opened.box()
    opened.page.keyboard.down("Shift")
    opened.page.mouse.move(box["x"] + 400, box["y"] + 60)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 300, box["y"] + 60, steps=4)
    opened.page.mouse.up()
    opened.page.keyboard.up("Shift")
    moved, _ = opened.view()
    assert moved == pytest.approx(start + 100 / (box["width"] - 76) * (stop - start), rel=1e-2)
    for _ in range(20):
        figure.get_by_label("move right").click()
    assert opened.view()[1] == pytest.approx(last)  # and not beyond
    opened.canvas.focus()
    opened.page.keyboard.press("Home")
    assert opened.view() == (first, last)


def test_zooming_ends_at_a_few_samples(opened):
    for _ in range(40):
        opened.page.locator("figure").first.get_by_label("zoom in").click()
    start, stop = opened.view()
    assert 2.0 <= stop - start <= 20.0
    assert opened.inked(opened.canvas) > 500


def test_a_peak_of_one_sample_among_many_is_drawn(opened):
    """40 000 samples over some thousand pixels: the peak is 6 above all else, near the top of the panel."""
    assert int(opened.canvas.get_attribute("data-drawn")) < 20_000
    dark = opened.canvas.evaluate(
        "c => { const k = c.width / c.clientWidth, x0 = 67 * k, w = c.width - x0 - 12 * k;"
        " const at = Math.round(x0 + w * 27777 / 39999), pen = c.getContext('2d'); let n = 0;"
        " for (let y = Math.round(60 * k); y < 80 * k; y++) {"
        "   const d = pen.getImageData(at - 6, y, 13, 1).data;"
        "   for (let i = 0; i < d.length; i += 4) if (d[i + 2] < 140) { n++; break; } }"
        " return n; }"
    )
    assert dark > 20


@pytest.mark.parametrize("width", [360, 390, 768, 1440])
def test_nothing_is_wider_than_the_screen(browser, report, width):
    opened = Opened(browser, report, width=width)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.said == []
    opened.context.close()


def test_fingers_move_and_pinch_on_a_phone(browser, report):
    opened = Opened(browser, report, width=390, height=844, has_touch=True, is_mobile=True)
    first, last = opened.view()
    box = opened.box()
    y = box["y"] + 60
    session = opened.context.new_cdp_session(opened.page)

    def touch(kind: str, *places: float) -> None:
        points = [{"x": box["x"] + place, "y": y, "id": number} for number, place in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 150)
    touch("touchStart", 150, 250)
    for spread in (120, 160, 200):
        touch("touchMove", 200 - spread / 2, 200 + spread / 2)
    touch("touchEnd")
    start, stop = opened.view()
    assert stop - start == pytest.approx((last - first) / 2, rel=0.1)  # fingers twice as far apart
    touch("touchStart", 250)
    for place in (240, 220, 200):
        touch("touchMove", place)
    touch("touchEnd")
    assert opened.view()[0] > start  # the finger pulls later samples into view
    for _ in range(2):
        touch("touchStart", 200)
        touch("touchEnd")
    assert opened.view() == (first, last)  # two taps show all
    assert opened.said == []
    opened.context.close()


def test_it_prints(opened, tmp_path):
    path = tmp_path / "report.pdf"
    opened.page.pdf(path=str(path), format="A4")
    assert path.read_bytes().startswith(b"%PDF")
    assert path.stat().st_size > 50_000
    opened.page.emulate_media(media="print")
    assert not opened.page.locator("button").first.is_visible()
    assert opened.canvas.is_visible()
    opened.page.emulate_media(media="screen")
    assert opened.said == []


def test_a_study_opens_without_a_word(browser, tmp_path):
    opened = Opened(browser, write_report(write_study(tmp_path)), width=390)
    assert "13 of 15 runs finished" in opened.page.locator("#verdict").inner_text()
    assert "training diverged <b>" in opened.page.locator("#failures").inner_text()
    assert opened.page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.said == []
    opened.context.close()
