"""Print docs/context_accuracy.md: rings, gathers and all-to-alls of heads against measured jobs.

    python benchmarks/accuracy_context.py ../shared/reference/batches/context_parallel.csv

Each row is a job at some degree of context parallelism. What is compared is how much longer it
takes than the row that it is held against: with all-to-alls of heads at the same degree, else
without context parallelism. No constant was set on these rows.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.asked import StepInputs
from stepsim.files.load import read_model, topology_of
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.run.spans import TaskKind, TaskPhase
from stepsim.step.prepared import prepare
from stepsim.workload.model.architecture import Architecture, DenseMlp, GroupedAttention, Layer
from stepsim.workload.model.choices import ContextParallelKind, Recompute
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.model import Model

RING_FLASH = ContextParallel(
    kernels_at_once=1,
    merge_bytes=10,
    sum_bytes=10,
    gradient_bytes=4,
    returns_gradients=True,
    hop_ps=200_000_000,
)
"""zhuzilin/ring-flash-attention, zigzag_ring_flash_attn.py 0fc25b46: one kernel at a time, sums in
fp32, gradients sent in fp32 and once more than there are hops; launches as those of eager torch."""
METHODS = MappingProxyType(
    {
        "none": None,
        "ulysses": ContextParallelKind.ALL_TO_ALL,
        "ring": ContextParallelKind.RING,
    }
)
"""What the table calls ways to share a sequence."""
HEAD = """# Accuracy of context parallelism

Made by `python benchmarks/accuracy_context.py ../shared/reference/batches/context_parallel.csv`.

A row says how much longer a job takes than the same job with all-to-alls of heads (`ulysses`), or
than that without context parallelism. No constant was set on these rows. What each library does
is read from its code.

- **primerl2418**: the source runs fewer layers than the model has, and does not say how many. Its
  ring gathers keys and values head by head, and its ranks have one piece of the sequence each.
- **primerl2424**: the GPU is not stated: H200.
- **easyctx37**: neither model nor sequence is stated: llama-2-7b, and three sequences.
- **usp40**: the forward of attention alone; the GPU is not stated: A100. Each rank has a piece of
  8,192 tokens, and the ring has no balance.
"""


class Job(Struct, frozen=True, kw_only=True):
    """What the rows of a source ran: a model on GPUs of a topology, and the library's attention."""

    model: str
    topology: str
    device: str
    npus: int
    global_batch: int
    framework: str
    sequences: tuple[int, ...] = ()
    context: ContextParallel | None = None


JOBS: Mapping[str, Job] = MappingProxyType(
    {
        "primerl2418": Job(
            model="glm-4.5-air",
            topology="hgx-h200",
            device="h200",
            npus=8,
            global_batch=8,
            framework="prime-rl",
        ),
        "primerl2424": Job(
            model="nemotron-3-super-120b-a12b",
            topology="hgx-h200",
            device="h200",
            npus=32,
            global_batch=32,
            framework="prime-rl",
        ),
        "easyctx37": Job(
            model="llama-2-7b",
            topology="hgx-a100",
            device="a100-80gb",
            npus=8,
            global_batch=1,
            framework="torch-fsdp-eager",
            sequences=(65536, 131072, 262144),
            context=RING_FLASH,
        ),
        "usp40": Job(
            model="",
            topology="hgx-a100",
            device="a100-80gb",
            npus=8,
            global_batch=2,
            framework="torch-fsdp-eager",
            sequences=(65536,),
            context=replace(RING_FLASH, balanced=False),
        ),
    }
)
"""The jobs of the table, with what their sources leave open."""


class ContextRun(Struct, frozen=True, kw_only=True):
    """A row: how many times as long a job takes as with the method that it is held against."""

    case: str
    sequence: int
    cp: int
    method: str
    against: str
    predicted_s: float
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted / self.measured - 1


def seconds(job: Job, sequence: int, cp: int, method: str) -> float:
    """A step of a job, or of one without a model the forward of its attention, in seconds."""
    framework = read_framework(job.framework)
    options = StepOptions(
        npus=job.npus,
        cp=cp,
        cp_comm=METHODS[method],
        tp=1,
        pp=1,
        sequence=sequence,
        global_batch=job.global_batch,
        device=read_device(job.device),
        framework=replace(framework, context=job.context or framework.context),
    )
    topology = topology_of(job.topology)
    if not job.model:
        return attention_s(topology, replace(options, microbatch_size=job.global_batch))
    options = replace(options, recompute=Recompute.FULL)
    model = read_model(job.model)
    return prepare(StepInputs(model, topology, options), quick=True).step_time_ps() / PS_PER_S


def attention_s(topology: Topology, options: StepOptions) -> float:
    """The forward of one layer's attention of 8 heads of 128, between its products."""
    attention = GroupedAttention(heads=8, kv_heads=8, head_dim=128)
    layer = Layer(attention=attention, mlp=DenseMlp(width=128))
    model = Architecture(name="attention", hidden=1024, vocabulary=128, layers=(layer,))
    step = prepare(StepInputs(Model(source="", architecture=model), topology, options)).simulated()
    spans = next(step.timeline.spans([0]))
    forward = (spans.kind == TaskKind.COMPUTE) & (spans.phase == TaskPhase.FORWARD)
    names = [spans.names[i] for i in spans.name[forward].tolist()]
    begin = int(spans.end_ps[forward][names.index("qkv")])
    end = int(spans.start_ps[forward][names.index("attention")])
    return (end - begin) / PS_PER_S


def times(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, int, int, str], float]:
    """What each row took, by case, sequence, degree and method; of a ratio 1 for the other."""
    known: dict[tuple[str, int, int, str], float] = {}
    for row in rows:
        value, cp, methods = float(row["value"]), int(row["cp"] or 8), row["method"].split(" / ")
        sequences = JOBS[row["case"]].sequences or (int(row["seq"]),)
        for sequence in sequences:
            job = row["case"], sequence, cp
            known[*job, methods[0]] = 1 / value if "tok/s" in row["unit"] else value
            if len(methods) > 1:
                known[*job, methods[0]], known[*job, methods[1]] = 1.0, value
    return known


def context_runs(path: Path) -> Iterator[ContextRun]:
    """All rows that another row of their case can be held against."""
    with path.open() as file:
        known = times(csv.DictReader(file))
    for (case, sequence, cp, method), measured in known.items():
        other_cp, against = (cp, "ulysses") if method == "ring" else (1, "none")
        if method == against or (case, sequence, other_cp, against) not in known:
            continue
        job = JOBS[case]
        took = seconds(job, sequence, cp, method)
        yield ContextRun(
            case=case,
            sequence=sequence,
            cp=cp,
            method=method,
            against=against,
            predicted_s=took,
            measured=measured / known[case, sequence, other_cp, against],
            predicted=took / seconds(job, sequence, other_cp, against),
        )


def table(runs: Iterable[ContextRun]) -> Iterator[str]:
    """A line of a Markdown table for each row."""
    yield "| case | sequence | cp | method | against | measured | predicted | error | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for run in runs:
        yield (
            f"| {run.case} | {run.sequence:,} | {run.cp} | {run.method} | {run.against} | "
            f"{run.measured:.2f} | {run.predicted:.2f} | {run.error:+.0%} | {run.predicted_s:.4g} |"
        )


def main() -> None:
    """Print the page."""
    print(HEAD)
    print("\n".join(table(context_runs(Path(sys.argv[-1])))))


if __name__ == "__main__":
    main()
