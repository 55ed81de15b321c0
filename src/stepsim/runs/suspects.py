"""The usual suspects of a step that is not as predicted: what a log may not show, simulated.

Some are settings: on or off. Others have a size, such as how slow a link is: it is solved for, so
that the step is the measured one. Those come first that explain the step and that the log speaks
for; of several that do, those whose size is usual.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from functools import partial
from math import log, sqrt
from typing import Any

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Entry, Noun, Seconds, Share, Values, replace, shipped
from stepsim.base.units import PS_PER_S
from stepsim.files.asked import StepInputs
from stepsim.files.load import with_numbers
from stepsim.measured.step_log import StepLog
from stepsim.network.prices import Known
from stepsim.network.topology import LinkClass
from stepsim.options import OPTIONS, StepOptions
from stepsim.step.job import job_of
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.expert_load import ExpertSkew
from stepsim.workload.model.choices import AttentionKernel, ExpertDispatch, Precision, Recompute
from stepsim.workload.model.framework import Framework
from stepsim.workload.plan import PipelineOrder, Plan

# Sizes are solved for where the step is so many times slower than predicted.
_SOLVED_FROM = 1.03
_TRIES, _CLOSE = 14, 0.02
_FAR_MEMORY, _SAME_MEMORY = 0.15, 0.07
_HALF = 0.5
# Timers whose slowest rank is so many times slower than the quickest tell of a slow one.
_UNEVEN = 1.03


class LogEvidence(StrEnum):
    """What memory and timers of a log say of a suspect, the better ones first."""

    FOR = "for"
    NOTHING = "nothing"
    AGAINST = "against"


class LogSuspect(Entry):
    """Something that a log may not show: `what` would be, and what `check` would tell.

    `is_contradicted` where the log's arguments or the options say otherwise and nothing speaks for
    it, `is_solved` where its `factor` is the one that explains the step; `odd` is how many
    spreads that is from the usual size. `evidence` is what memory and timers of the log say.
    `step_s` is the predicted step with it, `worth` the share of the predicted step that it adds,
    and `explains` the share of the gap between prediction and log that this is, None without a gap.
    """

    name: str
    what: str
    check: str
    is_contradicted: bool
    is_solved: bool
    factor: float | None
    odd: float
    evidence: LogEvidence
    step_s: Seconds
    worth: Share
    explains: Share | None


class _Change(Noun):
    """What a suspect would be: other options, or other numbers of the topology.

    `now` is what the prediction has in place of `what`, empty where that needs no words. One with a
    `factor` is slower by that; `odd` is how unusual that is, as a logarithm.
    """

    name: str
    what: str
    check: str
    now: str = ""
    factor: float | None = None
    odd: float = 0.0
    options: Mapping[str, Any] = {}
    numbers: Mapping[str, object] = {}


class _Kind(Noun):
    """A kind of suspects as `suspects.toml` has it; one without a `usual` size has none."""

    what: str
    check: str
    usual: float = 0.0
    spread: float = 1.0
    default: float = 1.0
    most: float = 1.0
    rare: float = 0.0


def _kind(name: str) -> _Kind:
    return shipped(__file__, "suspects.toml", dict[str, _Kind])[name]


def _suspect(
    kind: str,
    name: str = "",
    *,
    words: Mapping[str, object] = {},
    size: float | None = None,
    **change: Any,
) -> _Change:
    """A suspect of a kind, which bears its name unless it has another; `words` are the job's."""
    said, odd = _kind(kind), 0.0
    if size is not None:
        away = abs(log((size - 1) / (said.usual - 1))) / said.spread if size > 1 else 0.0
        odd = away + said.rare
    what = said.what.format(size=size, **words)
    return _Change(name=name or kind, what=what, check=said.check, factor=size, odd=odd, **change)


class _Sized(Noun, kw_only=False):
    """A kind of suspects with a size, what one changes, and the largest if not the kind's."""

    name: str
    change: Callable[[float], Values]
    largest: float = 0.0


