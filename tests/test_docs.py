"""The code in README and docs runs, page by page, and prints what it shows; every command there can be typed.

A block that is not run says why in a comment before its fence: `<!-- not run: it trains for an hour -->`. One for a
library that need not be installed, such as PyTorch, is compiled only, and says so.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import functools
import io
import itertools
import json
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import commands
import pytest

import tausid
from tausid.cli.arguments import Commands, make_parser
from tausid.cli.commands import app
from tausid.data.records import as_records
from tausid.errors import MissingExtraError
from tausid.study.spec import parse_spec, read_spec
from tausid.training.checkpoint import fingerprint
from tausid.training.fitting import change_recipe
from tausid.training.parts import PARTS
from tausid.training.resolve import resolve
from tausid.training.settings import setting_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md"))}
PAGES |= {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "experiments/README.md")}
WHOLE = ("first_hour.md", "gallery.md")  # run from top to bottom, commands and Python, with what they print
FENCE = re.compile(r"(<!-- (?:not run|compiled only): [^>]+ -->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
make_outputs = SimpleNamespace(**runpy.run_path(str(DOCS / "make_outputs.py")))


def blocks(page: str, language: str) -> list[str]:
    """Blocks of one language, each on the lines that it has in its page, without those that are not to be run."""
    found = [m for m in FENCE.finditer(PAGES[page]) if m[2] == language and not m[1]]
    return ["\n" * PAGES[page].count("\n", 0, m.start(3)) + m[3] for m in found]


@pytest.fixture(scope="module")
def fits():
    """Fits that a page has made already: others that ask for the same get them."""
    return {}


@pytest.fixture(scope="module")
def tanks():
    """Short records, made once."""
    simulate = tausid.datasets.simulate_tanks
    return functools.cache(lambda **given: simulate(**given | {"samples": min(given.get("samples", 200), 250)}))


@pytest.fixture
def light(monkeypatch, fits, tanks):
    """What is looked at is whether all runs: records are short, trainings too, and of one structure."""
    simulate = tausid.datasets.simulate
    monkeypatch.setattr(tausid.datasets, "simulate_tanks", tanks)
    monkeypatch.setattr(tausid.datasets, "simulate", lambda name, **given: simulate(name, **given | {"samples": 200}))
    monkeypatch.setattr(tausid.datasets, "load", lambda name: tanks(seed=0))
    monkeypatch.setattr(tausid, "fit", functools.partial(quick_fit, fits, tausid.fit))


def run_if_installed(code, module):
    """Run a statement; a page that needs a package which is not installed here ends there."""
    try:
        exec(code, module.__dict__)
    except (MissingExtraError, ModuleNotFoundError) as missing:
        if str(getattr(missing, "name", "")).startswith("tausid"):
            raise
        pytest.skip(str(missing))


def quick_fit(fits, fit, records, *, recipe="default", physics=None, settings=None, **options):
    parts = {name: options.pop(name) for name in PARTS if name in options}
    cheap = cheapen(change_recipe(recipe, records, physics=physics, settings=settings, parts=parts))
    if "ensemble" in options:
        options |= {"ensemble": 2, "workers": 1}
    options["nx"] = None if physics or cheap.name == "windows" else 2
    key = (fingerprint(as_records(records)), cheap, type(physics), str(sorted(options.items())))
    if key not in fits:
        fits[key] = fit(records, recipe=cheap, physics=physics, **options)
    return fits[key]


def prepare_only(records, **options):
    """A fit that nobody looks at is made ready, and not trained."""
    named = {"tau": "bla", **{name: options.pop(name) for name in ("tau", "seed") if name in options}}
    return resolve(change_recipe(options.pop("recipe", "default"), records, nx=2, **options), records, **named)


def cheapen(recipe):
    """The recipe with few steps, nothing held out and nothing to search for."""
    if isinstance(recipe.trainer, tausid.Adam):
        less = {"trainer.steps": 10, "trainer.horizon": 20, "trainer.batch": 8, "structure.hidden": (8,)}
    else:
        stepper = "euler" if isinstance(recipe.start, tausid.FromLinear) else "rk4"  # known equations may be stiff
        less = {"trainer.iterations": 2, "structure.nonlinear_g": False, "integration.stepper": stepper}
    return recipe.change({**less, "holdout": "none", "search": "fixed"})


@pytest.mark.parametrize("page", [page for page in PAGES if page not in WHOLE and blocks(page, "python")])
def test_python_runs_and_prints_what_the_page_shows(page, light, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "page", module := ModuleType("page"))  # dataclasses look their module up
    lines = PAGES[page].splitlines()
    for block in blocks(page, "python"):
        for statement in ast.parse(block).body:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), monkeypatch.context() as patch:
                if ast.unparse(statement).startswith("tausid.fit("):
                    patch.setattr(tausid, "fit", prepare_only)
                run_if_installed(compile(ast.Module([statement], []), page, "exec"), module)
            last, got = statement.end_lineno, " ".join(printed.getvalue().split())
            below = itertools.takewhile(lambda line: line.startswith("# "), lines[last:])
            comment = " ".join([lines[last - 1].partition("  # ")[2], *(line[2:] for line in below)])
            comment = " ".join(comment.split())
            if got and comment:
                agree = comment.startswith(got) or got.startswith(comment.removesuffix(" ..."))
                assert agree, f"{page}, line {last}, prints: {got}"


@pytest.mark.parametrize("page", PAGES)
def test_python_for_other_libraries_compiles(page):
    for m in FENCE.finditer(PAGES[page]):
        if m[1] and "compiled only" in m[1]:
            compile(m[3], page, "exec")


@pytest.fixture
def few_iterations(monkeypatch):
    """Fits of the command line are short, and of one structure."""
    make = tausid.recipes.NAMES["default"]
    less = {"trainer.iterations": 2, "holdout": "none"}
    monkeypatch.setitem(tausid.recipes.NAMES, "default", lambda: make(nx=2).change(less))


def test_the_first_hour_prints_what_it_shows(few_iterations, tmp_path, monkeypatch):
    """What is read off the data is as shown, numbers and all; what depends on the fit has the same lines."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    for block in make_outputs.blocks_of(PAGES["first_hour.md"]):
        if block.language == "python":
            printed = make_outputs.run_python(block.code, module)
        else:
            words = [shlex.split(line) for line in block.code.replace("\\\n", " ").splitlines()]
            printed = "".join(run_words(line) for line in words)
        if block.shown is not None:
            of_data = not re.search(r"tausid (fit|export)|^import|^def", block.code, re.MULTILINE)
            assert lines_of(printed, numbers=of_data) == lines_of(block.shown, numbers=of_data), block.code
    for name in make_outputs.pictures_of(PAGES["first_hour.md"], "first_hour") - {"report.png"}:
        assert (tmp_path / name).stat().st_size > 5000


