"""The result of a run as JSON; its keys are those of `stepsim.show.schemas.documents.Result`."""

from typing import Any

from stepsim.base.json_text import json_text
from stepsim.base.units import PS_PER_S
from stepsim.results.comms import CommUse
from stepsim.results.links import LinkUse
from stepsim.results.report import SCHEMA_VERSION, Idle, Report, StageReport
from stepsim.workload.axes import Part


def report_json(report: Report) -> bytes:
    """The report as UTF-8 JSON, ending with a newline."""
    return json_text(report_dict(report))


def report_dict(report: Report) -> dict[str, Any]:
    """The report as plain data; every number is finite."""
    plan = report.plan
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": report.workload,
        "topology": report.topology,
        "schedule": report.schedule,
        "p2p": report.p2p,
        "contention": report.contention,
        "npus": plan.npus,
        "microbatches": plan.microbatches,
        "rank_order": plan.rank_order,
        "plan": plan.degrees(),
        "settings": dict(report.settings),
        "step_time_s": report.step_time_s,
        "step_time_ps": report.step_time_ps,
        "pipeline_time_s": report.pipeline_time_ps / PS_PER_S,
        "pipeline_time_ps": report.pipeline_time_ps,
        "bubble_fraction": report.bubble_fraction,
        "zero_bubble_rate": report.zero_bubble_rate,
        "peak_activations": report.peak_activations,
        "peak_activation_bytes": report.peak_activation_bytes,
        "breakdown_ps": named_parts(report.mean_breakdown_ps()),
        "critical_path_ps": named_parts(report.critical_path_ps),
        "ranks": _ranks(report),
        "stages": [_stage(stage) for stage in report.stages],
        "links": [_link(link) for link in report.links],
        "comms": [_comm(use) for use in report.comms],
        "warnings": list(report.warnings),
    }


def named_parts(parts: dict[Part, int]) -> dict[str, int]:
    """Breakdown with its parts by name, e.g. `exposed_tp`."""
    return {part.key: value for part, value in parts.items()}


def _ranks(report: Report) -> list[dict[str, Any]]:
    """One entry per rank; `like` is the lowest rank that behaves the same."""
    shared = [
        {
            "idle_ps": _idle(report.idle[actor]),
            "breakdown_ps": named_parts(dict(zip(Part, parts, strict=True))),
        }
        for actor, parts in enumerate(report.breakdown.tolist())
    ]
    first: dict[int, int] = {}
    return [
        {
            "rank": rank,
            "stage": report.plan.stage_of(rank),
            "like": first.setdefault(actor, rank),
            **shared[actor],
        }
        for rank, actor in enumerate(report.actor_of.tolist())
    ]


def _stage(stage: StageReport) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "first_rank": stage.ranks[0],
        "last_rank": stage.ranks[1],
        "steady_start_ps": stage.steady_start_ps,
        "steady_end_ps": stage.steady_end_ps,
        "peak_activations": stage.peak_activations._asdict(),
        "forward_ps": stage.forward_ps,
        "backward_ps": stage.backward_ps,
        "idle_ps": _idle(stage.idle),
        "breakdown_ps": named_parts(stage.breakdown_ps),
    }


def _idle(idle: Idle) -> dict[str, int]:
    return {"head": idle.head, "inner": idle.inner, "tail": idle.tail, "busy": idle.busy}


def _comm(use: CommUse) -> dict[str, Any]:
    return {
        "group": use.group,
        "kind": use.kind,
        "ranks": use.ranks,
        "size_bytes": use.size_bytes,
        "count": use.count,
        "algorithms": list(use.algorithms),
        "time_ps": use.time_ps,
    }


def _link(link: LinkUse) -> dict[str, Any]:
    """A link class; `bandwidth_bytes_per_s` is null for a free link."""
    return {
        "name": link.name,
        "links": link.links,
        "used": link.used,
        "bandwidth_bytes_per_s": link.bandwidth if link.bandwidth < float("inf") else None,
        "total_bytes": round(link.total_bytes),
        "busiest": link.busiest,
        "busiest_bytes": round(link.busiest_bytes),
        "busy_ps": link.busy_ps,
        "utilisation": link.utilisation,
        "users": [
            {"group": user.group, "kind": user.kind, "bytes": round(user.size_bytes)}
            for user in link.users
        ],
    }
