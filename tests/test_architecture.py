"""Rules of the code base that no linter knows: the direction of imports, lazy loading, documented arguments."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tausid

SOURCE = Path(tausid.__file__).parent

# Each room may import only rooms before it: data flow in one direction.
ROOMS = [
    "errors", "checks", "display", "schema", "storage", "locks", "shapes",
    "data", "engine", "linear", "model", "training", "results", "export", "control", "study", "cli",
]  # fmt: skip


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "tausid":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tausid."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names.update(a.name.split(".")[1] for a in node.names if a.name.startswith("tausid."))
    return names & set(ROOMS)


SOURCES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    home = room_of(path)
    assert home in ROOMS, f"{home} is no room: put the module into one"
    assert not [room for room in imported_rooms(path) if ROOMS.index(room) > ROOMS.index(home)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_files_belong_to_their_package(path: Path) -> None:
    imported = re.findall(r"^\s*from (tausid[\w.]*)\._\w+ import", path.read_text(), re.MULTILINE)
    own = ".".join(("tausid", *path.relative_to(SOURCE).parts[:-1]))
    assert {package for package in imported if package != own} == set()


def test_every_name_is_defined() -> None:
    # The linter's rule is off, as it takes jaxtyping's shapes for names; it is asked here, and shapes are left out.
    command = f"{sys.executable} -m ruff check --isolated --select F821 --output-format json {SOURCE}"
    found = json.loads(subprocess.run(command.split(), text=True, stdout=subprocess.PIPE).stdout)
    lines = {(f["filename"], f["location"]["row"]) for f in found}
    suspects = [(name, row, Path(name).read_text().splitlines()[row - 1]) for name, row in sorted(lines)]
    assert [s for s in suspects if not re.search(r"\b(Float|Int|Bool|Complex)\[", s[2])] == []


def test_importing_the_package_does_not_import_what_is_heavy() -> None:
    heavy = ("jax", "matplotlib", "scipy", "equinox")
    code = f"import sys, tausid, tausid.cli; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    for name in tausid.__all__:
        assert getattr(tausid, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tausid.nothing


def public_callables() -> list[tuple[str, object]]:
    """What `tausid.__all__` exports, and the public methods of its classes."""
    found: list[tuple[str, object]] = []
    for name in tausid.__all__:
        value = getattr(tausid, name)
        members = vars(value).items() if inspect.ismodule(value) else [(name, value)]
        for key, member in members:
            if key.startswith("_") or not (getattr(member, "__module__", None) or "").startswith("tausid."):
                continue
            if inspect.isclass(member):
                methods = inspect.getmembers(member, lambda m: inspect.isfunction(m) or inspect.ismethod(m))
                found += [(f"{key}.{n}", m) for n, m in methods if not n.startswith("_") and n in vars(member)]
            if callable(member):
                found.append((key, inspect.unwrap(member)))
    return found


def test_every_public_argument_is_documented() -> None:
    undocumented = []
    for name, value in public_callables():
        if inspect.isclass(value) and (issubclass(value, BaseException) or inspect.isabstract(value)):
            continue
        doc = inspect.getdoc(value) or ""
        for argument in inspect.signature(value).parameters:
            if argument not in ("self", "cls") and f"{argument}:" not in doc:
                undocumented.append(f"{name}({argument})")
    assert not undocumented


def test_no_source_mentions_pickle() -> None:
    assert not [path for path in SOURCES if "pickle" in path.read_text()]