class Suspects(Noun):
    """What makes suspects of a job and simulates them beside a log of `measured` seconds.

    `said` are the options that the log says, or that were given; `known` are prices and rows of
    those before.
    """

    job: StepInputs
    said: Collection[str]
    predicted: float
    measured: float
    memory: int
    log: StepLog
    known: Known = {}

    def simulated(self) -> Iterator[LogSuspect]:
        """All that the job can run with."""
        plan = job_of(self.job).plan
        for each in _settings(plan, self.job.options):
            if found := self._run(each):
                yield found
        for sized in self._sized(plan):
            if found := self._solved(sized):
                yield found

    def _run(self, change: _Change) -> LogSuspect | None:
        """A suspect simulated; None where the job cannot run with it."""
        try:
            job = self.job.asking(**change.options)
            job = replace(job, topology=with_numbers(job.topology, change.numbers))
            ready = prepare(job, known=self.known, quick=True)
            step_s = ready.step_time_ps() / PS_PER_S
        except StepsimError:
            return None
        evidence, gap = self._evidence(change, held_bytes(ready)), self.measured - self.predicted
        said = not (change.options.keys() - {"framework"}).isdisjoint(self.said)
        now = f" ({'said' if said else 'assumed'}: {change.now})" if change.now else ""
        return LogSuspect.taken_from(
            change,
            what=f"{change.what}{now}",
            is_contradicted=said and evidence is not LogEvidence.FOR,
            is_solved=False,
            evidence=evidence,
            step_s=step_s,
            worth=step_s / self.predicted - 1,
            explains=(step_s - self.predicted) / gap if gap else None,
        )

    def _solved(self, sized: _Sized) -> LogSuspect | None:
        """The suspect of the size that explains the step; of a default one where none does."""
        kind = _kind(sized.name)
        largest = sized.largest or kind.most

        def run(size: float) -> LogSuspect | None:
            return self._run(_suspect(sized.name, size=size, **sized.change(size)))

        most = run(largest)
        slower = self.measured > _SOLVED_FROM * self.predicted
        if not slower or most is None or most.step_s < self.measured:
            return run(kind.default)
        low, high = (1.0, self.predicted - self.measured), (largest, most.step_s - self.measured)
        found = most
        for attempt in range(_TRIES):
            if attempt % 2:
                size = sqrt(low[0] * high[0])
            else:  # beyond some size a step is linear in it
                size = low[0] + (high[0] - low[0]) * low[1] / (low[1] - high[1])
            tried = run(size)
            if tried is None:
                return None
            found, apart = tried, tried.step_s - self.measured
            if abs(apart) < _CLOSE * (self.measured - self.predicted):
                break
            low, high = ((size, apart), high) if apart < 0 else (low, (size, apart))
        return replace(found, is_solved=True)

    def _evidence(self, change: _Change, held: int) -> LogEvidence:
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
        if change.name == "slow-gpu" and change.factor and uneven is not None:
            asked = max(_UNEVEN, 1 + _HALF * (change.factor - 1))
            return LogEvidence.FOR if uneven > asked else LogEvidence.AGAINST
        return LogEvidence.NOTHING

    def _sized(self, plan: Plan) -> Iterator[_Sized]:
        """Suspects with a size, the most usual first."""
        yield _Sized("slow-clocks", partial(_typed, "compute_scale", "{}"))
        *inner, outer = self.job.topology.link_classes
        yield _Sized("slow-link", partial(_slow_link, outer))
        options = self.job.options
        if isinstance(options.framework, Framework):
            yield _Sized("host-bound", partial(_late_host, options.framework))
        load = options.expert_load
        if plan.ep > 1 and (load is None or isinstance(load, ExpertSkew)):
            uneven = bool(load and load.over_mean > 1)
            kind, largest = ("experts-balanced", 0.0) if uneven else ("experts-uneven", plan.ep)
            yield _Sized(kind, lambda size: {"options": {"expert_load": ExpertSkew(size)}}, largest)
        for link in inner:
            yield _Sized("slow-inner-link", partial(_slow_link, link))
        yield _Sized("slow-gpu", partial(_typed, "slow", "0:{}"))
        yield _Sized("data-loader", partial(_late_data, self.predicted, plan.microbatches))


def held_bytes(ready: PreparedStep) -> int:
    """The most bytes that a rank holds; 0 where that is unknown."""
    return ready.memory.total_bytes if ready.memory else 0


