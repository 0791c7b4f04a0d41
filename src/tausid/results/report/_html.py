"""Templates, and what they need to stay self-contained and safe: everything from data is escaped."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tausid.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **content: Any) -> str:
    """A page from a template.

    The page may load nothing and run only its own script: a Content-Security-Policy with the script's checksum says so
    to the browser.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError(
            'a report needs jinja2, which is not installed. Install it with pip install "tausid[report]".'
        ) from None
    from tausid import __version__

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"number": number, "share": share}
    script = (TEMPLATES / "page.js").read_text()
    style = (TEMPLATES / "page.css").read_text()
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template)
    return page.render(script=script, style=style, checksum=checksum, version=__version__, **content)


def picture(figure: Figure, alt: str) -> dict[str, str]:
    """A figure as an image inside the page."""
    from tausid.results.plots import figure_bytes

    drawn = base64.b64encode(figure_bytes(figure, "svg", outlines=True)).decode()
    return {"source": f"data:image/svg+xml;base64,{drawn}", "alt": alt}


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many digits, as people write it; a dash for none.

    Example:
        >>> number(1234567.0), number(0.00012), number(float("inf"))
        ('1.235e+06', '0.00012', '\N{INFINITY}')
    """
    if value is None or value != value:
        return "\N{EN DASH}"
    if abs(value) == float("inf"):
        return "\N{INFINITY}" if value > 0 else "-\N{INFINITY}"
    return f"{value:.{digits}g}"


def share(value: float) -> str:
    """A share in percent.

    Example:
        >>> share(0.1234)
        '12 %'
    """
    return f"{100 * value:.2g} %" if 0 < value < 0.1 else f"{100 * value:.0f} %"
