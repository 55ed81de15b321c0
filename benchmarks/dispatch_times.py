"""How long DeepEP's kernels take to bring tokens to their experts and back, against measured times.

    python benchmarks/dispatch_times.py ../shared/reference/kernels/moe_dispatch.csv

Rows are kernels of DeepEP's normal mode in one node, of ai-dynamo/aiconfigurator: 8 bits to the
experts, 16 back. Prints a kernel's constants as set on H100 and H200 alone, which are those of
`stepsim.workload.model.dispatch`, then errors of what stepsim predicts with its own on each GPU,
and last those of the rates that deepseek-ai/DeepEP prints of HybridEP.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind
from stepsim.files.load import topology_of
from stepsim.step.model_plan import interconnect_of
from stepsim.workload.model.architecture import ExpertMlp
from stepsim.workload.model.choices import ExpertDispatch
from stepsim.workload.model.dispatch import ExpertWay, reached
from stepsim.workload.plan import Plan, PlanTable

NODES = {"H100": 8, "H200": 8, "B200": 8, "GB200": 4}
"""GPUs of a node, which the table does not print: those of its machine, of GB200 of a tray."""
TOPOLOGIES = {"H100": "hgx-h100", "H200": "hgx-h200", "B200": "hgx-b200", "GB200": "gb200-nvl72"}
SETTING = ("H100", "H200")
WAYS = {"dispatch": "to", "combine": "back"}

HYBRID = (  # GPU, ranks, then GB/s with 4,096 tokens of 7,168, 8 experts of 8 on each rank
    *(("GB200", 8, (713.98, 764.03, 737.13)), ("GB200", 16, (650.48, 706.95, 666.26))),
    *(("GB200", 24, (577.96, 665.97, 639.80)), ("GB200", 32, (538.86, 642.23, 605.15))),
    *(("GB200", 36, (489.27, 632.31, 596.99)), ("B200", 8, (599.27, 734.95, 673.84))),
    *(("H100", 16, (68.48, 71.71, 62.95)), ("H100", 32, (55.35, 57.69, 57.46))),
    ("H100", 64, (46.52, 49.97, 49.77)),
)
"""docs/README_Hybrid-EP.md of deepseek-ai/DeepEP 41cad944, kernels alone: 8 and 16 bits there, and
back; with 32 SMs on GB200, 16 on the others. Of several nodes the rate is of bytes between them."""


class Case(NamedTuple):
    """A kernel on a GPU: its tokens, their experts and width, and the seconds that it took."""

    gpu: str
    ranks: int
    mlp: ExpertMlp
    hidden: int
    tokens: int
    way: str
    dispatch: ExpertDispatch
    seconds: float

    @property
    def size(self) -> float:
        """Bytes of a copy of every token for each of its experts."""
        element = self.dispatch.element_bytes if self.way == "to" else 2.0
        return self.tokens * self.mlp.top_k * self.hidden * element

    def predicted(self) -> float:
        """Seconds by the closed form: the network's, or those of the kernel, whichever is more."""
        network = interconnect_of(topology_of(TOPOLOGIES[self.gpu]).fit(self.ranks))
        plan = Plan.of_batch(
            dp=self.ranks,
            ep=self.ranks,
            expert_tp=1,
            global_batch=self.ranks,
            sequence=self.tokens,
            dispatch=self.dispatch,
        )
        columns = PlanTable([plan])
        way, size = ExpertWay(routing=self.mlp, name=self.way), np.array([self.size])
        sent, least, _ = way.asks(size, columns, network.domain, network.inner)
        taken = network.seconds(CollectiveKind.ALL_TO_ALL, sent, columns.ep, columns.expert_tp)
        return float(np.maximum(taken, least)[0])


def read_cases(path: Path) -> Iterator[Case]:
    """The rows of DeepEP's normal kernels."""
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["backend"] != "deepep_normal":
                continue
            way = WAYS[row["phase"]]
            yield Case(
                gpu=row["gpu"],
                ranks=NODES[row["gpu"]],
                mlp=ExpertMlp(experts=int(row["experts"]), top_k=int(row["topk"]), width=64),
                hidden=int(row["hidden"]),
                tokens=int(row["tokens_per_gpu"]),
                way=way,
                dispatch=ExpertDispatch.DEEPEP_FP8,
                seconds=float(row["us"]) / 1e6,
            )


def hybrid_cases() -> Iterator[Case]:
    """The published rates as seconds: bytes of all copies, of one for each node, over the rate."""
    kinds = (ExpertDispatch.HYBRIDEP_FP8, ExpertDispatch.HYBRIDEP, ExpertDispatch.HYBRIDEP)
    for gpu, ranks, rates in HYBRID:
        mlp = ExpertMlp(experts=8 * ranks, top_k=8, width=64)
        places = ranks / 8 if gpu == "H100" else ranks
        for way, dispatch, rate in zip(("to", "to", "back"), kinds, rates, strict=True):
            found = Case(gpu, ranks, mlp, 7168, 4096, way, dispatch, 0.0)
            copies = float(reached(mlp, np.array([places]))[0])
            yield found._replace(seconds=found.size / 8 * copies / rate / 1e9)


def constants(cases: Sequence[Case]) -> Floats:
    """Start, ps of a token and of a byte of its copies: least relative errors, none negative."""
    measured = np.array([case.seconds for case in cases])
    copies = np.array([float(reached(c.mlp, np.array([c.ranks]))[0]) for c in cases])
    sizes = np.array([case.size / case.mlp.top_k for case in cases]) * copies
    columns = [np.ones(len(cases)), np.array([float(case.tokens) for case in cases]), sizes]
    parts = np.stack(columns, axis=1) / measured[:, None]
    scale = parts.mean(axis=0)
    found, _ = nnls(parts / scale, np.ones(len(cases)))
    return np.asarray(found / scale * 1e12)


def lines(cases: Iterable[Case], name: str) -> Iterator[str]:
    """Errors of one GPU and way: predicted over measured, minus 1."""
    errors = np.array([case.predicted() / case.seconds - 1 for case in cases])
    middle, most = np.quantile(np.abs(errors), [0.5, 0.9])
    yield f"{name:30} {len(errors):4} {middle:7.1%} {most:7.1%} {errors.mean():+7.1%}"


def main() -> None:
    """Print constants and errors."""
    cases = list(read_cases(Path(sys.argv[-1])))
    for way in WAYS.values():
        own = [case for case in cases if case.gpu in SETTING and case.way == way]
        start, token, size = constants(own)
        print(
            f"deepep {way:5} start {start / 1e6:.1f} us, token {token:.0f} ps, byte {size:.2f} ps"
        )
    print(f"\n{'kernel':30} {'rows':>4} {'median':>7} {'90 %':>7} {'mean':>7}")
    for way in WAYS.values():
        for gpu in NODES:
            alike = [case for case in cases if (case.gpu, case.way) == (gpu, way)]
            print("\n".join(lines(alike, f"deepep {way} {gpu}")))
    hybrid = list(hybrid_cases())
    for gpu, ranks, _ in HYBRID:
        alike = [case for case in hybrid if (case.gpu, case.ranks) == (gpu, ranks)]
        print("\n".join(lines(alike, f"hybridep {gpu}, {ranks} ranks")))


if __name__ == "__main__":
    main()
