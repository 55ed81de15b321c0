"""Cells of CSV: no spreadsheet takes them for a formula, and stepsim reads what it wrote."""

import csv
import io

import pytest
from hypothesis import given, strategies as st

from stepsim.base.writing import csv_lines, safe_cell, text_of_cell
from stepsim.files.collectives.times_csv import format_comm_table, parse_comm_table

TABLE = "machine,source,kind,ranks,nodes,bytes,time_us\n{},run,all_reduce,8,1,1024,5\n"


@pytest.mark.parametrize("text", ["=1+2+cmd", "+A1", "-2+3", "-cmd|' /C calc'!A0", "@SUM(A1)",
                                  "\t=1", "\r=1", "+1 ms|x", "#", "'#", "'=1"])  # fmt: skip
def test_formulas_are_text(text: str) -> None:
    assert safe_cell(text) == "'" + text
    assert text_of_cell(safe_cell(text)) == text


@pytest.mark.parametrize(
    "value", ["-", "-1.5", "+3.2 ms", "-4%", "-1e-6", "1-2", "a=b", "'", "'a", "", -1, 2.5, None]
)
def test_numbers_and_other_texts_stay(value: object) -> None:
    assert safe_cell(value) == value


@given(st.text(max_size=20))
def test_no_cell_begins_a_formula_and_is_no_number(text: str) -> None:
    cell = next(csv.reader(io.StringIO(csv_lines([[text, 1]]), newline="")), [""])[0]
    assert not cell.startswith(("=", "@", "\t", "\r"))
    assert not cell.startswith(("+", "-")) or cell[1:2] in ("", *"0123456789")
    if not text.startswith("'") and "\r" not in text and "\n" not in text:
        assert text_of_cell(cell) == text


@pytest.mark.parametrize("machine", ["=gpu", "#", "'#"])
def test_a_table_of_times_is_read_again(machine: str) -> None:
    table = parse_comm_table(TABLE.format("'" + machine), source="t.csv")
    text = format_comm_table(table)
    assert f"\n'{machine}," in text
    again = parse_comm_table(text, source="t.csv")
    assert [curve.machine for curve in again.curves] == [machine]
