"""Text files as they come from instruments, and Excel's sheets -> a table, with line numbers in errors."""

from __future__ import annotations

import codecs
import csv
import functools
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from tausid.data.readers._stamps import is_date
from tausid.data.readers._tables import Column, Table, as_data_error, check_file, with_units
from tausid.data.readers._unpacked import check_unpacked
from tausid.errors import DataError, MissingExtraError
from tausid.shapes import Float

# Tried in this order: a file with `;` or tabs may hold commas as decimal marks, never the other way round.
SEPARATORS = (";", "\t", ",")
# Blanks separate where none of these does.
BLANKS = " "
# Lines that begin so before the table are remarks.
COMMENTS = ("#", "%")
# Characters that no text file has.
_CONTROL = re.compile("[\\x00-\\x08\\x0e-\\x1b]")
# How many lines at the top decide on the separator and on whether there is a header.
PREVIEW_LINES = 20
# What a cell of a sheet takes in memory.
BYTES_PER_CELL = 60


def table_from_text(path: str | Path) -> Table:
    """The columns of a text file with one sample per line."""
    path = check_file(path)
    text, comment = _take_out_comments(_read_text(path))
    separator = _guess_separator(text)
    rows, lines = _split_cells(path, text, separator)
    named = _split_cells(path, comment, separator)[0]
    return _table(_find_header(path, separator, rows, lines, named[0] if named else []))


def table_from_excel(path: Path) -> Table:
    """The columns of the first sheet of an Excel workbook."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise MissingExtraError(
            'Excel files need openpyxl, which is not installed. Install it with pip install "tausid[files]", or export '
            "the sheet as CSV."
        ) from None
    with as_data_error(path, "an Excel workbook"):
        book = load_workbook(path, read_only=True, data_only=True)
        try:
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # what it says of its size need not be true
            rows, cells = [], 0
            for row in sheet.iter_rows(values_only=True):
                cells += len(row)
                check_unpacked(path, BYTES_PER_CELL * cells)
                rows.append([_as_text(cell) for cell in row])
        finally:
            book.close()
    return _table(_find_header(path, ",", *_without_blank_ends(rows, list(range(1, len(rows) + 1))), []))


def _as_text(cell: object) -> str:
    return "" if cell is None else str(cell)


def _table(cells: _Cells) -> Table:
    columns = tuple(
        Column(
            name,
            functools.partial(_convert, cells, i),
            unit=unit,
            show=functools.partial(_show_cell, cells, i),
            texts=functools.partial(cells.column, i),
        )
        for i, (name, unit) in enumerate(zip(cells.names, cells.units, strict=True))
    )
    return Table(
        f"'{cells.path}'",
        cells.path.stem,
        with_units(columns),
        word="column",
        row_word="line",
        row_numbers=cells.lines,
        padded=True,
        check=functools.partial(_check_decimal_mark, cells),
    )


@dataclass(frozen=True)
class _Cells:
    """Cells of a file as text: `rows[i]` stands on line `lines[i]`, and may be shorter than `names`."""

    path: Path
    separator: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]

    def column(self, index: int) -> list[str]:
        """The cells of a column down to the last one that is not blank."""
        cells = [row[index] if index < len(row) else "" for row in self.rows]
        while cells and not cells[-1].strip():
            cells.pop()
        return cells


def _find_header(path: Path, separator: str, rows: list[list[str]], lines: list[int], comment: list[str]) -> _Cells:
    """The header is the first row, or the last remark before the table where that has as many cells."""
    if not rows:
        raise DataError(f"file '{path}' must hold measured samples; it is empty. Export it again.")
    units: list[str] = []
    if _has_header(rows[: PREVIEW_LINES + 1], separator):
        header, rows, lines = rows[0], rows[1:], lines[1:]
        if _are_units(rows[: PREVIEW_LINES + 1], separator):
            units, rows, lines = rows[0], rows[1:], lines[1:]
    else:
        header = comment if len(comment) == len(rows[0]) else [""] * len(rows[0])
    names = _name_columns(_drop_empty_end(header, rows))
    _check_widths(path, len(names), rows, lines)
    bare = [cell.strip().strip("[]()") for cell in units] + [""] * len(names)
    return _Cells(path, separator, names, tuple(bare[: len(names)]), rows, lines)


def _read_text(path: Path) -> str:
    """UTF-8, UTF-16 with or without a byte-order mark, or Windows' Latin-1: the first that fits."""
    raw = path.read_bytes()
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ["utf-16"]
    elif b"\0" in raw[:2]:
        encodings = ["utf-16-le" if raw[1:2] == b"\0" else "utf-16-be"]
    else:
        encodings = ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError as error:
            line = raw[: error.start].count(b"\n") + 1
            continue
        if _CONTROL.search(text) is None:
            return text
        raise DataError(
            f"file '{path}' must be a text file; it holds zero bytes or others that no text has, as binary files do. "
            "Export it as CSV."
        )
    raise DataError(
        f"file '{path}' must be text in UTF-8, UTF-16 or Latin-1; line {line} holds bytes that are none of these. "
        "Save it as CSV in UTF-8."
    )


