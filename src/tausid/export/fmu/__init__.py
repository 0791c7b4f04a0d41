"""FMUs of FMI 2.0 and 3.0, model exchange and co-simulation, from the C99 sources."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from tausid.errors import ConfigError, StorageError
from tausid.export.c99 import sources
from tausid.export.c99.functions import numbers
from tausid.export.check import make_check, write_check
from tausid.export.description import Description
from tausid.export.fmu.xml import SOURCES, build_description, model_description
from tausid.export.names import delay_note
from tausid.export.templates import fill
from tausid.storage import write_bytes

HERE = Path(__file__).parent
SYSTEMS = {
    "Linux": ("linux", "linux", ".so"),
    "Darwin": ("darwin", "darwin", ".dylib"),
    "Windows": ("win", "windows", ".dll"),
}
SHORTEST_STEP = 0.02  # of a co-simulation with delays, in sampling times
MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}  # as FMI 3.0 calls them


def write_fmu(description: Description, name: str, folder: Path) -> list[Path]:
    """Write an FMU for each version of FMI, a check and a README."""
    compiler = find_compiler()
    files = [
        write_bytes(folder / f"{name}_fmi{version}.fmu", make_fmu(description, name, version, compiler))
        for version in (2, 3)
    ]
    held = replace(description, hold=np.zeros(description.nu))  # between steps a co-simulation holds its inputs
    built = "and a library for this platform" if compiler else "and no library, as there was no C compiler"
    values = {"name": name, "ny": held.ny, "built": built}
    values["delays"] = delay_note(
        held, "In co-simulation the FMU delays them; in model exchange give each as it was so long before."
    )
    return [*files, *write_check(folder, HERE, held, make_check(held, long_steps=True), **values)]


def find_compiler() -> str | None:
    """A C compiler: that of the variable CC, or the first of cc, gcc and clang that there is."""
    return next(
        (found for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (found := shutil.which(name))), None
    )


def make_fmu(description: Description, name: str, version: int, compiler: str | None) -> bytes:
    """The FMU as bytes: model description, sources, and a library where there is a compiler."""
    _check_delays(description)
    texts = sources(description, name, shortest_step=SHORTEST_STEP)
    token = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:32]
    room = max(description.nu, 1)
    u = numbers(description.u_mean if description.nu else [0.0], plain=True)
    delays = numbers(description.delays if description.nu else [0.0], plain=True)
    late = {"delays": delays, "delayed": int(np.any(description.delays))}
    texts["instance.h"] = fill(HERE / "instance.h.in", name=name, token=token, u=u, room_u=room, **late)
    texts[f"fmi{version}.c"] = fill(HERE / f"fmi{version}.c.in", name=name)
    files = {"modelDescription.xml": model_description(description, name, token, version)}
    files |= {f"sources/{file}": text.encode() for file, text in texts.items()}
    if version == 3:
        files["sources/buildDescription.xml"] = build_description(name)
    if compiler is not None:
        path, library = _library_path(name, version), _compile(compiler, texts, name, version)
        files[path] = library
    return _zipped(files)


def _check_delays(d: Description) -> None:
    late = [name for name, delay, slope in zip(d.input_names, d.delays, d.hold, strict=True) if delay and slope]
    if late:
        raise ConfigError(
            f"delayed inputs of an FMU must have zero-order hold, as all are held over a step; {', '.join(late)} has "
            "first-order hold. Export to C or MATLAB."
        )


def _library_path(name: str, version: int) -> str:
    short, whole, ending = SYSTEMS[platform.system()]
    machine = platform.machine()
    place = f"{short}64" if version == 2 else f"{MACHINES.get(machine, machine)}-{whole}"
    return f"binaries/{place}/{name}{ending}"


def _compile(compiler: str, texts: dict[str, str], name: str, version: int) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        for file, text in texts.items():
            (Path(place) / file).write_text(text)
        units = [file.format(name=name, version=version) for file in SOURCES]
        flags = ["-std=c99", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"]
        command = [compiler, *flags, *units, "-o", "library", "-lm"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode:
            raise StorageError(
                f"the sources of an FMU must compile; {compiler} says: {done.stderr.strip()[:500]}. "
                "Choose another compiler by the variable CC."
            )
        return (Path(place) / "library").read_bytes()


def _zipped(files: dict[str, bytes]) -> bytes:
    """An archive that does not depend on the time it was made."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(zipfile.ZipInfo(file), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()
