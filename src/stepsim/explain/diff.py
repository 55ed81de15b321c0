"""What explains the difference of two step times: components, stages, links, settings.

The mean breakdown of each result sums to its step time, so the differences of the components sum
exactly to the difference of the step times. The same holds on every stage, whose ranks all take
the step: a stage that got slower works longer (compute, exposed, host), the others wait longer
for it (skew, idle). So stages are compared by what they do themselves.
"""

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from stepsim.base.axes import Part, PartKind, part_label
from stepsim.base.structs import Noun, unbounded
from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.explain.profile_document import ProfileDocument
from stepsim.explain.report import LinkUse, Report

# Components that are idle time for want of others: of slower members, of pipeline neighbours.
_WAITING = frozenset(p.key for p in Part if p.kind in (PartKind.SKEW, PartKind.IDLE))

_SETTINGS = (
    *("workload", "topology", "schedule", "p2p", "contention", "npus", "microbatches"),
    *("rank_order", "ep_layout"),
)
_ALIKE = 0.01
_ABSENT = "-"
_DEFAULT = "default"


class _SettingDiff(Noun):
    """A setting that differs; `-` stands for a degree that a result does not have."""

    name: str
    a: str
    b: str


class Change(Noun):
    """A time in A and in B, in ps."""

    name: str
    a_ps: int
    b_ps: int

    @property
    def difference_ps(self) -> int:
        """Time in B less that in A."""
        return self.b_ps - self.a_ps

    @property
    def label(self) -> str:
        """The part as tables call it."""
        return part_label(self.name)


class _StageDiff(Noun):
    """A stage of both results, its components by size of difference."""

    stage: int
    components: tuple[Change, ...]

    @property
    def own(self) -> Change:
        """What its ranks do themselves: all components but waiting."""
        return _sum("own", (each for each in self.components if each.name not in _WAITING))

    @property
    def waiting(self) -> Change:
        """What its ranks wait for others."""
        return _sum("waiting", (each for each in self.components if each.name in _WAITING))

    @property
    def largest(self) -> Change:
        """The component that differs most; waiting only when nothing else differs."""
        return max(
            self.components,
            key=lambda each: (
                each.name not in _WAITING and each.difference_ps != 0,
                abs(each.difference_ps),
            ),
        )

    def component(self, name: str) -> Change:
        """Component of this name; zero when neither result has it."""
        return next(
            (each for each in self.components if each.name == name),
            Change(name=name, a_ps=0, b_ps=0),
        )


class _LinkDiff(Noun):
    """A class of links; None in the result whose topology lacks it."""

    name: str
    a: LinkUse | None
    b: LinkUse | None

    @property
    def total_bytes(self) -> tuple[int, int]:
        """Bytes over all its links in A and in B."""
        return self.a.total_bytes if self.a else 0, self.b.total_bytes if self.b else 0

    @property
    def busy(self) -> Change:
        """How long its busiest link takes to carry its bytes."""
        a_ps, b_ps = (each.busy_ps if each else 0 for each in (self.a, self.b))
        return Change(name=self.name, a_ps=a_ps, b_ps=b_ps)


class ResultDiff(Noun):
    """The difference of B from A; everything sorted by size of difference.

    `a` and `b` are their schedules, or formats of profiles. The differences of `components` sum to
    that of `step`. `stages` is empty when the results have different numbers of stages,
    `stage_counts`.
    """

    a: str
    b: str
    step: Change
    settings: tuple[_SettingDiff, ...]
    components: tuple[Change, ...]
    stage_counts: tuple[int, int]
    stages: tuple[_StageDiff, ...]
    links: tuple[_LinkDiff, ...]

    @property
    def name(self) -> str:
        """What is compared: `1f1b`, or `1f1b -> zb-h1` where the two differ."""
        return self.a if self.a == self.b else f"{self.a} -> {self.b}"

    @property
    def largest(self) -> Change | None:
        """The component that changed most, None where none did."""
        first = self.components[0]
        return first if first.difference_ps else None

    @property
    def identical(self) -> bool:
        """Whether nothing differs that is compared."""
        changes = [self.step, *self.components]
        changes += [each for stage in self.stages for each in stage.components]
        return (
            not self.settings
            and self.stage_counts[0] == self.stage_counts[1]
            and all(change.difference_ps == 0 for change in changes)
            and all(link.a == link.b for link in self.links)
        )

    @property
    def direction(self) -> int:
        """1 when B is slower, -1 when it is faster, 0 when both take as long."""
        return (self.step.difference_ps > 0) - (self.step.difference_ps < 0)

    def share(self, change: Change) -> float:
        """Share of a change in the difference of the step times; 0 when there is none."""
        return change.difference_ps / self.step.difference_ps if self.direction else 0.0