def _take_out_comments(text: str) -> tuple[str, str]:
    """The text with remarks before its table blanked, so that lines keep their numbers, and the last remark."""
    lines, last = list(io.StringIO(text, newline=None)), ""
    for i, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith(COMMENTS):
            break
        if line.strip():
            lines[i], last = "\n", line.strip().lstrip("".join(COMMENTS)).strip()
    return "".join(lines), last


def _guess_separator(text: str) -> str:
    """The first separator that stands, outside quotes, on every line at the top; then blanks; a comma if none does."""
    lines = (line for line in io.StringIO(text, newline=None) if line.strip())
    top = [re.sub(r'"[^"]*"', "_", line) for line in islice(lines, PREVIEW_LINES)]
    blank = BLANKS if top and all(len(line.split()) > 1 for line in top) else ","
    return next((mark for mark in SEPARATORS if top and all(mark in line for line in top)), blank)


def _split_cells(path: Path, text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """Cells and line numbers of all rows between the first and the last that are not blank."""
    # Python's universal newlines: CRLF, LF and a lone CR each end a line, and nothing else does.
    source = io.StringIO(text, newline=None)
    if separator == BLANKS:  # one between cells, and none before a unit
        source = io.StringIO("\n".join(re.sub(r" (?=[\[(])", "", " ".join(line.split())) for line in source))
    reader = csv.reader(source, delimiter=separator, skipinitialspace=True)
    rows: list[list[str]] = []
    lines = [1]  # where each row begins, and where the next one would: a quoted cell may span lines
    try:
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num + 1)
    except csv.Error as error:
        raise DataError(
            f"file '{path}' must be a table; the row that begins on line {lines[-1]} is none: {error}. "
            "Look for a quote that is never closed."
        ) from None
    return _without_blank_ends(rows, lines)


def _without_blank_ends(rows: list[list[str]], lines: list[int]) -> tuple[list[list[str]], list[int]]:
    start, stop = 0, len(rows)
    while stop > 0 and _is_blank(rows[stop - 1]):
        stop -= 1
    while start < stop and _is_blank(rows[start]):
        start += 1
    return rows[start:stop], lines[start:stop]


def _is_blank(row: list[str]) -> bool:
    return not any(cell.strip() for cell in row)


def _has_header(rows: list[list[str]], separator: str) -> bool:
    """Whether the first row names the columns: no number in it, or text on top of a column with numbers.

    The second case is a header such as `index,1,2`; a row with a date in one column is no header.
    """
    first, rest = rows[0], rows[1:]
    if not any(_is_number(cell, separator) for cell in first):
        return True
    text = [i for i, cell in enumerate(first) if cell.strip() and not _is_number(cell, separator)]
    return any(_is_number(row[i], separator) for row in rest for i in text if i < len(row))


