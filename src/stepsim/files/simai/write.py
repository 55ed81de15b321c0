"""A model's workload as a SimAI text: one stage, one microbatch, and what runs once per step.

Compute times are written in nanoseconds with their fractions, so that they read back exactly;
SimAI itself reads whole ones. What the format has no word for is refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from stepsim.base.axes import Group, Phase
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace, shipped
from stepsim.base.units import PS_PER_NS
from stepsim.base.writing import write_whole
from stepsim.parallel.stages import held_parameters, owned_items
from stepsim.workload.rows import Role, Row, Rows, StepItem, Work, Workload


def _word(table: str, name: str) -> str:
    """The word of a text for a role, a kind of collectives or a group."""
    return shipped(__file__, "words.toml", dict[str, dict[str, str]])[table][name]


def write_simai_text(workload: Workload, path: Path) -> list[str]:
    """Write a model's workload; returns what a reader of the file should know.

    Raises PlanError for what the format cannot say: parameters gathered beside compute, context
    parallelism, stages that differ, experts split otherwise than tp splits layers.
    """
    layers = _stage(workload)
    block = workload.microbatches[0]
    rows = [
        *(replace(row, name="embedding_layer") for row in block.embedding),
        *(row for layer in layers for row in _named_layer(layer)),
        *(replace(row, name=f"final_{row.name}") for row in block.head),
    ]
    written = [each for row in map(_in_order, rows) for each in _single(row)]
    held = (*block.embedding, *chain.from_iterable(layers), *block.head)
    items = [*workload.per_step, *owned_items(workload, *held_parameters(held))]
    steps = [_item(each) for each in sorted(items, key=lambda item: list(Role).index(item.role))]
    lines = [*steps, *(_fields(row.name, (work for _, work in row.works())) for row in written)]
    degrees = workload.degrees
    header = (
        f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {degrees['tp']} "
        f"ep: {degrees['ep']} "
        f"pp: {degrees['pp']} vpp: {len(layers)} ga: 1 all_gpus: {workload.npus} "
        f"{_ids('checkpoints', written, len(steps))} "
        f"{_ids('checkpoint_initiates', written, len(steps))} pp_comm: {workload.pp_comm_bytes}"
    )
    write_whole(path, "\n".join([header, str(len(lines)), *lines, ""]).encode())
    return list(_notes(workload, rows))


def _stage(workload: Workload) -> Sequence[Rows]:
    """Layers of one stage, all of which are alike."""
    degrees, block = workload.degrees, workload.microbatches[0]
    why = "a SimAI text cannot say it"
    if workload.layout is None or any(row.shards for row in workload.rows()):
        raise PlanError(f"parameters are gathered beside compute (zero, dp_overlap): {why}")
    if degrees["cp"] > 1 or any(row.forward_lag or row.backward_lag for row in workload.rows()):
        raise PlanError(f"cp or tp_comm_overlap lets exchanges run beside rows: {why}")
    if degrees["ep"] > 1 and workload.expert_tp not in (1, degrees["tp"]):
        raise PlanError(f"expert_tp is {workload.expert_tp}, tp {degrees['tp']}: {why}")
    if block.prediction:
        raise PlanError(f"layers that predict further tokens: {why}")
    slices = workload.layout.resolve(len(block.layers), 0, degrees["pp"])
    counts = {each.layers for each in slices}
    if len(counts) > 1 or len(set(map(id, block.layers))) > 1 < degrees["pp"]:
        raise PlanError(f"stages have {min(counts)} to {max(counts)} layers, or other kinds: {why}")
    return block.layers[: counts.pop()]


def _named_layer(layer: Sequence[Row]) -> Iterator[Row]:
    """Rows whose names tell where a layer begins: first those of attention, then the others."""
    last = max((i for i, row in enumerate(layer) if "attention" in row.name), default=0)
    for i, row in enumerate(layer):
        yield replace(row, name=f"{'attention' if i <= last else 'mlp'}_{row.name}")


def _in_order(row: Row) -> Row:
    """The row with all that passes before its collectives as compute: the text has no word for it.

    That are waits for the host, small collectives ahead of exchanges between experts, and weight
    gradients that run before the collectives of the input gradients.
    """
    weights = row.weight_grad.wait_ps + row.weight_grad.compute_ps
    late = weights if row.weights_first and row.input_grad.comms else 0
    moved = {Phase.INPUT_GRAD: late, Phase.WEIGHT_GRAD: -late}

    def longer(phase: Phase, work: Work) -> Work:
        ahead = work.wait_ps + sum(op.process_ps for op in work.comms) + moved.get(phase, 0)
        return replace(work, compute_ps=work.compute_ps + ahead, wait_ps=0)

    return row.with_works(longer)


def _single(row: Row) -> Iterator[Row]:
    """Rows of at most one collective per phase, which together do what the row does."""
    forward, back = row.forward.comms, row.input_grad.comms
    count = max(len(forward), len(back), 1)
    for i in range(count):
        first, last = i == 0, i == count - 1
        yield replace(
            row,
            forward=Work(
                compute_ps=row.forward.compute_ps if first else 0, comms=forward[i : i + 1]
            ),
            input_grad=Work(
                compute_ps=row.input_grad.compute_ps if last else 0,
                comms=back[count - 1 - i : count - i],
            ),
            weight_grad=row.weight_grad if last else Work(),
            checkpoint=row.checkpoint and first,
            recompute=row.recompute and last,
        )


def _item(item: StepItem) -> str:
    experts = any(op.group is Group.DP_EP for op in item.work.comms)
    work = replace(item.work, compute_ps=max(item.work.compute_ps, item.work.host_ps))
    works = (work if phase is item.phase else Work() for phase in Phase)
    return _fields(_word("experts" if experts else "dense", item.role), works)


def _fields(name: str, works: Iterable[Work]) -> str:
    """A row of the text: of each phase its compute in ns, exactly, and its only collective."""
    words = [name, "-1"]
    for work in works:
        whole, rest = divmod(work.compute_ps, PS_PER_NS)
        words.append(f"{whole}.{rest:03d}" if rest else str(whole))
        for op in work.comms:
            words += [_word("kinds", op.kind) + _word("groups", op.group), str(op.size_bytes)]
        if not work.comms:
            words += ["NONE", "0"]
    return "\t".join([*words, "100"])


def _ids(key: str, rows: Sequence[Row], before: int) -> str:
    """Rows of the file with a mark, counted from 0, after those that stand `before` them."""
    mark = "checkpoint" if key == "checkpoints" else "recompute"
    ids = [before + i for i, row in enumerate(rows) if getattr(row, mark)]
    return f"{key}: {len(ids)} {' '.join(map(str, ids))}".rstrip()


def _notes(workload: Workload, rows: Sequence[Row]) -> Iterator[str]:
    degrees = workload.degrees
    if any(work.host_ps for row in rows for _, work in row.works()):
        yield "the host's launches are left out, as if kernels had never to wait for them"
    count = workload.pipeline_microbatches or 1
    if count > 1:
        yield f"a text holds one microbatch: read it with --microbatches {count}"
    if degrees["ep"] > 1 and workload.expert_tp == 1 < degrees["tp"]:
        yield "experts lie over tp too: read it with --ep-layout folded"
    if degrees["pp"] > 1:
        yield "read back, ends of the pipeline reduce their gradients by their share of compute"
    if any(op.least_ps for row in rows for _, work in row.works() for op in work.comms):
        yield "what the kernels of a dispatcher take is left out: the network alone decides"
    if any(len(row.input_grad.comms) > 1 and row.weight_grad.compute_ps for row in rows):
        yield "rows of several exchanges are cut: their weight gradients hide one of them"
