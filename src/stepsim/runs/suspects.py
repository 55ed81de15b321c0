"""The usual suspects of a step that is not as predicted: what a log may not show, simulated.

Some are settings: on or off. Others have a size, such as how slow a link is: it is solved for, so
that the step is the measured one. Those come first that explain the step and that the log speaks
for; of several that do, those whose size is usual.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from math import exp, log
from typing import Any

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Noun, replace
from stepsim.base.units import PS_PER_S
from stepsim.explain.report import Report
from stepsim.files.load import with_numbers
from stepsim.measured.step_log import StepLog
from stepsim.network.topology import LinkClass, Topology
from stepsim.options import OPTIONS, StepOptions
from stepsim.step.job import job_of
from stepsim.step.prepared import prepare
from stepsim.workload.expert_load import ExpertSkew
from stepsim.workload.model.choices import (
    AttentionKernel,
    ExpertDispatch,
    PipelineOrder,
    Precision,
    Recompute,
)
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.plan import Plan

_SOLVED_FROM = 1.03
"""Sizes are solved for where the step is so many times slower than predicted."""
_TRIES, _CLOSE = 14, 0.02
_FAR_MEMORY, _SAME_MEMORY = 0.15, 0.07
_HALF = 0.5
_UNEVEN = 1.03
"""Timers whose slowest rank is so many times slower than the quickest tell of a slow one."""


class Suspected(Noun):
    """A suspect before it is simulated: other options, or other numbers of the topology.

    `now` is what the prediction has in place of `what`, empty where that needs no words. One with a
    `size` is slower by that factor; `odd` is how unusual that is, as a logarithm.
    """

    name: str
    what: str
    check: str
    now: str = ""
    size: float | None = None
    odd: float = 0.0
    options: Mapping[str, Any] = {}
    numbers: Mapping[str, object] = {}


class LogEvidence(StrEnum):
    """What memory and timers of a log say of a suspect, the better ones first."""

    FOR = "for"
    NOTHING = "nothing"
    AGAINST = "against"


class Simulated(Noun):
    """A suspect with its step in seconds, whether its size was solved for, and the evidence."""

    change: Suspected
    step_s: float
    is_solved: bool
    evidence: LogEvidence


class _Sized(Noun):
    """A suspect with a size: a factor from 1 to `most`, of `default` where none explains the step.

    How odd a size is are spreads of the logarithm of what is above 1, from that of the `usual` one.
    One that is `rare` is odd at its usual size already.
    """

    make: Callable[[float], Suspected]
    usual: float
    spread: float
    default: float
    most: float
    rare: float = 0.0

    def at(self, size: float) -> Suspected:
        """The suspect of a size."""
        odd = abs(log((size - 1) / (self.usual - 1))) / self.spread if size > 1 else 0.0
        return replace(self.make(size), size=size, odd=odd + self.rare)


class Suspects(Noun):
    """What makes suspects of a job and simulates them beside a log of `measured` seconds."""

    model: Model
    topology: Topology
    options: StepOptions
    predicted: float
    measured: float
    memory: int
    log: StepLog

    def simulated(self) -> Iterator[Simulated]:
        """All that the job can run with."""
        plan = job_of(self.model, self.topology, self.options).plan
        sparse = self.model.architecture.is_sparse
        for each in _settings(plan, self.options):
            if found := self._run(each):
                yield found
        for sized in self._sized(plan, sparse=sparse):
            if found := self._solved(sized):
                yield found

    def _run(self, change: Suspected) -> Simulated | None:
        """A suspect simulated; None where the job cannot run with it."""
        try:
            network = with_numbers(self.topology, change.numbers)
            options = replace(self.options, **change.options)
            report = prepare(self.model, network, options).simulated().report
        except StepsimError:
            return None
        step = report.step_time_ps / PS_PER_S
        evidence = self._evidence(change, held_bytes(report))
        return Simulated(change=change, step_s=step, is_solved=False, evidence=evidence)

    def _solved(self, sized: _Sized) -> Simulated | None:
        """The suspect of the size that explains the step; of a default one where none does."""
        most = self._run(sized.at(sized.most))
        slower = self.measured > _SOLVED_FROM * self.predicted
        if not slower or most is None or most.step_s < self.measured:
            return self._run(sized.at(sized.default))
        low, high = (
            (0.0, self.predicted - self.measured),
            (log(sized.most), most.step_s - self.measured),
        )
        found = most
        for attempt in range(_TRIES):
            share = 0.5 if attempt % 2 else low[1] / (low[1] - high[1])
            place = low[0] + share * (high[0] - low[0])
            tried = self._run(sized.at(exp(place)))
            if tried is None:
                return None
            found, apart = tried, tried.step_s - self.measured
            if abs(apart) < _CLOSE * (self.measured - self.predicted):
                break
            low, high = ((place, apart), high) if apart < 0 else (low, (place, apart))
        return replace(found, is_solved=True)

    def _evidence(self, change: Suspected, held: int) -> LogEvidence:
        """What memory and timers of the log say of a suspect that holds so many bytes."""
        said = self.log.memory
        if held and self.memory and said and abs(log(held / self.memory)) > _FAR_MEMORY:
            with_it, without = abs(log(said / held)), abs(log(said / self.memory))
            if with_it < _HALF * without and without > _FAR_MEMORY:
                return LogEvidence.FOR
            return LogEvidence.AGAINST if without < _SAME_MEMORY else LogEvidence.NOTHING
        gap = self.measured - self.predicted
        for pattern, names in _TIMERS.items():
            seconds = self.log.timed(pattern)
            if change.name.startswith(names) and seconds is not None and gap > 0:
                return LogEvidence.FOR if seconds > _HALF * gap else LogEvidence.AGAINST
        uneven = self.log.uneven(_COMPUTE_TIMERS)
        if change.name == "slow-gpu" and change.size and uneven is not None:
            asked = max(_UNEVEN, 1 + _HALF * (change.size - 1))
            return LogEvidence.FOR if uneven > asked else LogEvidence.AGAINST
        return LogEvidence.NOTHING

    def _sized(self, plan: Plan, *, sparse: bool) -> Iterator[_Sized]:
        """Suspects with a size, the most usual first."""
        yield _Sized(make=_slow_clocks, usual=1.15, spread=1.0, default=1.1, most=4.0)
        *inner, outer = self.topology.link_classes
        yield _Sized(
            make=partial(_slow_link, outer), usual=30.0, spread=1.2, default=2.0, most=1024
        )
        if isinstance(self.options.framework, Framework):
            host = partial(_late_host, self.options.framework)
            yield _Sized(make=host, usual=6.0, spread=0.8, default=4.0, most=256.0)
        load = self.options.expert_load
        if sparse and plan.ep > 1 and (load is None or isinstance(load, ExpertSkew)):
            if load and load.over_mean > 1:
                yield _Sized(make=_balanced, usual=2.0, spread=1.0, default=1.0, most=1.0)
            else:
                yield _Sized(make=_uneven, usual=1.5, spread=0.7, default=1.3, most=float(plan.ep))
        for link in inner:  # a node whose GPUs talk over PCIe is rarer
            slow = partial(_slow_link, link)
            yield _Sized(make=slow, usual=10.0, spread=0.4, rare=1.0, default=2.0, most=1024)
        yield _Sized(make=_slow_gpu, usual=1.4, spread=0.7, rare=0.5, default=1.1, most=8.0)
        loader = partial(_late_data, self.predicted, plan.microbatches)
        yield _Sized(make=loader, usual=1.3, spread=0.8, rare=0.5, default=1.1, most=64.0)


def held_bytes(report: Report) -> int:
    """The most bytes that a rank holds; 0 where nobody knows."""
    return max((each.memory.total_bytes for each in report.stages if each.memory), default=0)


_TIMERS = {
    "batch-generator": ("data-loader",),
    "(all-)?(grads|params)-.*": ("slow-", "dp-overlap"),
}
"""Timers of Megatron-LM by pattern, and the beginnings of names of the suspects that they time."""
_COMPUTE_TIMERS = "(forward|backward)-compute"


def _settings(plan: Plan, options: StepOptions) -> Iterator[Suspected]:
    """Suspects without a size."""
    yield from _of_memory(plan)
    yield from _of_overlap(plan)
    yield from _of_pipeline(plan)
    yield from _of_kernels(plan)
    if plan.microbatch_size % 2 == 0:
        count = options.microbatches and 2 * options.microbatches
        yield Suspected(
            name="microbatch-half",
            what=f"a microbatch has {plan.microbatch_size // 2} samples",
            now=str(plan.microbatch_size),
            check="the argument of the microbatch size",
            options={"microbatch_size": plan.microbatch_size // 2, "microbatches": count},
        )


def _of_memory(plan: Plan) -> Iterator[Suspected]:
    words = {
        Recompute.NONE: "nothing is recomputed",
        Recompute.SELECTIVE: "core attention is recomputed",
        Recompute.FULL: "whole layers are recomputed",
    }
    for kind, what in words.items():
        if kind is not plan.recompute:
            yield Suspected(
                name=f"recompute-{kind}",
                what=what,
                now=str(plan.recompute),
                check="the arguments of recomputation or activation checkpointing",
                options={"recompute": kind, "recompute_layers": None},
            )


def _of_overlap(plan: Plan) -> Iterator[Suspected]:
    switches = {
        "dp_overlap": (plan.dp > 1, "gradients and parameters move beside compute"),
        "tp_comm_overlap": (plan.tp > 1, "tp collectives are pipelined with their products"),
        "expert_overlap": (plan.ep > 1, "exchanges of experts run beside compute"),
        "cuda_graph": (True, "CUDA graphs launch the layers"),
    }
    for name, (applies, what) in switches.items():
        if applies:
            on = getattr(plan, name)
            yield Suspected(
                name=f"{name.replace('_', '-')}-{'off' if on else 'on'}",
                what=f"{what}: {'off' if on else 'on'}",
                now="on" if on else "off",
                check=f"the framework's argument of {name.replace('_', ' ')}",
                options={name: not on},
            )


def _of_pipeline(plan: Plan) -> Iterator[Suspected]:
    """The other of Megatron-LM's schedules, and the other way to exchange tokens of experts."""
    if plan.pp > 1 and plan.order is PipelineOrder.ALTERNATING:
        plain = plan.chunks > 1
        yield Suspected(
            name="schedule-1f1b" if plain else "schedule-interleaved",
            what="a rank runs one stage" if plain else "a rank runs two virtual stages",
            now=f"{plan.chunks}",
            check="the argument of virtual pipeline stages",
            options={"schedule": "1f1b", "chunks": 1}
            if plain
            else {"schedule": "interleaved:2", "chunks": None},
        )
    if plan.ep > 1:
        plain = plan.dispatch is ExpertDispatch.ALL_TO_ALL
        other = ExpertDispatch.DEEPEP if plain else ExpertDispatch.ALL_TO_ALL
        yield Suspected(
            name=f"dispatch-{other.replace('_', '-')}",
            what=f"tokens go to experts by {other.replace('_', '-')}",
            now=str(plan.dispatch),
            check="the argument of the token dispatcher; names of kernels in a profile",
            options={"dispatch": other},
        )


