"""Run what the first hour and the gallery show, and write what it printed and drew back into the pages.

    python docs/make_outputs.py first_hour gallery
    python docs/make_outputs.py "gallery#Silverbox"

Blocks run from top to bottom in one folder: `sh` blocks by bash, `python` blocks in one process. A `text` block right
after a block becomes what that block printed. Pictures that a page shows from `images/PAGE/` are copied from there.
`tests/test_docs.py` runs the same blocks with short fits.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$(?:\n\n(^```text\n)(.*?)^```$)?", re.MULTILINE | re.DOTALL)
COLOURS, WIDTH = 64, 840  # enough for lines and letters; a picture then takes some 30 kB


@dataclass(frozen=True)
class Block:
    """Code of a page, and where in the page its output stands; `shown` is None where the page shows none."""

    language: str
    code: str
    shown: str | None
    start: int
    end: int


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that are run, in order."""
    return [Block(m[1], m[2], m[4], *m.span(4)) for m in BLOCK.finditer(page)]


def pictures_of(page: str, name: str) -> set[str]:
    """The pictures of a page that its blocks draw."""
    return set(re.findall(rf"\]\(images/{name}/([\w.]+\.png)\)", page))


def renew(name: str, section: str, folder: Path) -> None:
    """Run a page, or one section of it, and write what it printed, block by block, and drew."""
    path, module = DOCS / f"{name}.md", ModuleType("page")
    sys.modules["page"] = module
    text = path.read_text("utf-8")
    for block in blocks_of(section_of(text, section)):
        print(block.code, flush=True)
        printed = run_shell(block.code, folder) if block.language == "sh" else run_python(block.code, module)
        if block.shown is not None:
            path.write_text(with_output(path.read_text("utf-8"), block.code, printed), "utf-8")
    for report in folder.glob("runs/*/report.html"):
        screenshot(report, folder / "report.png")
    copy_pictures(pictures_of(text, name), folder, DOCS / "images" / name)


def section_of(page: str, title: str) -> str:
    """The section under a heading; without one the whole page."""
    return page if not title else re.split(r"^## ", page.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def with_output(page: str, code: str, printed: str) -> str:
    """The page with another output after the block that has this code; the page may have changed meanwhile."""
    block = next(block for block in blocks_of(page) if block.code == code)
    return page[: block.start] + printed + page[block.end :]


def run_shell(code: str, folder: Path) -> str:
    """What commands print; lines that install something are for the reader."""
    lines = [line for line in code.splitlines() if not line.startswith(("pip ", "python -m venv", "git "))]
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", "-ec", "\n".join(lines)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": places})
    if done.returncode:
        raise SystemExit(f"failed:\n{code}{done.stdout}")
    return tidy(done.stdout)


def run_python(code: str, module: ModuleType) -> str:
    """What Python code prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "page", "exec"), module.__dict__)
    return tidy(printed.getvalue())


def screenshot(page: Path, picture: Path) -> None:
    """The first screen of a report, where Chromium is installed."""
    if program := shutil.which("chromium"):
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,650"]
        command = [program, *options, f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def tidy(printed: str) -> str:
    """Lines without blanks at their ends."""
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def copy_pictures(names: set[str], folder: Path, target: Path) -> None:
    """Copy those pictures that were drawn, smaller and with few colours, as they are lines and letters."""
    from PIL import Image

    target.mkdir(parents=True, exist_ok=True)
    for path in (folder / name for name in names):
        if path.exists():
            with Image.open(path) as picture:
                small = picture.convert("RGB")
            small.thumbnail((WIDTH, 2 * WIDTH), Image.Resampling.LANCZOS)
            # By coverage: by frequency a thin coloured line loses its colour to greys.
            few = small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
            few.save(target / path.name, optimize=True)


def main() -> None:
    """Renew the pages, or `PAGE#SECTION`, that are named."""
    for name, _, section in (word.partition("#") for word in sys.argv[1:]):
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            renew(name, section, Path(place))
            os.chdir(DOCS)


if __name__ == "__main__":
    main()
