"""What a page may ask for: files named at the start, shipped networks, uploads."""

from pathlib import Path

import pytest

import stepsim
from stepsim.base.errors import PlanError, StepsimError
from stepsim.serve.library import NamedNouns
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "workloads" / "gpt_tp4.txt").read_bytes()
NETWORK = (ROOT / "topologies" / "hgx-h100.toml").read_bytes()


def test_an_upload_has_a_plain_name_and_leaves_no_file(tmp_path: Path) -> None:
    library = NamedNouns()
    name = library.upload("workload", "../../<img src=x>.txt", TEXT)
    assert name == "img_src_x_.txt"
    assert isinstance(library.workload(name), Workload)
    assert library.upload("workload", "../../<img src=x>.txt", TEXT) == "img_src_x_-2.txt"
    assert library.file_of(name) == name


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ("..-._-x.txt", "x.txt"),
        ("--", "upload.txt"),
        ("; rm -rf ~.txt", "rm_-rf_.txt"),
    ],
)
def test_the_name_of_an_upload_is_a_word_of_a_command(given: str, called: str) -> None:
    assert NamedNouns().upload("workload", given, TEXT) == called


def test_an_uploaded_topology_does_not_hide_a_shipped_one() -> None:
    library = NamedNouns()
    name = library.upload("topology", "hgx-h100", NETWORK)
    assert name == "hgx-h100.toml"
    assert library.topology(name).npus == library.topology("hgx-h100").npus


def test_errors_of_uploads_name_the_upload() -> None:
    with pytest.raises(StepsimError, match=r"^mine\.toml") as raised:
        NamedNouns().upload("topology", "mine.toml", b"x = [")
    assert "/" not in str(raised.value).split(":", maxsplit=1)[0]
    with pytest.raises(StepsimError, match=r"^a\.txt"):
        NamedNouns().upload("workload", "a.txt", b"\0\1\2")


def test_uploads_are_bounded() -> None:
    library = NamedNouns()
    for _ in range(32):
        library.upload("workload", "a.txt", TEXT)
    with pytest.raises(PlanError, match="32 files were uploaded"):
        library.upload("workload", "a.txt", TEXT)


def test_a_kind_of_upload_is_one_of_two() -> None:
    with pytest.raises(PlanError, match="expected workload or topology"):
        NamedNouns().upload("run", "a.txt", TEXT)


def test_the_first_list_says_what_everything_is(tmp_path: Path) -> None:
    library = NamedNouns()
    result = tmp_path / "step.json"
    step = stepsim.simulate(ROOT / "workloads" / "gpt_tp4.txt", "hgx-h100")
    result.write_bytes(step.to_json().encode())
    given = ("workloads/moe_128.txt", "workloads/measured/megatron_moe_rank0.txt")
    for each in (*given, "workloads/measured/llama_pp8_a40.txt"):
        library.open(ROOT / each)
    library.open(result)
    library.open(Path("qwen3-8b"))
    names = dict(library.work_choices())
    kinds = ["workload", "measured run", "measured run", "result", "model"]
    assert [names[name] for name in library.works] == kinds
    assert names["llama-3.1-8b"] == "model"
    assert len(names) == len(library.work_choices())
    with pytest.raises(PlanError, match=r"llama_pp8_a40\.txt is a measured run: it has run"):
        library.workload("llama_pp8_a40.txt")
    assert isinstance(library.workload("QWEN3-8B"), Model)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("mine.toml", b'based_on = "llama-3.1-8b"\nnum_hidden_layers = 8\n', "model"),
        ("run.log", (ROOT / "workloads/measured/megatron_moe_rank0.txt").read_bytes(), "run"),
    ],
)
def test_models_and_runs_are_uploaded_too(name: str, content: bytes, kind: str) -> None:
    library = NamedNouns()
    called = library.upload("workload", f"../{name}", content)
    assert called == name
    assert dict(library.work_choices())[name].endswith(kind)
    assert "/" not in getattr(library.work(name), "source", "")


def test_a_result_that_is_none_is_refused_as_on_the_command_line() -> None:
    with pytest.raises(StepsimError, match=r"^odd\.json"):
        NamedNouns().upload("workload", "odd.json", b'{"format": "something else"}')


def test_files_of_the_command_line_are_known_by_their_names() -> None:
    library = NamedNouns()
    path = ROOT / "workloads" / "gpt_tp4.txt"
    assert library.open(path) == "gpt_tp4.txt"
    assert library.file_of("gpt_tp4.txt") == str(path)
    assert library.open_topology("hgx-h100") == "hgx-h100"
    assert library.open_topology(str(ROOT / "topologies" / "hgx-h100.toml")) == "hgx-h100.toml"
    assert "hgx-h100.toml" in library.topology_choices()