def _of_kernels(plan: Plan) -> Iterator[Suspected]:
    fused = plan.attention is AttentionKernel.FLASH
    yield Suspected(
        name="attention-unfused" if fused else "attention-flash",
        what="attention runs without a fused kernel" if fused else "attention is fused",
        now="flash" if fused else "unfused",
        check="names of attention kernels in a profile; the attention backend in the log",
        options={"attention": AttentionKernel.UNFUSED if fused else AttentionKernel.FLASH},
    )
    other = Precision.FP8 if plan.precision is Precision.BF16 else Precision.BF16
    yield Suspected(
        name=f"precision-{other}",
        what=f"products run in {other}",
        now=str(plan.precision),
        check="the argument of the precision; fp8 or not in names of kernels",
        options={"precision": other},
    )


def _slow_link(link: LinkClass, size: float) -> Suspected:
    """Links that carry a share of their bandwidth."""
    carried = link.bandwidth / size
    return Suspected(
        name=f"slow-{link.name}",
        what=f"{link.name} links carry {carried * 8 / 1e9:.3g} Gbps, {1 / size:.1%} of theirs",
        check="nccl-tests between these GPUs; NCCL_DEBUG=INFO for the transport: TCP, not RDMA?",
        numbers={f"{link.name}.bandwidth": carried},
    )


