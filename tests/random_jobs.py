"""Small random jobs and networks, as Hypothesis strategies: transfers that meet on links."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from helpers import row
from hypothesis import strategies as st
from networks import cabled

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.structs import replace
from stepsim.network.topology import (
    Dimension,
    DimensionKind,
    LinkClass,
    NestedTopology,
    Topology,
)
from stepsim.network.topology.dimension import PLAIN, Library, Protocol
from stepsim.network.topology.listed import ListedTopology
from stepsim.workload.rows import CommOp, Microbatch, Role, Row, StepItem, Work, Workload

TIMES = st.sampled_from([0, 0, 1_000, 70_000, 1_000_000]) | st.integers(0, 2_000_000)
SIZES = st.sampled_from([0, 1, 999, 40_000]) | st.integers(0, 10**5)
KINDS = [kind for kind in CollectiveKind if kind is not CollectiveKind.SEND_RECV]
AXES = {Group.TP: ParallelAxis.TP, Group.STAGE: ParallelAxis.TP, Group.EP: ParallelAxis.EP}
MODEL = list(AXES)
DATA = [Group.DP, Group.DP_EP, Group.STAGE]
GRADIENTS = {"dense": Role.GRADIENTS, "experts": Role.GRADIENTS, "norms": Role.NORM_GRADIENTS}
SCHEDULES = {
    "1f1b": ["eager", "blocking", "overlap"],
    "gpipe": ["eager", "blocking", "overlap"],
    "interleaved:2": ["eager", "overlap"],
    "looped-bfs:2": ["eager", "overlap"],
    "interleaved-zb:2": ["eager", "overlap"],
    "zb-h1": ["eager", "overlap"],
    "zb-v": ["eager", "overlap"],
    "v-half": ["eager", "overlap"],
    "v-min": ["eager", "overlap"],
    "dualpipe": ["eager", "overlap"],
    "dualpipe-v": ["eager", "overlap"],
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A workload and how its pipeline runs."""

    workload: Workload
    schedule: str
    p2p: str
    microbatches: int
    dp_overlap: bool
    dp_bucket: str

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `simulate`."""
        return {
            "schedule": self.schedule,
            "p2p": self.p2p,
            "microbatches": self.microbatches,
            "dp_overlap": self.dp_overlap,
            "dp_bucket": self.dp_bucket,
        }


@st.composite
def comms(draw: st.DrawFn, groups: list[Group]) -> tuple[CommOp, ...]:
    """No collective or one; those of data groups are on the data axis."""
    if draw(st.integers(0, 2)) == 0:
        return ()
    group = draw(st.sampled_from(groups))
    axis = ParallelAxis.DP if groups is DATA else AXES[group]
    kind = draw(st.sampled_from(KINDS))
    return (CommOp(kind=kind, group=group, axis=axis, size_bytes=draw(SIZES)),)


@st.composite
def rows(draw: st.DrawFn, *, reduces: bool = False) -> Row:
    """A row that computes and communicates; `reduces` its gradients by itself."""
    host = st.sampled_from([0, 0, 0, 1]).flatmap(lambda some: TIMES if some else st.just(0))
    reduced = draw(comms(DATA)) if reduces else ()
    return replace(
        row(0, 0),
        forward=Work(
            compute_ps=draw(TIMES), comms=draw(comms(MODEL)), host_ps=draw(host), wait_ps=draw(host)
        ),
        input_grad=Work(compute_ps=draw(TIMES), comms=draw(comms(MODEL)), host_ps=draw(host)),
        weight_grad=Work(
            compute_ps=draw(TIMES), comms=reduced, host_ps=draw(host), wait_ps=draw(host)
        ),
        recompute=draw(st.integers(0, 9)) == 0,
        forward_lag=draw(st.sampled_from([0, 0, 0, 1])),
    )


@st.composite
def step_items(draw: st.DrawFn, name: str) -> StepItem:
    """Gradients reduced once per step, after the pipeline, by up to two collectives."""
    work = Work(compute_ps=draw(TIMES), comms=(*draw(comms(DATA)), *draw(comms(DATA))))
    return StepItem(name=name, phase=Phase.WEIGHT_GRAD, work=work, role=GRADIENTS[name])


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to 24 ranks, one or two different microbatches, gradients to reduce after the pipeline."""
    tp, dp, pp = (draw(st.sampled_from(sizes)) for sizes in ([1, 2, 3], [1, 2, 4], [1, 2, 2]))
    ep = draw(st.sampled_from([e for e in (1, 2, 4) if (tp * dp) % e == 0]))
    shared = draw(st.sampled_from([1, None])) if dp % ep == 0 else 1
    reduces = draw(st.booleans())
    layers = draw(st.integers(2, 3))
    blocks = [
        Microbatch(
            embedding=tuple(draw(st.lists(rows(), max_size=1))),
            layers=tuple((draw(rows(reduces=reduces)),) for _ in range(layers)),
            head=(),
        )
        for _ in range(draw(st.integers(1, 2)))
    ]
    ends = draw(st.lists(st.sampled_from(list(GRADIENTS)), max_size=2, unique=True))
    return Workload(
        source="random",
        degrees=degrees_of(tp=tp, ep=ep, pp=pp),
        expert_tp=shared,
        npus=tp * dp * pp,
        pp_comm_bytes=draw(SIZES),
        microbatches=tuple(blocks),
        per_step=tuple(draw(step_items(name)) for name in ends),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A workload with a schedule and a mode that are defined for it."""
    workload = draw(workloads())
    pp = workload.degrees["pp"]
    names = [name for name in SCHEDULES if name != "dualpipe" or pp % 2 == 0]
    schedule = draw(st.sampled_from(names))
    return Job(
        workload=workload,
        schedule=schedule,
        p2p=draw(st.sampled_from(SCHEDULES[schedule])),
        microbatches=pp * draw(st.sampled_from([2, 4])),
        dp_overlap=draw(st.booleans()),
        dp_bucket=draw(st.sampled_from(["1 B", "20 KB", "1 GB"])),
    )


@st.composite
def circumstances(draw: st.DrawFn, job: Job) -> dict[str, Any]:
    """Stragglers, host times and contention, as keyword arguments of `simulate`."""
    npus = job.workload.npus or 1
    slow = st.dictionaries(
        st.integers(0, npus - 1), st.sampled_from([1.1, 1.3, 2, 0.5]), min_size=1, max_size=3
    )
    times = st.sampled_from(["1 ns", "70 ns", "1 us"])
    drawn: dict[str, Any] = {"contention": draw(st.sampled_from(["none", "siblings", "fair"]))}
    for name in ("host_overhead", "get_batch", "loss_time"):
        if draw(st.booleans()):
            drawn[name] = draw(times)
    if draw(st.booleans()):
        drawn["slow"] = ",".join(f"{rank}:{factor}" for rank, factor in draw(slow).items())
    return drawn


@st.composite
def link_classes(draw: st.DrawFn, name: str) -> LinkClass:
    """From slow to infinitely fast."""
    return LinkClass(
        name=name,
        bandwidth=draw(st.sampled_from([1e9, 5e10, 7e10, 4.5e11, float("inf")])),
        latency_ps=draw(st.sampled_from([0, 0, 500, 70_000])),
        endpoint_latency_ps=draw(st.sampled_from([0, 0, 2_700])),
    )


@st.composite
def libraries(draw: st.DrawFn) -> Library:
    """None, or two protocols on the links `inner` and `outer`."""
    rates = st.sampled_from([1.0, 0.3, 0.07])

    def protocol(name: str, *algorithms: str) -> Protocol:
        return Protocol(
            name=name,
            algorithms=algorithms,
            launch_ps=draw(st.sampled_from([0, 5_000])),
            steps_ps={"inner": draw(st.sampled_from([0, 700])), "outer": 90_000},
            rates={"inner": draw(rates), "outer": draw(rates)},
            copy_bandwidth=draw(st.sampled_from([1e9, 7e11, float("inf")])),
        )

    if draw(st.booleans()):
        return PLAIN
    ring = protocol("LL", "ring")
    every = protocol("Simple")
    reach = draw(st.sampled_from([(), (("outer", 1),)]))
    return Library(protocols=(ring, every), reach=reach)


@st.composite
def nested(draw: st.DrawFn) -> NestedTopology:
    """Two dimensions of any kind; a job of 24 ranks fits."""
    kinds = st.sampled_from(list(DimensionKind))
    size = draw(st.sampled_from([2, 3, 4, 5]))
    return NestedTopology(
        name="random",
        source="test",
        dimensions=(
            Dimension(kind=draw(kinds), size=size, link=draw(link_classes("inner"))),
            Dimension(kind=draw(kinds), size=-(-24 // size), link=draw(link_classes("outer"))),
        ),
        launch_latency_ps=draw(st.sampled_from([0, 6_600])),
        library=draw(libraries()),
    )


@st.composite
def flat(draw: st.DrawFn) -> NestedTopology:
    """One dimension of any kind."""
    kind = draw(st.sampled_from(list(DimensionKind)))
    link = draw(link_classes("link"))
    dimensions = (Dimension(kind=kind, size=draw(st.sampled_from([24, 25])), link=link),)
    return NestedTopology(name="random", source="test", dimensions=dimensions)


@st.composite
def listed(draw: st.DrawFn) -> ListedTopology:
    """Nodes of NPUs on leaves, some leaves joined directly, all of them by up to three spines."""
    per_leaf = draw(st.sampled_from([2, 3, 4]))
    leaves = [f"leaf{i}" for i in range(24 // per_leaf)]
    cables = [(f"npu{i}", leaves[i // per_leaf], 0) for i in range(24)]
    spines = [f"spine{i}" for i in range(draw(st.integers(1, 3)))]
    cables += [(leaf, spine, 1) for leaf in leaves for spine in spines]
    pairs = list(combinations(leaves[:4], 2))
    cables += [(*pair, 1) for pair in draw(st.lists(st.sampled_from(pairs), max_size=2))]
    classes = draw(link_classes("down")), draw(link_classes("up"))
    return cabled(24, cables, classes, node_size=per_leaf)


def networks() -> st.SearchStrategy[Topology]:
    """Every kind of network."""
    return st.one_of(flat(), nested(), listed())
