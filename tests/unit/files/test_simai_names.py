"""Names of rows: those that are documented mean what is said, others are said to mean nothing."""

import re
from collections.abc import Callable
from pathlib import Path

import stepsim
from stepsim.files.simai.sections import unknown_names
from stepsim.files.simai.text import read_simai_text
from stepsim.workload.rows import Role

Write = Callable[[str | bytes], Path]
HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 pp: 1 ga: 1"
PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


def text(*names: str) -> str:
    rows = (f"{name} -1 5000 NONE 0 5000 NONE 0 5000 NONE 0 0" for name in names)
    return "\n".join([HEADER, str(len(names)), *rows]) + "\n"


def test_a_file_by_hand_in_the_documented_names_works(write_workload: Write) -> None:
    (block,) = re.findall(r'```text title="by_hand.txt"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    path = write_workload(block)
    workload = read_simai_text(path)
    (microbatch,) = workload.microbatches
    assert [len(layer) for layer in microbatch.layers] == [2, 2]
    assert [row.name for row in microbatch.head] == ["final_head"]
    assert {item.role for item in workload.per_step if item.work.comms} == {
        *(Role.GRADIENTS, Role.PARAMETERS)
    }
    assert workload.warnings == ()
    report = stepsim.simulate(path, "hgx-h100").report
    assert report.reading == ""
    assert not [each for each in report.findings if each.is_weighty]


def test_documented_names_are_known(write_workload: Write) -> None:
    table = PAGE.read_text().partition("What a row is for follows")[2].partition("Blocks of")[0]
    names = [
        name.replace("*", "_1")
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall("`([^`]+)`", line.split("|")[1])
    ]
    assert len(names) > 15
    rows = read_simai_text(write_workload(text("attention_1", *names))).rows()
    assert not list(unknown_names([*rows]))


def test_names_that_decide_something_are_said_once(write_workload: Write) -> None:
    layers = ["attention_qkv", "mlp_up"] * 4
    for names, words in (
        (["setup", "embedding_layer", *layers], "'setup': no known name: run once per step"),
        (["Embedding", *layers], "no row begins with embedding_layer"),
        (["embedding_layer", *layers, "lm_head"], "'lm_head': no known name: part of the layer"),
        (["embedding_layer", "block_1", "block_2"], "no row begins with attention: every row"),
    ):
        warnings = read_simai_text(write_workload(text(*names))).warnings
        assert [each for each in warnings if words in each], words
    assert read_simai_text(write_workload(text("embedding_layer", *layers))).warnings == ()
