"""How results show themselves in a notebook: a small table, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

CELL = "text-align:left;padding:2px 14px 2px 0;vertical-align:top"


def html_table(title: str, rows: Iterable[Sequence[object]], *, header: Sequence[str] = ()) -> str:
    """A table with a title, as HTML.

    Example:
        >>> html_table("a < b", [("x", 1 / 3)])
        '<div><b>a &lt; b</b><table><tr><td style="...">x</td><td style="...">0.3333</td></tr></table></div>'
    """
    head = "".join(f'<th style="{CELL}">{escape(name)}</th>' for name in header)
    lines = [f"<tr>{head}</tr>"] if header else []
    for row in rows:
        cells = "".join(f'<td style="{CELL}">{escape(_text(cell))}</td>' for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<div><b>{escape(title)}</b><table>{''.join(lines)}</table></div>"


def _text(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