# Timers of Megatron-LM by pattern, and the beginnings of names of the suspects that they time.
_TIMERS = {
    "batch-generator": ("data-loader",),
    "(all-)?(grads|params)-.*": ("slow-", "dp-overlap"),
}
_COMPUTE_TIMERS = "(forward|backward)-compute"


def _settings(plan: Plan, options: StepOptions) -> Iterator[_Change]:
    """Suspects without a size."""
    for recompute in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL):
        if recompute is not plan.recompute:
            yield _other(plan, "recompute", recompute, recompute_layers=None)
    yield from _of_overlap(plan)
    yield from _of_pipeline(plan)
    fused = plan.attention is AttentionKernel.FLASH
    yield _other(plan, "attention", AttentionKernel.UNFUSED if fused else AttentionKernel.FLASH)
    plain = plan.precision is Precision.BF16
    yield _other(plan, "precision", Precision.FP8 if plain else Precision.BF16, "precision")
    if plan.microbatch_size % 2 == 0:
        count = options.microbatches and 2 * options.microbatches
        samples = plan.microbatch_size // 2
        yield _suspect(
            "microbatch-half",
            words={"samples": samples},
            now=str(plan.microbatch_size),
            options={"microbatch_size": samples, "microbatches": count},
        )


def _other(plan: Plan, option: str, value: str, kind: str = "", **also: Any) -> _Change:
    """The suspect that an option of the plan has another value, and `also` others have theirs."""
    text = value.replace("_", "-")
    name = f"{option}-{text}"
    return _suspect(
        kind or name,
        name,
        words={option: text},
        now=str(getattr(plan, option)),
        options={option: value, **also},
    )


def _of_overlap(plan: Plan) -> Iterator[_Change]:
    switches = {
        "dp_overlap": plan.dp > 1,
        "tp_comm_overlap": plan.tp > 1,
        "expert_overlap": plan.ep > 1,
        "cuda_graph": True,
    }
    for name, applies in switches.items():
        if applies:
            now, state = ("on", "off") if getattr(plan, name) else ("off", "on")
            yield _suspect(
                name,
                f"{name.replace('_', '-')}-{state}",
                words={"state": state},
                now=now,
                options={name: state == "on"},
            )


def _of_pipeline(plan: Plan) -> Iterator[_Change]:
    """The other of Megatron-LM's schedules, and the other way to exchange tokens of experts."""
    if plan.pp > 1 and plan.order is PipelineOrder.ALTERNATING:
        plain = plan.chunks > 1
        yield _suspect(
            "schedule-1f1b" if plain else "schedule-interleaved",
            now=f"{plan.chunks}",
            options={"schedule": "1f1b", "chunks": 1}
            if plain
            else {"schedule": "interleaved:2", "chunks": None},
        )
    if plan.ep > 1:
        plain = plan.dispatch is ExpertDispatch.ALL_TO_ALL
        other = ExpertDispatch.DEEPEP if plain else ExpertDispatch.ALL_TO_ALL
        yield _other(plan, "dispatch", other, "dispatch")


def _typed(option: str, text: str, size: float) -> Values:
    """An option of a size as people type it."""
    return {"options": {option: OPTIONS[option].of(text.format(size))}}


def _slow_link(link: LinkClass, size: float) -> Values:
    """Links that carry a share of their bandwidth."""
    carried = link.bandwidth / size
    return {
        "name": f"slow-{link.name}",
        "words": {"link": link.name, "gbps": carried * 8 / 1e9, "share": 1 / size},
        "numbers": {f"{link.name}.bandwidth": carried},
    }


def _late_host(framework: Framework, size: float) -> Values:
    """A framework whose host launches layers more slowly."""
    slowed = replace(
        framework,
        host_layer_ps=round(framework.host_layer_ps * size),
        host_expert_layer_ps=round(framework.host_expert_layer_ps * size),
    )
    return {"options": {"framework": slowed}}


def _late_data(step_s: float, microbatches: int, size: float) -> Values:
    """A step whose data come late, by a share of the predicted step."""
    late = (size - 1) * step_s
    options = {"get_batch_ps": round(late * PS_PER_S / microbatches)}
    return {"words": {"late": late}, "options": options}