def _are_units(rows: list[list[str]], separator: str) -> bool:
    """Whether the row under the header holds units: text alone, on top of a column with numbers."""
    first, rest = rows[0] if rows else [], rows[1:]
    text = [i for i, cell in enumerate(first) if cell.strip()]
    if any(_is_number(first[i], separator) or is_date(first[i]) for i in text):
        return False
    return any(_is_number(row[i], separator) for row in rest[:1] for i in text if i < len(row))


def _is_number(cell: str, separator: str) -> bool:
    try:
        _parse(cell, separator)
    except ValueError:
        return False
    return bool(cell.strip())


def _parse(cell: str, separator: str) -> float:
    """The number in a cell, NaN if it is blank; ValueError if it is text."""
    if not cell.strip():
        return float("nan")
    if "_" in cell:  # Python would read 1_000 as a number; no instrument writes one so.
        raise ValueError(cell)
    return float(cell if separator == "," else cell.replace(",", "."))


def _drop_empty_end(header: list[str], rows: list[list[str]]) -> list[str]:
    """The header without the nameless and empty columns that a trailing separator makes."""
    width = len(header)
    while width > 1 and not header[width - 1].strip() and not _any_filled(rows, width - 1):
        width -= 1
    return header[:width]


def _any_filled(rows: list[list[str]], index: int) -> bool:
    return any(len(row) > index and row[index].strip() for row in rows)


def _name_columns(header: list[str]) -> tuple[str, ...]:
    return tuple(cell.strip() or f"column{i + 1}" for i, cell in enumerate(header))


def _check_widths(path: Path, width: int, rows: list[list[str]], lines: list[int]) -> None:
    for row, line in zip(rows, lines, strict=True):
        if len(row) > width and not _is_blank(row[width:]):
            raise DataError(
                f"file '{path}' must have {width} cells on each line, as on its first; line {line} has "
                f"{len(row)}. Where commas are decimal marks, separate the cells by semicolons or tabs."
            )


def _check_decimal_mark(cells: _Cells, columns: Sequence[int]) -> None:
    """Refuse a file that writes both 1,5 and 1.5: one of the two marks would separate thousands."""
    if cells.separator == ",":
        return
    with_mark: dict[str, tuple[int, str]] = {}
    for i in columns:
        for line, cell in zip(cells.lines, cells.column(i), strict=False):
            for mark in ",.":
                if mark in cell:
                    with_mark.setdefault(mark, (line, cell))
    if len(with_mark) == 2:
        (line, cell), (other_line, other_cell) = with_mark.values()
        raise DataError(
            f"file '{cells.path}' must have one decimal mark, comma or point; line {line} has {cell!r} and "
            f"line {other_line} {other_cell!r}. Export it without thousands separators."
        )


def _convert(cells: _Cells, index: int) -> Float[np.ndarray, " N"]:
    """The numbers of a column down to its last cell that is not blank, NaN where one is."""
    numbers = []
    for line, cell in zip(cells.lines, cells.column(index), strict=False):
        try:
            numbers.append(_parse(cell, cells.separator))
        except ValueError:
            raise DataError(
                f"column {cells.names[index]!r} of '{cells.path}' must hold numbers; line {line} has "
                f"{_show(cell)}. Correct that cell, or leave it blank if it is a missing output."
            ) from None
    if not numbers:
        raise DataError(
            f"column {cells.names[index]!r} of '{cells.path}' must hold numbers; it is empty. Choose another one."
        )
    return np.array(numbers)


def _show_cell(cells: _Cells, index: int, row: int) -> str:
    return _show(cells.column(index)[row])


def _show(cell: str) -> str:
    """A cell as messages quote it, cut where an unclosed quote has swallowed half the file."""
    text = cell.strip()
    if not text:
        return "a blank cell"
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}... ({len(text)} characters)"
