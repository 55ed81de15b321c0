"""How long the nodes of a job take, by what the documents of their microbatch are.

A microbatch of n tokens whose documents' squared lengths sum to q takes, in every node, a time that
rises with n as the model's own steps of shorter sequences do, and by a constant for each unit of q
beyond that of short documents: attention is the only operator whose work is not proportional to the
tokens. Both are found by pricing the same job at a few lengths, so operators, launches and
exchanges are those that every other command has.
"""

from collections.abc import Sequence
from functools import cached_property
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

_SHARES = (8, 4, 2, 1)
"""Sequences that are priced, as parts of the whole; documents are the shortest of them."""


class MicrobatchPrices(Struct, frozen=True, kw_only=True, dict=True):
    """Times of the nodes of `batch` at several loads of a microbatch.

    `tokens` are those of a microbatch at each level, ascending; `short_ps` has shape (nodes,
    levels), with documents of `document` tokens; `whole_ps` (nodes,) are the times at the last
    level with one document a sample, of `whole_squares` in all. `rank_tokens` of a microbatch are
    what a rank of cp computes.
    """

    batch: Batch
    tokens: Floats
    document: int
    short_ps: Times
    whole_ps: Times
    whole_squares: float
    samples: int

    @property
    def full_tokens(self) -> int:
        """Capacity of a microbatch, in tokens."""
        return int(self.tokens[-1])

    @cached_property
    def per_square_ps(self) -> Floats:
        """What each unit of squares beyond those of short documents takes, by node."""
        beyond = self.whole_squares - self.full_tokens * self.document
        return (self.whole_ps - self.short_ps[:, -1]) / beyond

    @cached_property
    def attention(self) -> float:
        """Share of a full microbatch's compute that grows with the squares of documents."""
        own = self.microbatch == 0
        total = float(self.whole_ps[own].sum())
        return float(self.per_square_ps[own].sum()) * self.whole_squares / total if total else 0.0

    @cached_property
    def rows(self) -> tuple[Floats, Ints]:
        """Weights of `features` that nodes have, distinct ones, and which of them each node has."""
        priced = np.column_stack((self.short_ps, self.whole_ps))
        first, number = row_numbers(priced)
        short, per_square = self.short_ps[first], self.per_square_ps[first]
        rise = np.diff(short, axis=1) / np.diff(self.tokens)
        # below the shortest sequence that is priced, work shrinks with the tokens of the next one
        start = short[:, 0] - rise[:, 0] * self.tokens[0]
        return np.column_stack((start, rise[:, :1], rise, per_square)), number

    def features(self, tokens: Floats, squares: Floats) -> Floats:
        """What times are linear in, for loads of any shape: (features, ...).

        One, tokens within each level, and squares beyond those of short documents.
        """
        edges = np.concatenate(([0.0], self.tokens))
        edges[-1] = np.inf
        parts = [np.clip(tokens - low, 0.0, high - low) for low, high in pairwise(edges.tolist())]
        busy = (tokens > 0).astype(np.float64)
        return np.stack([busy, *parts, squares - tokens * self.document])

    @cached_property
    def microbatch(self) -> Ints:
        """The microbatch of every node, -1 for what a step does once.

        A message is of the microbatch of the action before it. Of two microbatches that run as
        one the forward's counts.
        """
        program = self.batch.passes.program
        found = np.full(len(program), -1, dtype=np.int64)
        for laid, nodes in zip(self.batch.programs, program.nodes, strict=True):
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
    model: Model, topology: Topology, options: StepOptions, notes: Sequence[str] = ()
) -> MicrobatchPrices:
    """Prices of a model's microbatches at several loads; raises the errors of `make_batch`.

    The plan is that of the whole sequence at every load. Raises PlanError where the sequence is too
    short to be told apart.
    """
    work = make_work(model, topology, options)
    assert work.built is not None
    plan = work.built.plan
    unit = 2 * plan.cp * plan.tp
    lengths = sorted({max(plan.sequence // share // unit, 1) * unit for share in _SHARES[:-1]})
    lengths = [length for length in lengths if length < plan.sequence]
    if not lengths:
        raise PlanError(
            f"sequence is {plan.sequence}: expected at least {2 * unit} tokens to tell short "
            f"documents from long ones with tp {plan.tp} and cp {plan.cp}"
        )
    document = lengths[0]
    held = _held(options, plan)

    def priced(sequence: int, packed: int | None) -> Batch:
        asked = replace(held, sequence=sequence, packed=packed)
        return make_batch(model, topology, asked, notes=notes)

    whole = priced(plan.sequence, None)
    short = [_node_ps(priced(length, document)) for length in (*lengths, plan.sequence)]
    size = plan.microbatch_size
    return MicrobatchPrices(
        batch=whole,
        tokens=np.array([*lengths, plan.sequence], dtype=np.float64) * size,
        document=document,
        short_ps=np.stack(short, axis=1),
        whole_ps=_node_ps(whole),
        whole_squares=float(size) * plan.sequence**2,
        samples=size,
    )


def _held(options: StepOptions, plan: ModelPlan) -> StepOptions:
    """The options with the plan's own degrees and batch, whatever the sequence is."""
    names = ("tp", "cp", "pp", "ep", "npus", "global_batch")
    return replace(options, microbatches=None, **{name: getattr(plan, name) for name in names})


def _node_ps(batch: Batch) -> Times:
    """How long every node takes, in ps."""
    values = batch.lengths(batch.scenarios({}))
    return np.array([int(values[number][0]) for number in batch.passes.program.length])