def diff_results(a: Report, b: Report) -> ResultDiff:
    """The difference of result B from result A, and what explains it."""
    counts = (len(a.stages), len(b.stages))
    stages = [
        _StageDiff(stage=one.stage, components=_changes(one.breakdown_ps, other.breakdown_ps))
        for one, other in zip(a.stages, b.stages, strict=False)
        if counts[0] == counts[1]
    ]
    return ResultDiff(
        a=a.schedule,
        b=b.schedule,
        step=Change(name="step", a_ps=a.step_time_ps, b_ps=b.step_time_ps),
        settings=(
            *_settings(_named(a), _named(b), _ABSENT),
            *_settings(a.settings, b.settings, _DEFAULT),
        ),
        components=_changes(a.breakdown_ps, b.breakdown_ps),
        stage_counts=counts,
        stages=tuple(sorted(stages, key=_stage_order)),
        links=_links(a.links, b.links),
    )


def diff_profiles(a: ProfileDocument, b: ProfileDocument) -> ResultDiff:
    """The difference of the mean step of a rank of profile B from that of A.

    The components are compute, communication while nothing computes, and neither of both; they sum
    to the step, a mean over ranks. A profile tells no stages that both have, and no links.
    """
    first, second = _profile_parts(a), _profile_parts(b)
    one, other = (
        {"format": p.format, "source": p.source, "ranks": len(p.ranks), "steps": len(p.steps)}
        for p in (a, b)
    )
    return ResultDiff(
        a=a.format,
        b=b.format,
        step=Change(name="step", a_ps=sum(first.values()), b_ps=sum(second.values())),
        settings=tuple(_settings(one, other, _ABSENT)),
        components=_changes(first, second),
        stage_counts=(0, 0),
        stages=(),
        links=(),
    )


def _profile_parts(profile: ProfileDocument) -> dict[str, int]:
    """Parts of the mean step of a rank in ps, by name."""
    names = {"compute": "compute_ps", "exposed_communication": "exposed_ps", "idle": "idle_ps"}
    return {
        name: round(fmean(getattr(rank, attribute) for rank in profile.ranks))
        for name, attribute in names.items()
    }


def explain(diff: ResultDiff) -> str:
    """A sentence that names the component, the stage and the link that explain most."""
    said = [_component_words(diff), _link_words(diff)]
    return "; ".join(filter(None, said)) + "."


def _sum(name: str, changes: Iterable[Change]) -> Change:
    times = [(change.a_ps, change.b_ps) for change in changes]
    return Change(name=name, a_ps=sum(a for a, _ in times), b_ps=sum(b for _, b in times))


def _changes(a: Mapping[str, int], b: Mapping[str, int]) -> tuple[Change, ...]:
    """Parts of two breakdowns, the largest difference first, then in the order of `Part`."""
    order = [part.key for part in Part]
    names = dict.fromkeys((*order, *a, *b))
    changes = [Change(name=name, a_ps=a.get(name, 0), b_ps=b.get(name, 0)) for name in names]
    return tuple(sorted(changes, key=lambda change: -abs(change.difference_ps)))


def _stage_order(stage: _StageDiff) -> tuple[int, int, int]:
    """What its ranks do themselves comes first; of equal ones, what moved between components."""
    moved = sum(abs(each.difference_ps) for each in stage.components)
    return -abs(stage.own.difference_ps), -moved, stage.stage


def _links(a: Iterable[LinkUse], b: Iterable[LinkUse]) -> tuple[_LinkDiff, ...]:
    of_a, of_b = ({link.name: link for link in links} for links in (a, b))
    links = [_LinkDiff(name=n, a=of_a.get(n), b=of_b.get(n)) for n in dict.fromkeys((*of_a, *of_b))]

    def order(link: _LinkDiff) -> tuple[int, int]:
        before, after = link.total_bytes
        return -abs(link.busy.difference_ps), -abs(after - before)

    return tuple(sorted(links, key=order))


def _named(report: Report) -> dict[str, object]:
    return {name: getattr(report, name) for name in _SETTINGS} | report.plan


