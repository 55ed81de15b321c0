"""How long the nodes of a job take, by what the documents of their microbatch are.

A microbatch of n tokens whose documents' squared lengths sum to q costs attention what documents of
q / n tokens do: attention is the only operator whose work is not proportional to the tokens. So in
every node its time is that of a sequence of n tokens filled with such documents. The same job is
priced at a few sequences, each filled with documents of these lengths, so operators, launches and
exchanges are those that every other command has; between them times are drawn as straight lines,
for what the host hides of attention at one length shows at another. What a tower for images sees is
the model's share of a microbatch's tokens.

Where ranks share documents as a packer likes, not by a degree for all of them, each rank of a
context-parallel group is a rank of its own, with its part of the sequence as its limit. What a
document over several ranks takes is found by pricing the job in which all have as many.
"""

from functools import cache, cached_property, reduce
from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Floats, Ints, row_numbers, slices
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun, replace
from stepsim.core.task_table import columns_of
from stepsim.explore.batch.columns import ColumnNode, NodeColumns, NodeTimes
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.files.asked import StepInputs
from stepsim.network.prices import Known
from stepsim.parallel.packers import BatchShape
from stepsim.run.spans import UNKNOWN
from stepsim.step.job import held_degrees, job_of
from stepsim.step.plans import powers
from stepsim.workload.model.choices import ContextParallelKind
from stepsim.workload.model.model import Model

# Ranks times steps that are evaluated together, so that what is in use fits the cache.
_AT_ONCE = 1 << 15
SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
"""Sequences that are priced, and lengths of their documents, as shares of the whole."""