RUN_HERE = [page for page in PAGES if page.startswith("howto/") and page != "howto/cluster.md" and blocks(page, "sh")]


@pytest.mark.parametrize("page", RUN_HERE)
def test_commands_of_the_how_to_pages_run(page, tmp_path, monkeypatch):
    """With the files that they name, and short fits; those of a cluster need one."""
    monkeypatch.chdir(tmp_path)
    write_logs(tmp_path, spoilt=page == "howto/missing_samples.md")
    make = tausid.recipes.NAMES["default"]
    monkeypatch.setitem(tausid.recipes.NAMES, "default", lambda: cheapen(make(nx=2)))
    monkeypatch.setattr("tausid.results.report.write_report", lambda folder: folder)  # pictures take most of the time
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                assert words[0] == "tausid", line
                assert commands.printed(*words[1:]), line


def write_logs(folder, *, spoilt):
    """Records of tanks, under every name that the pages use; `spoilt` ones lack inputs and have marks for nothing."""
    for i, name in enumerate(
        ["log", "monday", "tuesday", "friday", "training/a", "training/b", "held_out/c", "test/d"]
    ):
        record = tausid.datasets.simulate_tanks(seed=i, samples=150).train
        u, y = (values[:, 0].astype(str) for values in (record.u, record.y))
        if spoilt:
            u[70], y[40:43] = "", "-999"
        other = record.u[::-1, 0].astype(str)
        columns = {"t": record.t.astype(str)} | dict.fromkeys(("pump", "feed", "left_pump"), u)
        columns |= dict.fromkeys(("steam", "right_pump"), other) | dict.fromkeys(("level", "left_level"), y)
        columns["right_level"] = y[::-1]
        path = folder / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(map(",".join, [list(columns), *zip(*columns.values(), strict=True)])))


def run_words(words):
    """A line of the first hour within this process."""
    if words[0] == "tausid":
        return commands.printed(*words[1:])
    if words[0] == "head":
        return "".join(Path(words[2]).read_text().splitlines(keepends=True)[: -int(words[1])])
    assert words[0] in ("python", "pip"), words
    return ""


def lines_of(text, *, numbers):
    """The words of each line and its numbers, to two digits; or its first word alone."""
    lines = [re.split(r"[\s(),:]+", line.strip()) for line in text.splitlines() if line.strip()]
    if numbers:
        return [[pytest.approx(float(w), rel=0.02, abs=1e-3) if is_number(w) else w for w in line] for line in lines]
    return {line[0] for line in lines if not is_number(line[0])}


def is_number(word):
    return re.fullmatch(r"[+-]?\d+\.?\d*(e[+-]?\d+)?", word) is not None


