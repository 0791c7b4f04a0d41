"""A small share of `make torture`; nothing is lost."""

from __future__ import annotations

import pytest
import torture


@pytest.mark.parametrize(("part", "count"), [("journals", 40), ("models", 50), ("fits", 1)])
def test_nothing_is_lost(part, count):
    tally = torture.PARTS[part][0](count)
    assert tally.tried and not tally.lost


def test_the_table_of_a_page_is_made_anew(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{torture.BEGIN}\nold\n{torture.END}\nafter\n")
    torture.write_table(page, [torture.Tally("files", 3).row(1.0)])
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| files | 3 |" in text
