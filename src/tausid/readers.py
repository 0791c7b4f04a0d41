"""Text files as they come from instruments and spreadsheets -> Record, with line numbers in errors."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from tausid.errors import DataError, unknown_name
from tausid.records import Record

# Tried in this order: a file with `;` or tabs may hold commas as decimal marks, never the other way round.
SEPARATORS = (";", "\t", ",")
# How many lines at the top decide on the separator and on whether there is a header.
PREVIEW_LINES = 20

Column: TypeAlias = str | int


def read_csv(
    path: str | Path,
    *,
    inputs: Column | Sequence[Column],
    outputs: Column | Sequence[Column],
    ts: float | None = None,
    time: Column | None = None,
    units: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Record:
    """Read measured inputs and outputs from a text file with one sample per line.

    Commas, semicolons or tabs separate the cells, and a decimal comma is understood where commas do not
    separate. Without a header the columns are called `column1`, `column2`, ... Blank cells at the end of a
    column are no samples; a blank cell before that is a missing sample in an output, an error in an input.

    Args:
        path: the file; UTF-8, or UTF-16 with a byte-order mark.
        inputs: names of the input columns, or one name; a number counts columns from zero.
        outputs: names of the output columns, likewise.
        ts: sampling time in seconds; the record then starts at t = 0.
        time: the time column in seconds, instead of `ts`; it may go on after the last sample.
        units: unit of each channel by its column's name; either all channels or none.
        name: what to call the record; by default the file's name without its ending.

    Returns:
        The record, its channels named as the columns.

    Raises:
        DataError: the file, a column, a cell or the clock breaks a rule; the message names the line.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pump.csv"
        >>> _ = path.write_text("t;u;y\\n0,0;1;0,5\\n0,1;1;0,7\\n")
        >>> read_csv(path, inputs="u", outputs="y", time="t").y[:, 0]
        array([0.5, 0.7])
    """
    table = _read_table(Path(path))
    input_columns = [_find_column(table, key) for key in _as_list(inputs)]
    output_columns = [_find_column(table, key) for key in _as_list(outputs)]
    time_columns = [] if time is None else [_find_column(table, time)]
    chosen = [*input_columns, *output_columns, *time_columns]
    _check_decimal_mark(table, chosen)
    numbers = {i: _convert(table, i) for i in chosen}
    samples = _count_samples(table, numbers, [*input_columns, *output_columns])
    stamps = _stack(table, numbers, time_columns, samples=samples, role="time")
    return Record.from_arrays(
        _stack(table, numbers, input_columns, samples=samples, role="input"),
        _stack(table, numbers, output_columns, samples=samples, role="output"),
        ts=ts,
        t=stamps[:, 0] if time_columns else None,
        input_names=[table.names[i] for i in input_columns],
        output_names=[table.names[i] for i in output_columns],
        units=units,
        name=Path(path).stem if name is None else name,
    )


def csv_columns(path: str | Path) -> tuple[str, ...]:
    """The names of the columns of a text file, as `read_csv` knows them.

    Args:
        path: the file.

    Returns:
        The names in their order; `column1`, `column2`, ... where the file gives none.

    Raises:
        DataError: the file cannot be read as a table.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "bare.csv"
        >>> _ = path.write_text("1,2\\n3,4\\n")
        >>> csv_columns(path)
        ('column1', 'column2')
    """
    return _read_table(Path(path)).names


@dataclass(frozen=True)
class _Table:
    """Cells of a file as text: `rows[i]` stands on line `lines[i]`, and may be shorter than `names`."""

    path: Path
    separator: str
    names: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]

    def column(self, index: int) -> list[str]:
        """The cells of a column down to the last one that is not blank."""
        cells = [row[index] if index < len(row) else "" for row in self.rows]
        while cells and not cells[-1].strip():
            cells.pop()
        return cells


def _read_table(path: Path) -> _Table:
    text = _read_text(path)
    separator = _guess_separator(text)
    rows, lines = _split_cells(path, text, separator)
    if not rows:
        raise DataError(f"file '{path}' must hold measured samples; it is empty. Export it again.")
    if _has_header(rows[: PREVIEW_LINES + 1], separator):
        header, rows, lines = rows[0], rows[1:], lines[1:]
    else:
        header = [""] * len(rows[0])
    names = _name_columns(_drop_empty_end(header, rows))
    _check_widths(path, len(names), rows, lines)
    return _Table(path, separator, names, rows, lines)


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise DataError(f"'{path}' must be a file; it is a folder. Name a file in it.")
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"file '{path}' must exist; there is none of that name. Check the path.") from None
    except OSError as error:
        raise DataError(f"file '{path}' must be readable; got: {error.strerror}. Check the path.") from None
    utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"file '{path}' must be text in UTF-8 or UTF-16; line {line} holds bytes that are neither. "
            "Save it as CSV in UTF-8."
        ) from None
    if "\0" in text:
        raise DataError(
            f"file '{path}' must be a text file; it holds zero bytes, as binary files do. Export it as CSV."
        )
    return text


def _guess_separator(text: str) -> str:
    """The first separator that stands, outside quotes, on every line at the top; a comma if none does."""
    lines = (line for line in io.StringIO(text, newline=None) if line.strip())
    top = [re.sub(r'"[^"]*"', "", line) for line in islice(lines, PREVIEW_LINES)]
    return next((mark for mark in SEPARATORS if top and all(mark in line for line in top)), ",")


def _split_cells(path: Path, text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """Cells and line numbers of all rows between the first and the last that are not blank."""
    # Python's universal newlines: CRLF, LF and a lone CR each end a line, and nothing else does.
    reader = csv.reader(io.StringIO(text, newline=None), delimiter=separator, skipinitialspace=True)
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


def _as_list(columns: Column | Sequence[Column]) -> list[Column]:
    return [columns] if isinstance(columns, str | int) else list(columns)


def _find_column(table: _Table, key: Column) -> int:
    """Position of a column given by its name, or by a number where no column has that number as its name."""
    if isinstance(key, str) and key.strip() in table.names:
        name = key.strip()
        if table.names.count(name) > 1:
            where = [str(i) for i, other in enumerate(table.names) if other == name]
            raise DataError(
                f"column names of '{table.path}' must differ; {name!r} stands at positions "
                f"{' and '.join(where)}. Give the position instead of the name."
            )
        return table.names.index(name)
    if isinstance(key, str) and not key.isdecimal():
        raise DataError(f"file '{table.path}': {unknown_name('column', key, table.names)}")
    if not 0 <= int(key) < len(table.names):
        raise DataError(
            f"file '{table.path}' must have a column at position {key}; it has {len(table.names)}, counted "
            f"from 0: {', '.join(table.names)}. Give one of these."
        )
    return int(key)


def _check_decimal_mark(table: _Table, columns: list[int]) -> None:
    """Refuse a file that writes both 1,5 and 1.5: one of the two marks would separate thousands."""
    if table.separator == ",":
        return
    with_mark: dict[str, tuple[int, str]] = {}
    for i in columns:
        for line, cell in zip(table.lines, table.column(i), strict=False):
            for mark in ",.":
                if mark in cell:
                    with_mark.setdefault(mark, (line, cell))
    if len(with_mark) == 2:
        (line, cell), (other_line, other_cell) = with_mark.values()
        raise DataError(
            f"file '{table.path}' must have one decimal mark, comma or point; line {line} has {cell!r} and "
            f"line {other_line} {other_cell!r}. Export it without thousands separators."
        )


def _convert(table: _Table, index: int) -> Float[np.ndarray, " N"]:
    """The numbers of a column down to its last cell that is not blank, NaN where one is."""
    numbers = []
    for line, cell in zip(table.lines, table.column(index), strict=False):
        try:
            numbers.append(_parse(cell, table.separator))
        except ValueError:
            raise DataError(
                f"column {table.names[index]!r} of '{table.path}' must hold numbers; line {line} has "
                f"{_show(cell)}. Correct that cell, or leave it blank if it is a missing output."
            ) from None
    if not numbers:
        raise DataError(
            f"column {table.names[index]!r} of '{table.path}' must hold numbers; it is empty. Choose another one."
        )
    return np.array(numbers)


def _count_samples(table: _Table, numbers: dict[int, np.ndarray], channels: list[int]) -> int:
    """The number of samples, which all channels share; time may be longer, never shorter."""
    samples = len(numbers[channels[0]]) if channels else 0
    for i, column in numbers.items():
        if len(column) < samples or (i in channels and len(column) > samples):
            raise DataError(
                f"columns {table.names[channels[0]]!r} and {table.names[i]!r} of '{table.path}' must have as "
                f"many samples; got {samples} and {len(column)}. Choose columns that belong together, cut "
                "the longer one, or write NaN where an output is missing."
            )
    return samples


def _stack(
    table: _Table, numbers: dict[int, np.ndarray], columns: list[int], *, samples: int, role: str
) -> Float[np.ndarray, "N n"]:
    """Columns side by side, each checked for its role: an output may be missing (NaN), the others may not."""
    values = np.empty((samples, len(columns)))
    for place, i in enumerate(columns):
        values[:, place] = numbers[i][:samples]
        bad = np.isinf(values[:, place]) if role == "output" else ~np.isfinite(values[:, place])
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"{role} column {table.names[i]!r} of '{table.path}' must be a finite number on every line; "
                f"line {table.lines[row]} has {_show(table.column(i)[row])}. "
                "Fill it in, or cut the file there."
            )
    return values


def _show(cell: str) -> str:
    """A cell as messages quote it, cut where an unclosed quote has swallowed half the file."""
    text = cell.strip()
    if not text:
        return "a blank cell"
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}... ({len(text)} characters)"