def test_the_gallery_has_a_picture_of_each_plant():
    drawn = make_outputs.pictures_of(PAGES["gallery.md"], "gallery")
    code = [block for block in make_outputs.blocks_of(PAGES["gallery.md"]) if "demo" not in block.code]
    assert {name for block in code for name in re.findall(r"--out (\w+\.png)", block.code)} == drawn
    assert [bool(block.shown) for block in code] == [False, True] * 9


def test_every_picture_is_there_and_small():
    for page, text in PAGES.items():
        base = DOCS if (DOCS / page).exists() else ROOT
        for path in [(base / page).parent / link for link in re.findall(r"!\[[^]]*\]\((\S+)\)", text)]:
            size = path.stat().st_size
            assert size < (60_000 if path.parent.name in ("first_hour", "gallery") else 200_000), path


def test_the_notebook_runs_from_its_first_cell_to_its_last(light, tmp_path, monkeypatch, capsys):
    """As a notebook runs it: every cell, and the last line of a cell shows itself."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS / "first_hour.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, object] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "notebook", "exec"), names)
            if last is not None:
                shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
    pictures = [value for value in shown if hasattr(value, "_repr_png_")]
    tables = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_") and value not in pictures]
    assert (len(pictures), len(tables)) == (5, 4)
    assert "Residuals of" in capsys.readouterr().out
    assert (tmp_path / "heater.html").stat().st_size > 10_000
    assert (tmp_path / "heater.safetensors").exists()


@pytest.mark.parametrize("page", PAGES)
def test_commands_can_be_typed(page):
    """Those in `sh` are parsed as they are; those in `text` or within a line may say `[--option]` and `a | b`."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["tausid"]:
                app.parse(words[1:])
    for text in [*blocks(page, "text"), *re.findall(r"`(tausid [^`]+)`", PAGES[page])]:
        for usage in text.split("tausid ")[1:]:
            for command in named(usage):
                unknown = set(re.findall(r"--[a-z][\w-]*", usage)) - options_of(command)
                assert not unknown, f"{page}: tausid {usage}"


def options_of(command):
    if isinstance(command, Commands):
        return {"--help", "--version"}
    return set(re.findall(r"--[a-z][\w-]*", make_parser(command, "").format_usage())) | {"--help"}


def named(usage):
    """The commands that a usage such as `study status | table DATA` names."""
    group, found, other = None, [app], False
    for word in re.findall(r"\||[^\s|]+", usage):
        if word == "|":
            other = True
        elif other:
            found, other = [*found, group.known[word]], False
        elif not isinstance(found[-1], Commands):
            break
        else:
            group = found[-1]
            found = [group.known[word]]
    return found


def test_the_study_is_one(tmp_path):
    spec = parse_spec(tomllib.loads("\n".join(blocks("studies.md", "toml"))), folder=tmp_path)
    assert len(spec.runs()) == 3 * 20 * 11
    spec = parse_spec(tomllib.loads("\n".join(blocks("howto/cluster.md", "toml"))), folder=tmp_path)
    assert len(spec.runs()) == 20 * 4


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").rglob("study.toml")), ids=lambda path: path.parent.name)
def test_every_experiment_is_a_study_whose_runs_its_results_name(path):
    planned = {run.name for run in read_spec(path).runs()}
    with (path.parent / "results.csv").open() as file:
        found = {row.get("run") or row["model"].split("/")[0] for row in csv.DictReader(file)}
    assert found
    assert found <= planned


def test_the_settings_are_all_there_with_their_values_in_each_recipe():
    rows = [line.split("|")[1:-1] for line in PAGES["settings.md"].splitlines() if line.startswith("| `")]
    table = {cells[0].strip("` "): [cell.strip("` ") for cell in cells[1:4]] for cells in rows if len(cells) == 5}
    assert set(table) == set(setting_names()) - {"structure", "integration"}
    named = [tausid.recipes.NAMES[name]() for name in ("default", "windows", "paper")]
    for key, cells in table.items():
        assert cells == [shown(recipe, key) for recipe in named], key


def shown(recipe, key):
    """A setting as the page shows it: JSON, the name of a kind, or nothing where the recipe has no such setting."""
    part, *names = key.split(".")
    value = getattr(recipe, part)
    for name in names:
        if name not in getattr(value, "__dataclass_fields__", {}):
            return ""
        value = getattr(value, name)
    if key == "trainer.barrier":
        return "none" if value is None else type(value).__name__
    if key in PARTS:
        return getattr(value, "kind", value)
    return json.dumps(value)


def test_the_citation_is_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert version == tausid.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_every_fence_names_its_language():
    for page, text in PAGES.items():
        assert {m[2] for m in FENCE.finditer(text)} <= {"python", "sh", "text", "toml"}, page
