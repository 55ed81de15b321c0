"""The workload text in its variants, and every mistake in it as one clear error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.errors import WorkloadError
from stepsim.files.simai.sections import FileRow, Header
from stepsim.files.simai.text import read_simai_document, read_simai_text
from stepsim.workload.rows import CommOp, Microbatch, Role, Row, Workload

Read = Callable[..., Workload]
Write = Callable[[str | bytes], Path]
Document = Callable[[str], tuple[Header, list[FileRow], list[str]]]

TRANSFORMER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2"
REDUCE, GATHER, TO_ALL = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)


def line(
    name: str = "mlp_layer",
    forward: str = "1 NONE 0",
    input_grad: str = "1 NONE 0",
    weight_grad: str = "1 NONE 0",
    end: str = "100",
) -> str:
    return "\t".join([name, "-1", *f"{forward} {input_grad} {weight_grad} {end}".split()])


def text(header: str, *lines: str) -> str:
    return "\n".join([header, str(len(lines)), *lines]) + "\n"


def named(*names: str) -> str:
    """A transformer file of rows with these names."""
    return text(TRANSFORMER, *(line(name) for name in names))


def names(rows: tuple[Row, ...]) -> list[str]:
    return [row.name for row in rows]


def step_names(workload: Workload) -> list[str]:
    """Names of the rows of a step, each an item per phase."""
    return list(dict.fromkeys(item.name for item in workload.per_step))


def layout(block: Microbatch) -> list[list[str]]:
    """Rows before the layers, those of each layer, and rows after them."""
    return [names(rows) for rows in (block.embedding, *block.layers, block.head)]


@pytest.fixture
def read(write_workload: Write) -> Read:
    """Reads a text as a file would be read."""

    def read_text(content: str | bytes, *, strict: bool = False) -> Workload:
        return read_simai_text(write_workload(content), strict=strict)

    return read_text


@pytest.fixture
def document(write_workload: Write) -> Document:
    """Reads a text as the file that it is."""
    return lambda content: read_simai_document(write_workload(content))


def first_row(workload: Workload) -> Row:
    return next(workload.rows())


# Header


@pytest.mark.parametrize(
    "keys",
    [
        "model_parallel_NPU_group 8 ep 4 pp 2 vpp 8 ga 1 all_gpus 128 pp_comm 50331648",
        "pp_comm: 50331648.0 all_gpus: 128 ga: 1 vpp: 8 pp: 2 ep: 4 model_parallel_NPU_group: 8",
        "model_parallel_NPU_group: 8 expert_parallel_npu_group: 4 pp: 2 vpp: 8 ga: 1 "
        "all_gpus: 128 checkpoints: 0 checkpoint_initiates: 0 pp_comm 50331648",
    ],
)
def test_header_keys_come_in_any_order_with_or_without_colon(
    keys: str, read: Read, document: Document
) -> None:
    content = text(f"HYBRID_TRANSFORMER_FWD_IN_BCKWD {keys}", line())
    header = document(content)[0]
    assert header == Header(
        policy="HYBRID_TRANSFORMER_FWD_IN_BCKWD",
        degrees=degrees_of(tp=8, ep=4, pp=2),
        vpp=8,
        ga=1,
        npus=128,
        pp_comm_bytes=50331648,
        checkpoints=header.checkpoints,
        checkpoint_initiates=header.checkpoint_initiates,
        is_simai=True,
    )
    workload = read(content)
    assert (workload.degrees, workload.npus) == (degrees_of(tp=8, ep=4, pp=2), 128)
    assert (workload.pp_comm_bytes, workload.pp_comm_assumed) == (50331648, "")
    assert workload.described == (
        ("policy", "HYBRID_TRANSFORMER_FWD_IN_BCKWD"),
        ("header", "tp 8, ep 4, pp 2, vpp 8, ga 1, all_gpus 128"),
    )


@pytest.mark.parametrize(
    "keys", ["", "model_parallel_NPU_group: 0 ep: 0 pp: 0 vpp: 0 ga: 0 all_gpus: 0 pp_comm: 0"]
)
def test_missing_and_zero_keys_mean_one_or_unknown(
    keys: str, read: Read, document: Document
) -> None:
    content = text(f"HYBRID_TRANSFORMER {keys}", line())
    header = Header(policy="HYBRID_TRANSFORMER", is_simai="pp" in keys)
    assert document(content)[0] == header
    assert (read(content).degrees, read(content).npus) == (degrees_of(), None)


def test_positional_header_of_astra_sim(read: Read) -> None:
    header = "HYBRID_TRANSFORMER\tmodel_parallel_NPU_group: 4 checkpoints: 2 0 2"
    workload = read(text(f"{header} checkpoint_initiates: 1 1", line(), line(), line()))
    rows = list(workload.rows())
    assert (workload.degrees, workload.npus) == (degrees_of(tp=4), None)
    assert [row.checkpoint for row in rows] == [True, False, True]
    assert [row.recompute for row in rows] == [False, True, False]


@pytest.mark.parametrize(
    "header", ["HYBRID_DLRM 2", "HYBRID_DLRM\tDLRM_LAST_BOTTOM_LAYER: 2", "HYBRID_DLRM_ENHANCED 2"]
)
def test_dlrm_embedding_overlaps_the_bottom_layers(header: str, read: Read) -> None:
    embedding = line("Embedding", "300 ALLTOALL 98304")
    workload = read(text(header, embedding, line("Bottom0"), line("Bottom1"), line("Top")))
    assert [row.forward_lag for row in workload.rows()] == [2, 0, 0, 0]
    assert workload.warnings == ()


def test_inference_mode_is_a_known_key_of_a_clean_file(read: Read) -> None:
    assert read(text(f"{TRANSFORMER} mode: 1", line()), strict=True).warnings == ()


# Rows


PLAIN = text(TRANSFORMER, line("a", "5 ALLREDUCE 64"), line("b", "7 NONE 0"))


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\t", "    "),
        PLAIN.replace("\t", " \t "),
        PLAIN.rstrip("\n"),
        PLAIN.replace("\n", "\t\t\n"),
        PLAIN.replace("\n", "\n\n"),
        b"\xef\xbb\xbf" + PLAIN.encode(),
    ],
    ids=["CRLF", "spaces", "both", "no final newline", "trailing tabs", "empty lines", "BOM"],
)
def test_white_space_means_nothing(content: str | bytes, read: Read) -> None:
    def facts(workload: Workload) -> object:
        works = [(row.name, row.works()) for row in workload.rows()]
        return workload.degrees, works, workload.warnings

    assert facts(read(content)) == facts(read(PLAIN))


def test_rows_are_read_field_by_field(read: Read, document: Document) -> None:
    content = text(
        TRANSFORMER, line("mlp_a", "11 ALLGATHER 64", "12 REDUCESCATTER 32", "13 ALLREDUCE 16")
    )
    (row,) = document(content)[1]
    assert (row.name, row.line) == ("mlp_a", 3)
    assert first_row(read(content)) is not row
    assert first_row(read(content)).works() == row.works()
    assert [work.compute_ps for _, work in row.works()] == [11_000, 12_000, 13_000]
    assert [
        (phase, work.comms[0].kind, work.comms[0].size_bytes) for phase, work in row.works()
    ] == [
        (Phase.FORWARD, CollectiveKind.ALL_GATHER, 64),
        (Phase.INPUT_GRAD, CollectiveKind.REDUCE_SCATTER, 32),
        (Phase.WEIGHT_GRAD, CollectiveKind.ALL_REDUCE, 16),
    ]


@pytest.mark.parametrize(
    ("written", "sizes"),
    [("4194304.0", [4194304]), ("1e6", [10**6]), (f"{2**63 - 1}", [2**63 - 1]), ("0", [])],
)
def test_sizes_may_be_floats_and_large_and_none_is_no_collective(
    written: str, sizes: list[int], read: Read
) -> None:
    row = first_row(read(text(TRANSFORMER, line(forward=f"1 ALLREDUCE {written}"))))
    assert [comm.size_bytes for comm in row.forward.comms] == sizes


def test_all_reduce_all_to_all_is_two_collectives(read: Read) -> None:
    row = first_row(read(text(TRANSFORMER, line(forward="1 ALLREDUCEALLTOALL 8"))))
    assert [(comm.kind, comm.size_bytes) for comm in row.forward.comms] == [
        (REDUCE, 8),
        (TO_ALL, 8),
    ]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("ALLREDUCE", REDUCE),
        ("ALLGATHER", GATHER),
        ("REDUCESCATTER", CollectiveKind.REDUCE_SCATTER),
        ("ALLTOALL", TO_ALL),
        ("BROADCAST", CollectiveKind.BROADCAST),
    ],
)
@pytest.mark.parametrize(
    ("group", "axis"),
    [
        (Group.TP, ParallelAxis.TP),
        (Group.DP, ParallelAxis.DP),
        (Group.EP, ParallelAxis.EP),
        (Group.DP_EP, ParallelAxis.DP),
    ],
)
def test_suffix_names_the_group_in_every_phase(
    word: str, kind: CollectiveKind, group: Group, axis: ParallelAxis, read: Read
) -> None:
    phase = f"1 {word}_{group.name} 8"
    comm = CommOp(kind=kind, group=group, axis=axis, size_bytes=8)
    row = first_row(read(text(TRANSFORMER, line("mlp_a", phase, phase, phase))))
    assert [work.comms for _, work in row.works()] == [(comm,)] * 3


POLICY_GROUPS: list[tuple[str, Group | None, Group | None]] = [
    ("HYBRID_TRANSFORMER", Group.TP, Group.DP),
    ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", Group.TP, Group.DP),
    ("DATA", None, Group.STAGE),
    ("MICRO", Group.STAGE, Group.STAGE),
    ("MODEL", Group.STAGE, None),
    ("DISTRIBUTED_INFERENCE", Group.STAGE, None),
    ("HYBRID_DATA_MODEL", Group.INNER, Group.OUTER),
    ("HYBRID_MODEL_DATA", Group.OUTER, Group.INNER),
    ("HYBRID_DLRM", Group.STAGE, Group.STAGE),
    ("HYBRID_DLRM_ENHANCED", Group.STAGE, Group.STAGE),
]


@pytest.mark.parametrize("customized", [False, True])
@pytest.mark.parametrize(("policy", "model", "data"), POLICY_GROUPS)
def test_policy_names_the_groups(
    policy: str, model: Group | None, data: Group | None, customized: bool, read: Read
) -> None:
    phase = "1 ALLREDUCE 8"
    header, end = ("HYBRID_CUSTOMIZED", f"100 {policy}") if customized else (policy, "100")
    workload = read(text(header, line("mlp_a", phase, phase, phase, end)))
    expected = [[model] if model else [], [model] if model else [], [data] if data else []]
    works = first_row(workload).works()
    assert [[comm.group for comm in work.comms] for _, work in works] == expected
    assert bool(workload.warnings) == (None in (model, data))


def test_a_suffix_holds_where_the_policy_communicates_nothing(read: Read) -> None:
    workload = read(text("DATA", line(forward="1 ALLTOALL_EP 8")))
    assert [comm.group for comm in first_row(workload).forward.comms] == [Group.EP]


# Warnings


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{TRANSFORMER}\n5\n{line()}\n", ["line 2", "5 rows", "has 1"]),
        (text(TRANSFORMER, line(), line(end="100 0 0 0 0 0")), ["12 fields", "line 4"]),
        (text(f"{TRANSFORMER} flavour: 7", line()), ["flavour", "7"]),
        (text("DATA", line(forward="1 ALLREDUCE 8")), ["1 forward collectives ignored"]),
    ],
    ids=["row count", "17 fields", "unknown key", "collective without group"],
)
def test_doubts_about_the_file_warn_and_are_refused_when_strict(
    content: str, words: list[str], read: Read
) -> None:
    (warning,) = read(content).warnings
    assert [word for word in words if word not in warning] == []
    with pytest.raises(WorkloadError) as caught:
        read(content, strict=True)
    assert warning in str(caught.value)


def test_blocks_win_over_ga(read: Read) -> None:
    workload = read(text(f"{TRANSFORMER} ga: 4", *[line("embedding_layer"), line("a")] * 2))
    assert len(workload.microbatches) == 2
    assert "2 equal blocks" in workload.reading
    assert "ga is 4" in workload.reading
    (doubt,) = (d for d in workload.doubts if d.remedy == "--microbatches 4")
    assert doubt.mended is not None
    assert len(doubt.mended.microbatches) == 4


def test_vpp_is_no_evidence_of_interleaving(read: Read) -> None:
    workload = read(text(f"{TRANSFORMER} vpp: 8", line()))
    assert workload.warnings == ()
    assert [note for note in workload.notes if "vpp 8" in note]


# Sections


def test_sections_of_an_aicb_file(read: Read) -> None:
    layer = ["attention_column", "attention_row", "mlp_column", "mlp_row"]
    block = ["embedding_layer", *layer, *layer, "final_column"]
    workload = read(
        named("grad_gather", "layernorm", "other", *block, *block, "cross_entropy1", "optimizer1")
    )
    assert len(workload.microbatches) == 2
    for microbatch in workload.microbatches:
        assert layout(microbatch) == [["embedding_layer"], layer, layer, ["final_column"]]
    assert names(workload.loss) == ["cross_entropy1"]
    assert step_names(workload) == ["grad_gather", "layernorm", "other", "optimizer1"]
    assert workload.layers == 2


@pytest.mark.parametrize(
    ("rows", "layouts"),
    [
        (
            "embedding_layer attention_column_1 attention_row_1 mlp_1 "
            "embedding_layer_2 attention_column_2 attention_row_2 mlp_2 mlp_3",
            [
                [["embedding_layer"], ["attention_column_1", "attention_row_1", "mlp_1"], []],
                [
                    ["embedding_layer_2"],
                    ["attention_column_2", "attention_row_2", "mlp_2", "mlp_3"],
                    [],
                ],
            ],
        ),
        (
            "embedding_layer norm attention mlp attention",
            [[["embedding_layer"], ["norm", "attention", "mlp"], ["attention"], []]],
        ),
        (
            "embedding_layer attention embedding_norm",
            [[["embedding_layer"], ["attention"], ["embedding_norm"]]],
        ),
        ("grad_gather conv1 conv2 optimizer1", [[[], ["conv1"], ["conv2"], []]]),
        ("embedding_layer embedding_layer", [[[], ["embedding_layer"], []]] * 2),
    ],
    ids=[
        "numbered names open blocks and layers too",
        "rows before the first attention belong to the first layer",
        "an embedding's norm after the last layer is head",
        "without embedding layer there is one microbatch",
        "embedding rows alone are a micro-benchmark",
    ],
)
def test_names_say_where_layers_begin_and_end(
    rows: str, layouts: list[list[list[str]]], read: Read
) -> None:
    workload = read(named(*rows.split()))
    assert [layout(block) for block in workload.microbatches] == layouts


def test_checkpoint_ids_count_rows_from_zero(document: Document) -> None:
    header = f"{TRANSFORMER} checkpoints: 1 1 checkpoint_initiates: 1 3"
    content = text(header, line("grad_gather"), *[line("embedding_layer"), line("a"), line("b")])
    rows = {row.name: row for row in document(content)[1]}
    assert [name for name, row in rows.items() if row.checkpoint] == ["embedding_layer"]
    assert [name for name, row in rows.items() if row.recompute] == ["b"]


# Rows of a step


@pytest.mark.parametrize(
    ("name", "role", "per_layer"),
    [
        ("layernorm", Role.NORM_GRADIENTS, True),
        ("embedding_grads", Role.EMBEDDING_GRADIENTS, False),
        ("grad_param", Role.GRADIENTS, True),
        ("grad_param_comm", Role.GRADIENTS, True),
        ("moe_grad_norm2", Role.GRADIENTS, True),
        ("grad_param_compute", Role.UPDATE, True),
        ("grad_gather", Role.PARAMETERS, True),
        ("moe_grad_norm1", Role.PARAMETERS, True),
        ("grad_something", Role.OTHER, True),
        ("norm", Role.OTHER, False),
        ("optimizer3", Role.SCALARS, False),
    ],
)
def test_roles_of_a_step_are_told_by_names(
    name: str, role: Role, per_layer: bool, read: Read
) -> None:
    order = ["layer", name] if name.startswith("optimizer") else [name, "layer"]
    items = read(named(*order)).per_step
    assert [(item.name, item.phase) for item in items] == [(name, phase) for phase in Phase]
    assert {(item.role, item.per_layer) for item in items} == {(role, per_layer)}


def test_the_optimizer_of_older_files_is_three_items_on_dp(read: Read) -> None:
    """`grad_norm` gathers parameters forward, updates, and reduces gradients backward."""
    old = line("grad_norm", "5 ALLGATHER 64", "6 NONE 0", "7 REDUCESCATTER 128")
    items = read(text(TRANSFORMER, old, line("moe_grad_norm2"), line())).per_step
    assert [item.name for item in items] == ["moe_grad_norm2"] * 3 + ["grad_norm"] * 3
    found = [(item.role, item.per_layer, item.work.compute_ps) for item in items[3:]]
    assert found == [
        (Role.PARAMETERS, True, 5_000),
        (Role.UPDATE, True, 6_000),
        (Role.GRADIENTS, True, 7_000),
    ]
    comms = [(op.kind, op.group, op.axis) for item in items for op in item.work.comms]
    assert comms == [
        (CollectiveKind.ALL_GATHER, Group.DP, ParallelAxis.DP),
        (CollectiveKind.REDUCE_SCATTER, Group.DP, ParallelAxis.DP),
    ]


# What stages send each other


@pytest.mark.parametrize(
    ("rows", "sent", "place"),
    [
        (
            [("attention_column", "ALLREDUCE 800"), ("attention_row", "REDUCESCATTER 400")],
            100,
            "'attention_row' (line 4)",
        ),
        (
            [("mlp", "ALLGATHER 800"), ("mlp", "ALLREDUCE 400"), ("mlp", "ALLREDUCE 80")],
            400,
            "'mlp' (line 4)",
        ),
        ([("mlp", "REDUCESCATTER_EP 400"), ("mlp", "REDUCESCATTER 40")], 10, "'mlp' (line 4)"),
        ([("attention_row", "NONE 0"), ("mlp", "ALLREDUCE 40")], 40, "'mlp' (line 4)"),
    ],
)
def test_missing_pp_comm_is_the_output_rows_activation(
    rows: list[tuple[str, str]], sent: int, place: str, read: Read
) -> None:
    lines = [line(name, f"1 {collective}") for name, collective in rows]
    workload = read(text("HYBRID_TRANSFORMER model_parallel_NPU_group: 4 pp: 2", *lines))
    assert workload.pp_comm_bytes == sent
    assert workload.pp_comm_assumed == (
        f"the file gives no pp_comm: stepsim assumes {sent} bytes per microbatch between stages, "
        f"from row {place}"
    )


def test_pp_comm_that_nothing_tells_is_zero(read: Read) -> None:
    workload = read(text(TRANSFORMER, line("mlp")))
    assert workload.pp_comm_bytes == 0
    assert "no row implies it: stages exchange 0 bytes" in workload.pp_comm_assumed


# Errors


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b" \n\t\n", "empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not a text file"),
        (f"{TRANSFORMER}\n", "row count"),
        (f"{TRANSFORMER}\n2\n", "no rows"),
        (named("grad_gather"), "no row belongs to a layer"),
    ],
    ids=["blank", "binary", "header only", "no rows", "per-step rows only"],
)
def test_files_without_a_workload_are_refused(
    content: str | bytes, said: str, write_workload: Write
) -> None:
    path = write_workload(content)
    check_refused(path, f"{path}: ", said)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    check_refused(tmp_path / "absent.txt", f"{tmp_path / 'absent.txt'}: ", "No such file")
    check_refused(tmp_path, f"{tmp_path}: ", "folder")


SECOND_ROW = 4  # line number


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (line("mlp").rpartition("\t")[0], "'mlp' has 11 fields: expected 12"),
        (line("mlp", "12x NONE 0"), "forward compute (ns) of 'mlp' is '12x': expected"),
        (line("mlp", "1e14 NONE 0"), "forward compute (ns) of 'mlp' is '1e14'"),
        (line("mlp", "nan NONE 0"), "forward compute (ns) of 'mlp' is 'nan'"),
        (
            line("mlp", "1 ALLREDUCE -8"),
            "forward bytes of 'mlp' is '-8': expected a number from 0 to",
        ),
        (
            line("mlp", f"1 ALLREDUCE {2**63}"),
            f"forward bytes of 'mlp' is '{2**63}': expected a number from 0 to {2**63 - 1}",
        ),
        (line("mlp", weight_grad="1 NONE x"), "weight-grad bytes of 'mlp' is 'x'"),
        (line("mlp", end="x"), "process time of 'mlp' is 'x'"),
        (
            line("mlp", "1 ALLREDUCT 8"),
            "forward collective of 'mlp' is 'ALLREDUCT': expected one of NONE, ALLREDUCE, "
            "ALLGATHER, REDUCESCATTER, ALLTOALL, BROADCAST, ALLREDUCEALLTOALL, with suffix _DP_EP",
        ),
        (line("mlp", "1 ALLREDUCE_PP 8"), "forward collective of 'mlp' is 'ALLREDUCE_PP'"),
        (
            line("mlp").replace("-1", "none"),
            "dependency of 'mlp' is 'none': expected a number from -",
        ),
    ],
)
def test_mistakes_in_a_row_are_named(row: str, said: str, write_workload: Write) -> None:
    path = write_workload(text(TRANSFORMER, line(), row))
    check_refused(path, f"{path}:{SECOND_ROW}: ", said)


def test_dependency_may_be_any_integer(read: Read) -> None:
    assert read(text(TRANSFORMER, line().replace("-1", "-7"))).warnings == ()


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("100", "12 fields: expected 13"),
        ("100 SIDEWAYS", "row policy is 'SIDEWAYS': expected one of DATA, MODEL"),
        ("100 HYBRID_CUSTOMIZED", "row policy is 'HYBRID_CUSTOMIZED': expected one of DATA, "),
    ],
)
def test_mistakes_in_a_rows_policy_are_named(end: str, said: str, write_workload: Write) -> None:
    path = write_workload(text("HYBRID_CUSTOMIZED", line(end="1 DATA"), line(end=end)))
    check_refused(path, f"{path}:{SECOND_ROW}: ", said)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("SIDEWAYS pp: 2", "policy is 'SIDEWAYS': expected one of DATA, MODEL"),
        (f"{TRANSFORMER} pp: two", "pp is 'two': expected a whole number from 0"),
        (f"{TRANSFORMER} pp: -2", "pp is '-2': expected a whole number from 0"),
        (f"{TRANSFORMER} pp: 1.5", "pp is '1.5': expected a whole number from 0"),
        (f"{TRANSFORMER} all_gpus: 99999999999", "expected a whole number from 0 to 16777216"),
        (f"{TRANSFORMER} pp_comm: 1e30", "from 0 to 9223372036854775807"),
        (f"{TRANSFORMER} ga:", "ga is '': expected a whole number from 0"),
        (f"{TRANSFORMER} checkpoints: 2 0", "checkpoints id is '': expected"),
    ],
)
def test_mistakes_in_the_header_are_named(header: str, said: str, write_workload: Write) -> None:
    path = write_workload(text(header, line()))
    check_refused(path, f"{path}:1: ", said)


def test_checkpoints_must_be_rows(write_workload: Write) -> None:
    path = write_workload(text(f"{TRANSFORMER} checkpoints: 1 2", line(), line()))
    check_refused(path, str(path), "header: checkpoints id is 2: expected a row number from 0 to 1")


@pytest.mark.parametrize("count", ["many", "-1"])
def test_row_count_must_be_a_number(count: str, write_workload: Write) -> None:
    path = write_workload(f"{TRANSFORMER}\n{count}\n{line()}\n")
    check_refused(path, f"{path}:2: ", f"row count is {count!r}: expected a number from 0 to")


def check_refused(path: Path, start: str, said: str) -> None:
    """One WorkloadError that begins with the place and says this after it."""
    with pytest.raises(WorkloadError) as caught:
        read_simai_text(path)
    message = str(caught.value)
    assert message.startswith(start)
    assert said in message.removeprefix(start)


def test_rows_of_one_text_are_read_once(read: Read, document: Document) -> None:
    twice = [line("attention_column", "5 ALLREDUCE 8"), line("mlp_a", "7 NONE 0")] * 3
    _, rows, warnings = document(text("DATA", *twice))
    assert [row.line for row in rows] == [3, 4] * 3
    assert len({*map(id, rows)}) == 2
    assert warnings == ["3 forward collectives ignored: the policy has no group for them"]
    *_, warnings = document(text("DATA", *(f"{each} 9" for each in twice)))
    assert "6 rows have more than 12 fields (first: line 3)" in warnings[-1]
    blocks = read(text(TRANSFORMER, *[line("embedding_layer"), *twice] * 2)).microbatches
    assert len(blocks) == 2
    assert blocks[0] is blocks[1]