def _late_host(framework: Framework, size: float) -> Suspected:
    """A framework whose host launches layers more slowly."""
    return Suspected(
        name="host-bound",
        what=f"the host takes {size:.3g} times as long to launch a layer",
        check="gaps between kernels in a profile (stepsim improve): launches, Python, GC",
        options={
            "framework": replace(
                framework,
                host_layer_ps=round(framework.host_layer_ps * size),
                host_expert_layer_ps=round(framework.host_expert_layer_ps * size),
            )
        },
    )


def _slow_gpu(size: float) -> Suspected:
    return Suspected(
        name="slow-gpu",
        what=f"one GPU computes {size:.3g} times as long",
        check="traces of all ranks (stepsim inspect); clocks, power and temperature",
        options={"slow": OPTIONS["slow"].of(f"0:{size}")},
    )


def _slow_clocks(size: float) -> Suspected:
    return Suspected(
        name="slow-clocks",
        what=f"all GPUs compute {size:.3g} times as long",
        check="power limits and clocks while it trains (nvidia-smi -q -d PERFORMANCE)",
        options={"compute_scale": OPTIONS["compute_scale"].of(size)},
    )


def _late_data(step_s: float, microbatches: int, size: float) -> Suspected:
    """A step whose data come late, by a share of the predicted step."""
    late = (size - 1) * step_s
    return Suspected(
        name="data-loader",
        what=f"the first stage waits {late:.3g} s of a step for data",
        check="the timer of the batch, gaps at the begin of steps in a profile; workers, storage",
        options={"get_batch_ps": round(late * PS_PER_S / microbatches)},
    )


def _uneven(size: float) -> Suspected:
    return _skewed("experts-uneven", size)


def _balanced(size: float) -> Suspected:
    return _skewed("experts-balanced", size)


def _skewed(name: str, size: float) -> Suspected:
    return Suspected(
        name=name,
        what=f"the busiest expert rank has {size:.3g} of the mean load",
        check="tokens per expert of the router",
        options={"expert_load": ExpertSkew(size)},
    )
