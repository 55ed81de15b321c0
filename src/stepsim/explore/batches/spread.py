"""Prices of a job whose ranks share documents as a packer likes, not by a degree for all of them.

Each rank of a context-parallel group is a rank of its own then, with its part of the sequence as
its limit. What a document over several ranks takes is found by pricing the job in which all have
as many.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.explore.batch.evaluation import make_batch
from stepsim.explore.batches.prices import SHARES, MicrobatchPrices, microbatch_prices
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.workload.model.choices import ContextParallelKind
from stepsim.workload.model.model import Model

StepTimes = Callable[[MicrobatchPrices, Floats], Ints]
"""Step times of a job with features of its microbatches, of shape (features, steps, ranks, ...)."""


def spread_prices(
    model: Model,
    topology: Topology,
    prices: MicrobatchPrices,
    longest: int,
    step_ps: StepTimes,
    notes: Sequence[str] = (),
) -> MicrobatchPrices:
    """The prices of the same ranks without a degree for all documents, none longer than `longest`.

    Raises the errors of `microbatch_prices`.
    """
    usual = prices.batch.job.graph.plan.cp
    if usual > 1:
        alone = with_degree(prices.options, 1, usual)
        prices = microbatch_prices(model, topology, alone, notes)
    plan = prices.batch.job.graph.plan
    tokens = np.full((1, 1, plan.microbatches), float(prices.full_tokens))
    document, limit = int(prices.documents[0]), prices.full_tokens // prices.samples

    def alone_ps(length: int) -> int:
        """A step of one rank's documents of this length, whatever its limit is."""
        return int(step_ps(prices, prices.features(tokens, tokens * length))[0])

    short = alone_ps(document)
    per_token = (alone_ps(limit) - short) / (limit - document)
    if per_token <= 0:  # the host is slower than attention: nothing grows with a document's length
        return prices
    sharing = [(1.0, 0.0)]
    for degree in _degrees(plan.dp, max(usual, -(-longest // limit))):
        job = with_degree(prices.options, degree, 1)
        whole = limit * degree
        packed = int(whole * SHARES[0])  # documents as short as in the prices of that job
        low, high = (
            document + (_planned_ps(model, topology, job, length, notes) - short) / per_token
            for length in (packed, None)
        )
        times = (high - low) / (whole - packed)
        sharing.append((times, low - times * packed))
    return replace(prices, sharing=tuple(sharing))


def _degrees(ranks: int, most: int) -> Iterator[int]:
    """Powers of two from 2 that divide the ranks, up to the first that is no less than `most`."""
    degree = 2
    while ranks % degree == 0 and degree < 2 * most:
        yield degree
        degree *= 2


def with_degree(options: StepOptions, cp: int, before: int) -> StepOptions:
    """The options with another degree of context parallelism, and as many tokens on each rank."""
    assert options.sequence is not None
    assert options.global_batch is not None
    return replace(
        options,
        cp=cp,
        sequence=options.sequence // before * cp,
        global_batch=options.global_batch * before // cp,
    )


def _planned_ps(
    model: Model,
    topology: Topology,
    options: StepOptions,
    packed: int | None,
    notes: Sequence[str],
) -> int:
    """The step with documents of `packed` tokens; by a ring where heads cannot be shared out."""
    options = replace(options, packed=packed)
    try:
        batch = make_batch(model, topology, options, notes=notes)
    except PlanError:
        if options.cp_comm is ContextParallelKind.RING:
            raise
        ring = replace(options, cp_comm=ContextParallelKind.RING)
        batch = make_batch(model, topology, ring, notes=notes)
    return int(batch.evaluate({}).step_time_ps[0])