def _settings(
    a: Mapping[str, object], b: Mapping[str, object], lacking: str
) -> Iterator[_SettingDiff]:
    """What two tables say otherwise, with a word for what one of them lacks."""
    for name in dict.fromkeys((*a, *b)):
        one, other = (str(each.get(name, lacking)) for each in (a, b))
        if one != other:
            yield _SettingDiff(name=name, a=one, b=other)


def _component_words(diff: ResultDiff) -> str:
    """The component that explains most and where; if it is waiting, also the most of the rest."""
    if not diff.direction:
        return _shift_words(diff)
    most = _most(diff.components, diff.direction)
    words = f"{most.label} explains {diff.share(most):.0%} of the difference{_where(diff, most)}"
    if most.name in _WAITING:
        own = _most((c for c in diff.components if c.name not in _WAITING), diff.direction)
        if own.difference_ps * diff.direction > 0:
            words += f", where ranks wait for others; of what they do themselves, {own.label} "
            words += f"explains most, {diff.share(own):.0%}{_where(diff, own)}"
        else:
            changed = "more" if diff.direction > 0 else "less"
            words += f", where ranks wait for others; nothing they do themselves takes {changed}"
    against = _most(diff.components, -diff.direction)
    if diff.share(most) > 1 and diff.share(against) <= -_ALIKE:
        words += f"; {against.label} takes {-diff.share(against):.0%} back"
    return words


def _shift_words(diff: ResultDiff) -> str:
    """What moved between components of steps that take as long."""
    more, less = _most(diff.components, 1), _most(diff.components, -1)
    if not more.difference_ps:
        return "both steps take equally long, component by component"
    return (
        f"both steps take equally long: {more.label} takes {format_time_ps(more.difference_ps)} "
        f"more, {less.label} {format_time_ps(-less.difference_ps)} less"
    )


def _where(diff: ResultDiff, change: Change) -> str:
    """The stage that has most of a component's difference, when there are several."""
    found = [(each.stage, each.component(change.name)) for each in diff.stages]
    if len(found) < 2:
        return ""
    gains = {stage: each.difference_ps * diff.direction for stage, each in found}
    top = min(gains, key=lambda stage: (-gains[stage], stage))
    if gains[top] <= 0:
        return ""
    if min(gains.values()) >= (1 - _ALIKE) * gains[top]:
        return ", alike on every stage"
    return f", most on stage {top}"


def _link_words(diff: ResultDiff) -> str:
    """The class of links whose busiest link's time changed most the way the step did."""
    if not diff.links:
        return ""
    busy = _most([link.busy for link in diff.links], diff.direction)
    link = next(link for link in diff.links if link.name == busy.name)
    if diff.direction and busy.difference_ps * diff.direction <= 0:
        longer = "longer" if diff.direction > 0 else "for less time"
        return f"no link is in use {longer}"
    if not busy.difference_ps:
        return "every link is in use equally long"
    if link.a is None or link.b is None:
        size, time = format_size_bytes(max(link.total_bytes)), max(busy.a_ps, busy.b_ps)
        return (
            f"link {link.name}, which only {'B' if link.a is None else 'A'} has, carries {size}: "
            f"its busiest link is in use for {format_time_ps(time)}"
        )
    return (
        f"link {link.name} carries {_carried_words(link.a, link.b)}: its busiest link is in use "
        f"for {format_time_ps(busy.b_ps)} instead of {format_time_ps(busy.a_ps)}"
    )


def _carried_words(a: LinkUse, b: LinkUse) -> str:
    """Bytes and, where it differs, bandwidth; what prints alike is called the same."""
    before, after = format_size_bytes(a.total_bytes), format_size_bytes(b.total_bytes)
    words = f"as much, {after}" if before == after else f"{after} instead of {before}"
    if _bandwidth(a) == _bandwidth(b):
        return words
    return f"{words}, at {_bandwidth(b)} instead of {_bandwidth(a)}"


def _bandwidth(link: LinkUse) -> str:
    return format_bandwidth(unbounded(link.bandwidth_bytes_per_s))


def _most(changes: Iterable[Change], direction: int) -> Change:
    """The largest difference in a direction; in either one when it is 0."""

    def gain(change: Change) -> int:
        return change.difference_ps * direction if direction else abs(change.difference_ps)

    return max(changes, key=gain)
