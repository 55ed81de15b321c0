"""How long the nodes of a job take, by what the documents of their microbatch are.

A microbatch of n tokens whose documents' squared lengths sum to q takes, in every node, a time that
rises with n as the model's own steps of shorter sequences do, and by a constant for each unit of q
beyond that of short documents: attention is the only operator whose work is not proportional to the
tokens. Both are found by pricing the same job at a few lengths, so operators, launches and
exchanges are those that every other command has. What a tower for images sees is the model's share
of a microbatch's tokens.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, row_numbers
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.engine.lay_out import Times
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.graph.programs import Program, SegmentKind
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.inputs import make_work
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan

SHARES = (8, 4, 2, 1)
"""Sequences that are priced, as parts of the whole; documents are the shortest of them."""


class MicrobatchPrices(Struct, frozen=True, kw_only=True, eq=False):
    """What the nodes of `batch` take at any load of a microbatch.

    `tokens` are those of a microbatch at each level that was priced, ascending, where its documents
    have `document` tokens. A node's time is linear in `features`: `weights` has the distinct rows,
    and `row` is that of every node. `whole_ps` are the nodes' times with one document a sample,
    `microbatch` their microbatches, -1 for what a step does once. `attention` is the share of a
    full microbatch's compute that grows with the squares of documents, of `samples` samples.
    `options` are those of the job, with all degrees of its plan. `sharing` is that of `BatchShape`.
    """

    batch: Batch
    tokens: Floats
    document: int
    weights: Floats
    row: Ints
    whole_ps: Times
    microbatch: Ints
    attention: float
    samples: int
    options: StepOptions
    sharing: tuple[tuple[float, float], ...] = ((1.0, 0.0),)

    @property
    def full_tokens(self) -> int:
        """Capacity of a microbatch, in tokens."""
        return int(self.tokens[-1])

    def features(self, tokens: Floats, squares: Floats) -> Floats:
        """What times are linear in, for loads of any shape: (features, ...).

        One, tokens within each level, and squares beyond those of short documents.
        """
        edges = np.concatenate(([0.0], self.tokens))
        edges[-1] = np.inf
        parts = [np.clip(tokens - low, 0.0, high - low) for low, high in pairwise(edges.tolist())]
        busy = (tokens > 0).astype(np.float64)
        return np.stack([busy, *parts, squares - tokens * self.document])


def _weights(tokens: Floats, short_ps: Times, per_square_ps: Floats) -> Floats:
    """Weights of `MicrobatchPrices.features`, a row per node, from what nodes take at each level.

    Below the shortest level work shrinks with the tokens of the next one.
    """
    rise = np.diff(short_ps, axis=1) / np.diff(tokens)
    start = short_ps[:, 0] - rise[:, 0] * tokens[0]
    return np.column_stack((start, rise[:, :1], rise, per_square_ps))


def _node_microbatches(batch: Batch) -> Ints:
    """The microbatch of every node, -1 for what a step does once.

    A message is of the microbatch of the action before it. Of two microbatches that run as one the
    forward's counts.
    """
    program = batch.passes.program
    found = np.full(len(program), -1, dtype=np.int64)
    for laid, nodes in zip(batch.programs, program.nodes, strict=True):
        of_segment = _microbatches(laid.program)
        kinds = laid.program.shape.kind[laid.segment]
        own = of_segment[laid.segment]
        known = (kinds != SegmentKind.RECV) & (own >= 0)
        found[nodes[known]] = own[known]
    return found


def _microbatches(program: Program) -> Ints:
    """The microbatch of every segment of a program, -1 outside the pipeline."""
    entries, shape = program.entries, program.shape
    of_entry = np.array([entry.parts()[0].microbatch for entry in entries] + [-1])
    found = of_entry[shape.entry]
    sends = np.flatnonzero(shape.kind == SegmentKind.SEND)
    for segment in sends.tolist():
        before = [i for i in shape.after[segment] if shape.entry[i] >= 0]
        found[segment] = found[max(before)] if before else -1
    return np.asarray(found)


def microbatch_prices(
    model: Model,
    topology: Topology,
    options: StepOptions,
    notes: Sequence[str] = (),
    *,
    coalesce: bool = True,
) -> MicrobatchPrices:
    """Prices of a model's microbatches at several loads; raises the errors of `make_batch`.

    The plan is that of the whole sequence at every load. With `coalesce=False` every task is a node
    of its own, as is always so where replicas meet within an action. Raises PlanError where the
    sequence is too short to be told apart.
    """
    work = make_work(model, topology, options)
    assert work.built is not None
    plan = work.built.plan
    unit = 2 * plan.cp * plan.tp
    lengths = sorted({max(plan.sequence // share // unit, 1) * unit for share in SHARES[:-1]})
    lengths = [length for length in lengths if length < plan.sequence]
    if not lengths:
        raise PlanError(
            f"sequence is {plan.sequence}: expected at least {2 * unit} tokens to tell short "
            f"documents from long ones with tp {plan.tp} and cp {plan.cp}"
        )
    document = lengths[0]
    held = _held(options, plan)

    def priced(sequence: int, packed: int | None, *, whole: bool) -> Batch:
        asked = replace(held, sequence=sequence, packed=packed)
        seeing = _with_images(model, sequence / plan.sequence)
        return make_batch(seeing, topology, asked, notes=notes, coalesce=whole)

    batch = priced(plan.sequence, None, whole=coalesce)
    if coalesce and _replicas_meet(batch):
        coalesce, batch = False, priced(plan.sequence, None, whole=False)
    size, whole_ps, microbatch = plan.microbatch_size, _node_ps(batch), _node_microbatches(batch)
    tokens = np.array([*lengths, plan.sequence], dtype=np.float64) * size
    every = (*lengths, plan.sequence)
    short = [_node_ps(priced(length, document, whole=coalesce)) for length in every]
    short_ps, whole_squares = np.stack(short, axis=1), float(size) * plan.sequence**2
    per_square_ps = (whole_ps - short_ps[:, -1]) / (whole_squares - tokens[-1] * document)
    # nodes of one row are alike in every price, so that they share what is computed of them
    first, row = row_numbers(np.column_stack((short_ps, whole_ps)))
    full, own = float(whole_ps[microbatch == 0].sum()), per_square_ps[microbatch == 0]
    return MicrobatchPrices(
        batch=batch,
        tokens=tokens,
        document=document,
        weights=_weights(tokens, short_ps[first], per_square_ps[first]),
        row=row,
        whole_ps=whole_ps,
        microbatch=microbatch,
        attention=float(own.sum()) * whole_squares / full if full else 0.0,
        samples=size,
        options=replace(held, sequence=plan.sequence),
    )


def _with_images(model: Model, share: float) -> Model:
    """The model where a sample has a share of its image tokens: as it has of its tokens."""
    tower = model.architecture.seeing
    if tower is None or share == 1:
        return model
    fewer = replace(tower, tokens=max(round(tower.tokens * share), 1))
    return replace(model, architecture=replace(model.architecture, tower=fewer))


def _replicas_meet(batch: Batch) -> bool:
    """Whether actions that are one node have collectives in which replicas wait for each other.

    Of experts that are shared out, or of parameters that are gathered.
    """
    graph = batch.job.graph
    groups = {
        graph.comms[comm].group
        for laid in batch.programs
        for number in laid.times
        for comm in graph.task_lists[number].comms
    }
    replica = graph.plan.tp * graph.plan.cp
    return any(graph.plan.span(group)[1] > replica for group in groups)


def _held(options: StepOptions, plan: ModelPlan) -> StepOptions:
    """The options with the plan's own degrees and batch, whatever the sequence is."""
    names = ("tp", "cp", "pp", "ep", "npus", "global_batch")
    return replace(options, microbatches=None, **{name: getattr(plan, name) for name in names})


def _node_ps(batch: Batch) -> Times:
    """How long every node takes, in ps."""
    values = batch.lengths(batch.scenarios({}))
    return np.array([int(values[number][0]) for number in batch.passes.program.length])
