"""Known weaknesses (pip-audit) and licences of what tausid depends on; goes on without the service, and says so."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys

SECONDS = 60
# Words of licences that go with Apache-2.0, in programs that are handed on; what else there is must be looked at.
GOOD = r"MIT|BSD|Apache|ISC|PSF|Python Software|MPL|Mozilla|HPND|Unlicense|Zlib|CC0|Public Domain|0BSD|LGPL|Lesser"
# Looked at by hand: their files say what their metadata do not.
KNOWN = {"greenlet": "MIT and PSF", "fonttools": "MIT", "sortedcontainers": "Apache-2.0"}


def dependencies(name: str, seen: set[str]) -> set[str]:
    """The package's own dependencies and theirs, extras among them, as far as they are installed."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return seen
    if name in seen:
        return seen
    seen.add(name)
    for line in distribution.requires or ():
        if name == "tausid" or "extra ==" not in line:
            dependencies(re.split(r"[^\w.-]", line, maxsplit=1)[0].lower(), seen)
    return seen


def licence(name: str) -> str:
    """What a package says of its licence."""
    about = importlib.metadata.metadata(name)
    classifiers = [text for text in about.get_all("Classifier") or () if text.startswith("License")]
    first_line = (about.get("License") or "").splitlines()[:1]
    return KNOWN.get(name) or "; ".join([about.get("License-Expression") or "", *first_line, *classifiers]).strip("; ")


def check_licences() -> bool:
    """Whether all licences are known to go with that of tausid."""
    names = sorted(dependencies("tausid", set()) - {"tausid"})
    bad = {name: told for name in names if not re.search(GOOD, told := licence(name))}
    for name, told in bad.items():
        print(f"audit: the licence of {name} must be known to go with ours; it is {told or 'not said'!r}")
    print(f"audit: licences of {len(names)} packages, {len(bad)} to look at")
    return not bad


def check_weaknesses() -> bool:
    """Whether no installed package has a known weakness, as far as the service can be reached."""
    words = [sys.executable, "-m", "pip_audit", "--format", "json", "--skip-editable", "--timeout", "10"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        packages = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        print(f"audit: pip-audit has no answer; weaknesses were not looked for ({type(error).__name__})")
        return True
    weak = {package["name"]: package["vulns"] for package in packages if package.get("vulns")}
    for name, found in weak.items():
        print(f"audit: {name} has known weaknesses: {', '.join(weakness['id'] for weakness in found)}")
    unknown = sum("skip_reason" in package for package in packages)
    print(
        f"audit: {len(packages)} packages, {len(weak)} with known weaknesses, {unknown} that the service does not know"
    )
    return not weak


if __name__ == "__main__":
    sys.exit(0 if check_licences() & check_weaknesses() else 1)
