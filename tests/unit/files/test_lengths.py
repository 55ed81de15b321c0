"""Lengths of documents from files: forms that people have, and one line for what is wrong."""

from pathlib import Path

import pytest

from stepsim.base.errors import WorkloadError
from stepsim.files.lengths import read_lengths
from stepsim.workload.documents import Fixed, ListedLengths

FORMS = {
    "lengths.txt": "12\n# a comment\n12  # another\n\n7\n",
    "lengths.csv": "id,tokens\na,12\nb,12\nc,7\n",
    "one_column.csv": "n\n12\n12\n7\n",
    "counted.csv": "length,count\n12,2\n7,1\n",
    "lengths.jsonl": '{"length": 12, "id": 1}\n{"length": 12, "id": 2}\n\n{"length": 7}\n',
    "counted.jsonl": '{"tokens": 12, "count": 2}\n{"tokens": 7}\n',
    "numbers.jsonl": "12\n12\n7\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_files_of_lengths_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FORMS[name])
    assert read_lengths(str(path)) == ListedLengths(lengths=(12, 12, 7))


def test_a_column_of_a_parquet_file_is_read(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"name": ["a", "b"], "num_tokens": [12, 7]}
    path = tmp_path / "lengths.parquet"
    parquet.write_table(arrow.table(columns), path)
    assert read_lengths(str(path)) == ListedLengths(lengths=(12, 7))
    parquet.write_table(arrow.table(columns | {"count": [1, 3]}), path)
    assert read_lengths(str(path)) == ListedLengths(lengths=(12, 7, 7, 7))
    parquet.write_table(arrow.table({"length": [12, None]}), path)
    with pytest.raises(WorkloadError, match=r"lengths.parquet:2: length is None"):
        read_lengths(str(path))
    parquet.write_table(arrow.table({"a": [12], "b": [3]}), path)
    with pytest.raises(WorkloadError, match="columns are a, b: expected one of length"):
        read_lengths(str(path))
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(WorkloadError, match="cannot read the lengths of documents"):
        read_lengths(str(path))


def test_a_law_is_no_file() -> None:
    assert read_lengths("fixed(length=7)") == Fixed(length=7)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "12\nseven\n", r"a.txt:2: length is 'seven': expected a whole number from 1"),
        ("a.txt", "12\n0\n", "a.txt:2: length is '0'"),
        ("a.txt", "# nothing\n", "a.txt: no lengths"),
        ("a.csv", "a,b\n1,2\n", "a.csv: columns are a, b: expected one of length"),
        ("a.csv", "tokens\n1,024\n", "a.csv:2: expected 1 cells: found 2"),
        ("a.csv", "tokens,tokens\n1,2\n", "a.csv:1: column tokens stands twice: expected it once"),
        ("a.csv", "100\n200\n", "a.csv: columns are 100: expected one of length"),
        ("a.csv", "a,tokens\n1,x\n", "a.csv:2: length is 'x'"),
        ("a.jsonl", '{"length": 3}\n{\n', "a.jsonl:2: not valid JSON"),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1: not valid JSON"),
        ("a.jsonl", '{"a": 3, "b": 4}\n', "a.jsonl:1: columns are a, b"),
        ("a.jsonl", '"x"\n', "a.jsonl:1: length is 'x'"),
        ("a.csv", "tokens,count\n5,0\n", "a.csv:2: count is '0': expected a whole number"),
        ("a.csv", "tokens,count\n5,60000000\n", "a.csv: more than 50,000,000 lengths"),
    ],
)
def test_what_is_no_length_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(WorkloadError, match=said):
        read_lengths(str(path))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(WorkloadError, match="cannot read the lengths of documents"):
        read_lengths("no_such_lengths.txt")
