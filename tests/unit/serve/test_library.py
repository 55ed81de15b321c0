"""What a page may ask for: files named at the start, shipped networks, uploads."""

from pathlib import Path

import pytest

from stepsim.base.errors import PlanError, StepsimError
from stepsim.serve.library import Library

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "workloads" / "gpt_tp4.txt").read_bytes()
NETWORK = (ROOT / "topologies" / "hgx-h100.toml").read_bytes()


def test_an_upload_has_a_plain_name_and_leaves_no_file(tmp_path: Path) -> None:
    library = Library()
    name = library.upload("workload", "../../<img src=x>.txt", TEXT)
    assert name == "img_src_x_.txt"
    assert library.workload(name).layers == library.workload(name).layers > 0
    assert library.upload("workload", "../../<img src=x>.txt", TEXT) == "img_src_x_-2.txt"
    assert library.file_of(name) == name


def test_an_uploaded_topology_does_not_hide_a_shipped_one() -> None:
    library = Library()
    name = library.upload("topology", "hgx-h100", NETWORK)
    assert name == "hgx-h100.toml"
    assert library.topology(name).npus == library.topology("hgx-h100").npus


def test_errors_of_uploads_name_the_upload() -> None:
    with pytest.raises(StepsimError, match=r"^mine\.toml") as raised:
        Library().upload("topology", "mine.toml", b"x = [")
    assert "/" not in str(raised.value).split(":", maxsplit=1)[0]
    with pytest.raises(StepsimError, match=r"^a\.txt"):
        Library().upload("workload", "a.txt", b"\0\1\2")


def test_uploads_are_bounded() -> None:
    library = Library()
    for _ in range(32):
        library.upload("workload", "a.txt", TEXT)
    with pytest.raises(PlanError, match="32 files were uploaded"):
        library.upload("workload", "a.txt", TEXT)


def test_a_kind_of_upload_is_one_of_two() -> None:
    with pytest.raises(PlanError, match="expected workload or topology"):
        Library().upload("run", "a.txt", TEXT)


def test_files_of_the_command_line_are_known_by_their_names() -> None:
    library = Library()
    path = ROOT / "workloads" / "gpt_tp4.txt"
    assert library.open(path) == "gpt_tp4.txt"
    assert library.file_of("gpt_tp4.txt") == str(path)
    assert library.open_topology("hgx-h100") == "hgx-h100"
    assert library.open_topology(str(ROOT / "topologies" / "hgx-h100.toml")) == "hgx-h100.toml"
    assert "hgx-h100.toml" in library.topology_choices()