class MicrobatchPrices(Noun, eq=False, dict=True):
    """What the nodes of `batch` take at any load of a microbatch, and steps of such loads.

    `tokens` are those of a microbatch at each level that was priced, ascending, `documents` the
    lengths there of documents that fill it. A node's time is linear in `features`: `weights` has
    the distinct rows, and `row` is that of every node. `whole_ps` are the nodes' times with one
    document a sample, `microbatch` their microbatches, -1 for what a step does once. `attention` is
    the share of a full microbatch's compute that grows with the squares of documents. `inputs` are
    those of the job, with all degrees of its plan. `sharing` is that of `BatchShape`.
    """

    batch: Batch
    tokens: Floats
    documents: Floats
    weights: Floats
    row: Ints
    whole_ps: Ints
    microbatch: Ints
    attention: float
    inputs: StepInputs
    sharing: tuple[tuple[float, float], ...] = ((1.0, 0.0),)

    @property
    def full_tokens(self) -> int:
        """Capacity of a microbatch, in tokens."""
        return int(self.tokens[-1])

    def shape(self, steps: int) -> BatchShape:
        """So many steps of such microbatches, as packers fill them."""
        plan = self.batch.job.graph.plan
        return BatchShape(
            ranks=plan.dp,
            microbatches=plan.microbatches,
            count=plan.microbatch_size,
            full_tokens=self.full_tokens,
            steps=steps,
            attention=self.attention,
            sharing=self.sharing,
            stages=plan.pp,
        )

    def of_documents(self, mean: float) -> "MicrobatchPrices":
        """The same of steps with as many samples as documents of a `mean` length fill here."""
        times = max(round(float(self.documents[-1]) / mean), 1)
        batch = times * (self.inputs.options.global_batch or 1)
        return microbatch_prices(self.inputs.asking(global_batch=batch))

    def features(self, tokens: Floats, squares: Floats) -> Floats:
        """What times are linear in, for loads of any shape: (features, ...).

        Of each level its share of a load between two, times 1 and the part of its documents' length
        that lies between every two lengths. For example at levels of 1, 2 and 4 tokens a load of 3
        tokens, one document, is half of both upper levels: 1/2, 1/2 and 1/2 of each of them.
        """
        below = np.clip(np.searchsorted(self.tokens, tokens) - 1, 0, len(self.tokens) - 2)
        low, high = self.tokens[below], self.tokens[below + 1]
        passed = (tokens - low) / (high - low)
        length = np.divide(squares, tokens, out=np.zeros_like(squares), where=tokens > 0)
        busy = (tokens > 0).astype(np.float64)
        edges = [-np.inf, *self.documents[1:-1].tolist(), np.inf]
        longer = [
            np.clip(length, least, most) - start
            for start, (least, most) in zip(self.documents, pairwise(edges), strict=False)
        ]
        parts = [busy, *(busy * each for each in longer)]
        levels = (
            np.where(below == level, 1 - passed, 0.0) + np.where(below + 1 == level, passed, 0.0)
            for level in range(len(self.tokens))
        )
        return np.stack([share * part for share in levels for part in parts])

    def step_ps(self, features: Floats) -> Ints:
        """Step time of every step in ps, of features of shape (features, steps, ranks, ...)."""
        at_once = max(_AT_ONCE // features.shape[2], 1)
        found = []
        for part in slices(features.shape[1], at_once):
            some = features[:, part]
            took = self._durations(some.transpose(0, 2, 1, 3))
            found.append(self._columns.step_time_ps(took, some.shape[1]))
        return np.concatenate(found)

    def _durations(self, features: Floats) -> NodeTimes:
        """What nodes take in steps of given loads.

        `features` have shape (features, replicas, steps, microbatches). Nodes that are alike have
        the same times in a microbatch, which are kept: 1,000 steps of 1,024 GPUs take 3.9 s so,
        and 13.1 s without.
        """

        @cache
        def of_row(row: int, microbatch: int) -> Ints:
            """Of a row of the prices with the load of a microbatch: (replicas, steps)."""
            value: Floats = np.einsum("f,frs->rs", self.weights[row], features[:, :, :, microbatch])
            return np.maximum(np.rint(value), 0.0).astype(np.int64)

        def of_actor(node: int, actor: int) -> Ints:
            """Of a node as the replicas of an actor would have it: of all, or one for all."""
            microbatch = self.microbatch.item(node)
            if microbatch < 0:
                return self.whole_ps[node : node + 1, None]
            own, (replicas, _) = of_row(self.row.item(node), microbatch), self.replicas[actor]
            alike = len(own) in (1, len(replicas))  # one for all, or one for each in order
            return own if alike else own[replicas]

        def took(node: ColumnNode) -> Ints:
            """A transfer takes in every group as long as its member with most to send."""
            latest = [
                place.latest(of_actor(node.node, actor), node.width)
                for actor, place in node.places.items()
            ]
            return reduce(np.maximum, latest or [of_actor(node.node, node.actor)])

        return took

    @cached_property
    def replicas(self) -> list[tuple[Ints, Ints]]:
        """Data-parallel replicas that every actor has, and one of its ranks in each.

        Kept: 200 steps of llama-3-8b with lengths on 64 GPUs take 3.2 s, else 4.4.
        """
        plan, found = self.batch.job.graph.plan, []
        replica = np.arange(plan.npus) % plan.stage_ranks // (plan.tp * plan.cp)
        for actor in range(len(self.batch.actors)):
            ranks = np.flatnonzero(self.batch.actors.actor_of == actor)
            replicas, first = np.unique(replica[ranks], return_index=True)
            found.append((replicas, ranks[first]))
        return found

    @cached_property
    def _columns(self) -> NodeColumns:
        """The nodes of the job with a column for each of these ranks: kept 3.2 s, else 3.6."""
        return NodeColumns(self.batch, [ranks for _, ranks in self.replicas])


def _weights(tokens: Floats, documents: Floats, priced_ps: Ints) -> Floats:
    """Weights of `MicrobatchPrices.features`, a row per node.

    `priced_ps` has what nodes take of shape (nodes, levels, documents), as far as documents fit a
    level. Where they do not, a level's time rises with their length as that of the next one does,
    by its share of the tokens.
    """
    rises = np.diff(priced_ps, axis=2) / np.diff(documents)
    for level in range(len(tokens) - 2, -1, -1):
        share = tokens[level] / tokens[level + 1]
        rises[:, level, level:] = rises[:, level + 1, level:] * share
    found = np.concatenate((priced_ps[:, :, :1], rises), axis=2)
    return np.asarray(found.reshape(len(found), -1))


def _node_microbatches(batch: Batch) -> Ints:
    """The microbatch of every node, -1 for what a step does once.

    Of two microbatches that run as one the forward's counts.
    """
    found, graph = np.full(len(batch.flat), UNKNOWN), batch.job.graph
    for tasks, nodes in zip(batch.flat.programs, batch.flat.node_of, strict=True):
        own = columns_of(tasks, graph, {})["microbatch"]
        found[nodes[own >= 0]] = own[own >= 0]
    return found


def microbatch_prices(job: StepInputs) -> MicrobatchPrices:
    """Prices of a model's microbatches at several loads; raises the errors of `make_batch`.

    The plan is that of the whole sequence at every load. Every task is a node of its own where
    replicas meet within an action. Raises PlanError for a workload file, and where the sequence is
    too short to be told apart.
    """
    model = job.workload
    if not isinstance(model, Model):
        raise PlanError(
            f"{model.source}: lengths need a model: no other file says what of its compute is "
            "attention"
        )
    unsaid, _ = held_degrees(job)
    job = job.asking(**unsaid)
    plan = job_of(job).plan
    unit = 2 * plan.cp * plan.tp
    lengths = sorted({max(int(plan.sequence * share) // unit, 1) * unit for share in SHARES[:-1]})
    lengths = [*(length for length in lengths if length < plan.sequence), plan.sequence]
    if len(lengths) < 2:
        raise PlanError(
            f"sequence is {plan.sequence}: expected at least {2 * unit} tokens to tell short "
            f"documents from long ones with tp {plan.tp} and cp {plan.cp}"
        )
    names = ("tp", "cp", "pp", "ep", "npus", "global_batch", "microbatch_size")
    job = job.asking(microbatches=None, **{name: getattr(plan, name) for name in names})

    def priced(sequence: int, packed: int, *, whole: bool, known: Known | None = None) -> Batch:
        asked = job.asking(sequence=sequence, packed=packed)
        asked = replace(asked, workload=_with_images(model, sequence / plan.sequence))
        return make_batch(asked, coalesce=whole, known=known)

    batch, whole = priced(plan.sequence, plan.sequence, whole=True), True
    if _replicas_meet(batch):
        batch, whole = priced(plan.sequence, plan.sequence, whole=False), False
    size, whole_ps, microbatch = plan.microbatch_size, batch.planned_ps(), _node_microbatches(batch)
    documents = np.array(lengths, np.float64)
    tokens, known = documents * size, batch.job.prices.known
    priced_ps = np.zeros((len(whole_ps), len(lengths), len(lengths)), np.int64)
    priced_ps[:, -1, -1] = whole_ps
    for level, length in enumerate(lengths):
        for number, document in enumerate(lengths[: level + 1]):
            if document < plan.sequence:
                other = priced(length, document, whole=whole, known=known)
                if len(other.flat) != len(batch.flat):
                    raise PlanError(
                        f"documents of {document} tokens wait for the host where whole sequences "
                        "do not, inside actions whose replicas meet: expected cuda_graph, which "
                        "waits for no host, or other degrees"
                    )
                priced_ps[:, level, number] = other.planned_ps()
    whole_squares = float(size) * plan.sequence**2
    short_ps = priced_ps[:, -1, 0]
    per_square_ps = (whole_ps - short_ps) / (whole_squares - tokens[-1] * documents[0])
    # nodes of one row are alike in every price, so that they share what is computed of them
    first, row = row_numbers(priced_ps.reshape(len(whole_ps), -1))
    full, own = float(whole_ps[microbatch == 0].sum()), per_square_ps[microbatch == 0]
    return MicrobatchPrices(
        batch=batch,
        tokens=tokens,
        documents=documents,
        weights=_weights(tokens, documents, priced_ps[first]),
        row=row,
        whole_ps=whole_ps,
        microbatch=microbatch,
        attention=float(own.sum()) * whole_squares / full if full else 0.0,
        inputs=job.asking(sequence=plan.sequence),
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
        for laid in batch.flat.programs
        for number in laid.times
        for comm in graph.task_lists[number].comms
    }
    replica = graph.plan.tp * graph.plan.cp
    return any(graph.plan.span(group)[1] > replica for group in groups)


def spread_prices(prices: MicrobatchPrices, longest: int) -> MicrobatchPrices:
    """The prices of the same ranks without a degree for all documents, none longer than `longest`.

    Raises the errors of `microbatch_prices`.
    """
    usual = prices.batch.job.graph.plan.cp
    if usual > 1:
        prices = microbatch_prices(_with_degree(prices.inputs, 1, usual))
    plan = prices.batch.job.graph.plan
    tokens = np.full((1, 1, plan.microbatches), float(prices.full_tokens))
    document, *_, limit = prices.documents.astype(int).tolist()

    def alone_ps(length: int) -> int:
        """A step of one rank's documents of this length, whatever its limit is."""
        return int(prices.step_ps(prices.features(tokens, tokens * length))[0])

    short = alone_ps(document)
    per_token = (alone_ps(limit) - short) / (limit - document)
    if per_token <= 0:  # the host is slower than attention: nothing grows with a document's length
        return prices
    sharing = [(1.0, 0.0)]
    most = 2 * max(usual, -(-longest // limit))
    # up to the first that no document needs more than
    for degree in (n for n in powers(most - 1) if n > 1 and plan.dp % n == 0):
        job = _with_degree(prices.inputs, degree, 1)
        whole = limit * degree
        packed = int(whole * SHARES[0])  # documents as short as in the prices of that job
        low, high = (
            document + (_planned_ps(job.asking(packed=length)) - short) / per_token
            for length in (packed, None)
        )
        times = (high - low) / (whole - packed)
        sharing.append((times, low - times * packed))
    return replace(prices, sharing=tuple(sharing))


def _with_degree(job: StepInputs, cp: int, before: int) -> StepInputs:
    """The job with another degree of context parallelism, and as many tokens on each rank."""
    options = job.options
    assert options.sequence is not None
    assert options.global_batch is not None
    return job.asking(
        cp=cp,
        sequence=options.sequence // before * cp,
        global_batch=options.global_batch * before // cp,
    )


def _planned_ps(job: StepInputs) -> int:
    """The step of a job; by a ring where heads cannot be shared out."""
    try:
        batch = make_batch(job)
    except PlanError:
        if job.options.cp_comm is ContextParallelKind.RING:
            raise
        batch = make_batch(job.asking(cp_comm=ContextParallelKind.RING))
    return batch.step_times([{}])[0]
