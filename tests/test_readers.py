"""`read_csv` on files as they come, and on files that break a rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tausid.data.readers import read_channels, read_csv
from tausid.data.records import Record
from tausid.errors import DataError


@pytest.fixture
def write(tmp_path):
    def _write(content: str | bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def read(path: Path, **changes) -> Record:
    return read_csv(path, **({"inputs": ["u"], "outputs": ["y"], "ts": 1.0} | changes))


def csv_columns(path: Path) -> tuple[str, ...]:
    return tuple(channel.name for channel in read_channels(path).channels)


def refusal(path: Path, **changes) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **changes)
    return str(caught.value)


# Real files


def test_a_plain_file_gives_names_units_and_the_files_name(write):
    record = read(write("u,y\n1,2\n3,4.5\n", "pump.csv"), units={"u": "V", "y": "m"})
    assert record.name == "pump"
    assert (record.input_names, record.output_names) == (("u",), ("y",))
    assert (record.input_units, record.output_units) == (("V",), ("m",))
    np.testing.assert_array_equal(record.u, [[1.0], [3.0]])
    np.testing.assert_array_equal(record.y, [[2.0], [4.5]])
    np.testing.assert_array_equal(record.t, [0.0, 1.0])


def test_the_benchmarks_layout_quotes_trailing_commas_short_column_blank_last_line(write):
    path = write('"uEst","yEst","Ts",\n1,10,4,\n2,20,,\n3,30,,\n\n')
    assert csv_columns(path) == ("uEst", "yEst", "Ts")
    np.testing.assert_array_equal(read(path, inputs="uEst", outputs="yEst").y[:, 0], [10.0, 20.0, 30.0])


def test_only_the_chosen_columns_decide_the_length(write):
    path = write("u,y,uVal,yVal\n1,2,5,6\n3,4,7,8\n,,9,10\n,,,\n")
    assert len(read(path)) == 2
    assert len(read(path, inputs="uVal", outputs="yVal")) == 3


def test_several_channels_keep_the_order_that_was_asked_for(write):
    record = read(write("a,b,c,d\n1,2,3,4\n5,6,7,8\n"), inputs=["c", "a"], outputs=["d", "b"])
    np.testing.assert_array_equal(record.u, [[3.0, 1.0], [7.0, 5.0]])
    np.testing.assert_array_equal(record.y, [[4.0, 2.0], [8.0, 6.0]])


def test_a_record_without_inputs_is_read(write):
    assert read(write("u,y\n1,2\n3,4\n"), inputs=[]).nu == 0


def test_a_time_column_gives_the_clock_and_may_go_on_after_the_samples(write):
    record = read(write("t,u,y\n0,1,2\n0.5,1,2\n1.5,1,3\n2,,\n"), ts=None, time="t")
    np.testing.assert_array_equal(record.t, [0.0, 0.5, 1.5])


def test_columns_without_a_header_are_numbered_from_one_and_positions_from_zero(write):
    path = write("1,2,3,\n4,5,6,\n")
    assert csv_columns(path) == ("column1", "column2", "column3")
    for inputs, outputs in ((["column1"], ["column3"]), ([0], [2]), ("0", "2"), (0, 2)):
        record = read(path, inputs=inputs, outputs=outputs)
        np.testing.assert_array_equal(record.u[:, 0], [1.0, 4.0])
        np.testing.assert_array_equal(record.y[:, 0], [3.0, 6.0])
        assert record.output_names == ("column3",)


def test_a_digit_string_is_a_name_first_and_a_position_second(write):
    path = write("time,1,0\n0,10,20\n1,30,40\n")
    assert csv_columns(path) == ("time", "1", "0")
    record = read(path, inputs="0", outputs="1")
    np.testing.assert_array_equal(record.u[:, 0], [20.0, 40.0])
    assert read(path, inputs=0, outputs="1").input_names == ("time",)


def test_dates_in_a_column_do_not_make_a_header(write):
    path = write("2024-01-01,1,2\n2024-01-02,3,4\n")
    assert csv_columns(path) == ("column1", "column2", "column3")
    assert len(read(path, inputs=1, outputs=2)) == 2


def test_a_nameless_column_within_the_table_keeps_its_place(write):
    path = write(",u,y\n0,1,2\n1,3,4\n")
    assert csv_columns(path) == ("column1", "u", "y")


def test_an_unnamed_last_column_with_data_is_kept(write):
    assert csv_columns(write("u,y,\n1,2,\n3,4,9\n")) == ("u", "y", "column3")


def test_a_blank_cell_within_an_output_is_a_missing_sample(write):
    np.testing.assert_array_equal(read(write("u,y\n1,2\n1,\n1, \n1,5\n")).y[:, 0], [2.0, np.nan, np.nan, 5.0])


def test_nan_written_out_keeps_the_sample_even_at_the_end(write):
    np.testing.assert_array_equal(read(write("u,y\n1,2\n1,3\n1,NaN\n")).y[:, 0], [2.0, 3.0, np.nan])


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_decimal_comma_is_read_where_commas_do_not_separate(write, separator):
    record = read(write(f"u{separator}y\n1,5{separator}2\n-2,5e1{separator}3,25\n"))
    np.testing.assert_array_equal(record.u[:, 0], [1.5, -25.0])
    np.testing.assert_array_equal(record.y[:, 0], [2.0, 3.25])


def test_a_decimal_comma_on_every_line_is_no_separator(write):
    record = read(write("1,5;2,5\n3,5;4,5\n"), inputs=0, outputs=1)
    np.testing.assert_array_equal(np.hstack([record.u, record.y]), [[1.5, 2.5], [3.5, 4.5]])


def test_a_separator_in_a_quoted_or_bare_name_is_no_separator(write):
    assert csv_columns(write('"u; V","y\tV"\n1,2\n3,4\n')) == ("u; V", "y\tV")
    assert csv_columns(write("u; peak,y\n1,2\n3,4\n")) == ("u; peak", "y")


def test_one_column_alone_is_a_table(write):
    assert read(write("y\n1\n2\n"), inputs=[]).y.shape == (2, 1)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_was_written_is_read_back_bit_for_bit(write, seed, separator, line_end, encoding):
    random = np.random.default_rng(seed)
    table = random.standard_normal((random.integers(2, 30), 4)) * 10.0 ** random.integers(-12, 12, 4)
    table[:, 0] = np.sort(table[:, 0])
    mark = "," if separator != "," and seed % 2 else "."
    cell = '"{}"' if seed % 3 == 0 else "{}"
    end = separator * (seed % 2)
    lines = [separator.join(cell.format(repr(float(x)).replace(".", mark)) for x in row) + end for row in table]
    header = [separator.join(cell.format(name) for name in ("t", "ü", "y1", "y2")) + end]
    text = line_end.join(header + lines) + line_end * (seed % 4)
    record = read(write(text.encode(encoding)), inputs="ü", outputs=["y2", "y1"], ts=None, time="t")
    # Exact: repr writes as many digits as a float64 needs.
    np.testing.assert_array_equal(record.t, table[:, 0])
    np.testing.assert_array_equal(record.u, table[:, [1]])
    np.testing.assert_array_equal(record.y, table[:, [3, 2]])


def test_a_file_of_131072_lines_is_read_exactly(write):
    values = np.random.default_rng(0).standard_normal((131072, 2))
    path = write('"u","y",\n' + "".join(f"{u!r},{y!r},\n" for u, y in values.tolist()))
    record = read(path)
    np.testing.assert_array_equal(record.y[:, 0], values[:, 1])


# Files that break a rule


def test_a_missing_file_is_named(tmp_path):
    message = refusal(tmp_path / "nowhere.csv")
    assert "nowhere.csv' must exist" in message
    assert "Check the path" in message


def test_a_folder_is_no_file(tmp_path):
    assert "must be a file; it is a folder" in refusal(tmp_path)


def test_a_path_that_the_system_refuses_gives_its_reason(tmp_path):
    message = refusal(tmp_path / ("x" * 5000))
    assert "must be readable; got: File name too long" in message


@pytest.mark.parametrize("content", ["", "\n\n", " , \n,,\n", b"\xef\xbb\xbf"])
def test_an_empty_file(write, content):
    assert "it is empty. Export it again" in refusal(write(content))


def test_a_header_without_samples(write):
    assert "column 'u'" in (message := refusal(write("u,y\n")))
    assert "must hold numbers; it is empty" in message


def test_an_empty_column(write):
    message = refusal(write("u,y,z\n1,,3\n2,,4\n"))
    assert "column 'y'" in message
    assert "Choose another one" in message


def test_a_missing_column_lists_the_known_ones_and_suggests_the_nearest(write):
    message = refusal(write("uEst,yEst,Ts\n1,2,4\n3,4,\n"), inputs="uest")
    assert "data.csv': unknown column 'uest'; known: Ts, uEst, yEst" in message
    assert "Did you mean 'uEst'?" in message


@pytest.mark.parametrize("position", [2, -1, "7"])
def test_a_position_beyond_the_table(write, position):
    message = refusal(write("u,y\n1,2\n3,4\n"), inputs=position)
    assert f"must have a column at position {position}; it has 2, counted from 0: u, y" in message


def test_two_chosen_columns_of_one_name(write):
    message = refusal(write("u,y,u\n1,2,3\n4,5,6\n"))
    assert "column names of" in message
    assert "'u' stands at positions 0 and 2. Give the position" in message
    assert len(read(write("u,y,u\n1,2,3\n4,5,6\n"), inputs=2)) == 2
    assert len(read(write("x,u,y,x\n1,2,3,4\n4,5,6,7\n"))) == 2


def test_one_column_in_two_roles(write):
    assert "'y' twice" in refusal(write("u,y\n1,2\n3,4\n"), inputs="y")


@pytest.mark.parametrize("text", ["abc", "1_000", "1.2.3", "0x10", "12 V"])
def test_text_in_a_number_column_is_quoted_with_its_line(write, text):
    message = refusal(write(f"u,y\n1,2\n\n3,{text}\n5,6\n"), inputs=[])
    assert "column 'y'" in message
    assert f"line 4 has {text!r}" in message
    assert "leave it blank" in message


def test_text_in_the_first_line_of_data(write):
    assert "line 2 has 'off'" in refusal(write("u,y\noff,1\n1,2\n"))


def test_text_in_a_column_that_is_not_chosen_is_no_matter(write):
    assert len(read(write("u,note,y\n1,on,2\n3,off,4\n"))) == 2


@pytest.mark.parametrize(("cell", "shown"), [("", "a blank cell"), ("nan", "'nan'"), ("inf", "'inf'")])
def test_an_input_must_be_known_on_every_line(write, cell, shown):
    message = refusal(write(f"u,y\n1,2\n{cell},2\n3,4\n"))
    assert "input column 'u'" in message
    assert f"line 3 has {shown}. Fill it in" in message


def test_time_must_be_known_on_every_line(write):
    message = refusal(write("t,u,y\n0,1,2\n,1,2\n2,3,4\n"), ts=None, time="t")
    assert "time column 't'" in message
    assert "line 3 has a blank cell" in message


def test_a_blank_line_within_the_data_is_a_blank_cell_of_the_input(write):
    assert "line 3 has a blank cell" in refusal(write("u,y\n1,2\n\n3,4\n"))


def test_an_infinite_output_is_named_with_its_line(write):
    message = refusal(write("u,y\n1,2\n3,-inf\n"))
    assert "output column 'y'" in message
    assert "line 3 has '-inf'" in message


def test_input_and_output_of_different_length(write):
    message = refusal(write("u,y\n1,2\n3,4\n5,\n"))
    assert "columns 'u' and 'y'" in message
    assert "must have the same number of samples; got 3 and 2" in message
    assert "write NaN where an output is missing" in message


def test_time_that_ends_before_the_samples(write):
    message = refusal(write("t,u,y\n0,1,2\n1,3,4\n,5,6\n"), ts=None, time="t")
    assert "columns 'u' and 't'" in message
    assert "got 3 and 2" in message


def test_time_that_does_not_increase(write):
    message = refusal(write("t,u,y\n0,1,2\n2,3,4\n1,5,6\n"), ts=None, time="t")
    assert "must increase from sample to sample" in message


def test_a_row_with_more_cells_than_the_header(write):
    message = refusal(write("u,y\n1,2\n0,5,1,5\n"))
    assert "must have 2 cells on each line" in message
    assert "line 3 has 4" in message
    assert "semicolons" in message


def test_both_decimal_marks_in_one_file(write):
    message = refusal(write("u;y\n1.5;2\n3;1,234\n"))
    assert "must have one decimal mark" in message
    assert "line 2 has '1.5' and line 3 '1,234'" in message
    assert "thousands" in message


def test_bytes_that_are_no_text(write):
    message = refusal(write(b"u,y\n1,2\n" + b"\xff\xfe\x81,3\n"))
    assert "must be text in UTF-8, UTF-16 or Latin-1; line 3" in message
    assert "Save it as CSV in UTF-8" in message
    assert "it holds zero bytes" in refusal(write(b"u,y\n\x00\x00\x01"))


def test_half_a_character_in_utf_16(write):
    assert "must be text in UTF-8, UTF-16 or Latin-1" in refusal(write("u,y\n1,2\n".encode("utf-16") + b"\x00"))


def test_a_quote_that_is_never_closed(write):
    message = refusal(write('u,y\n0,0\n"1,2\n' + "3,4\n" * 50000))
    assert "must be a table; the row that begins on line 3 is none" in message
    assert "quote that is never closed" in message


def test_a_cell_that_has_swallowed_lines_is_cut_in_the_message(write):
    message = refusal(write('u,y\n0,0\n"1,2\n' + "3,4\n" * 500))
    assert "line 3 has '1,2" in message
    assert "(2003 characters)" in message
    assert len(message) < 400


@pytest.mark.parametrize("ts", [0.0, -4.0, float("nan")])
def test_a_sampling_time_that_is_not_positive(write, ts):
    assert f"`ts` must be a positive number of seconds; got {ts!r}" in refusal(write("u,y\n1,2\n3,4\n"), ts=ts)


def test_both_or_neither_of_ts_and_time(write):
    path = write("t,u,y\n0,1,2\n1,3,4\n")
    assert "either the sampling time `ts` or time stamps; got both" in refusal(path, time="t")
    assert "either the sampling time `ts` or time stamps; got neither" in refusal(path, ts=None)


def test_one_sample(write):
    assert "must have at least two samples; got 1" in refusal(write("u,y\n1,2\n"))


def test_no_output(write):
    path = write("u,y\n1,2\n3,4\n")
    assert read(path, outputs=[]).ny == 0
    assert "at least one channel" in refusal(path, inputs=[], outputs=[])


def test_a_missing_and_an_unknown_unit(write):
    path = write("u,y\n1,2\n3,4\n")
    assert "'y' has none" in refusal(path, units={"u": "V"})
    assert "got 'z'" in refusal(path, units={"u": "V", "y": "V", "z": "V"})
