"""A measured run as JSON: what `stepsim inspect RUN --json` writes. Times in seconds."""

from dataclasses import asdict
from typing import Any

from stepsim.base.json_text import json_text
from stepsim.base.units import PS_PER_S
from stepsim.measured.leaf_log import LeafRun
from stepsim.measured.summary import RunSummary

SCHEMA_VERSION = 1


def run_json(run: RunSummary | LeafRun) -> bytes:
    """The document of a run: traces analysed, or a log of leaf modules."""
    document = _log(run) if isinstance(run, LeafRun) else _traces(run)
    whole = {"schema_version": SCHEMA_VERSION, **document}
    return json_text(whole)


def _traces(run: RunSummary) -> dict[str, Any]:
    return {
        "source": run.run.source,
        "degrees": asdict(run.run.degrees),
        "schedule": run.schedule.label if run.schedule else None,
        "pipeline_s": _seconds(run.pipeline_ps),
        "step_s": _seconds(run.step_ps),
        "clocks": {
            "node_size": run.clocks.node_size,
            "residual_s": _seconds(run.clocks.residual_ps),
        },
        "stages": [
            {
                "stage": stage.stage,
                "ranks": stage.ranks,
                "wait_s": _seconds(stage.wait_ps),
                "operations": [
                    {
                        "kind": kind.name.lower(),
                        "median_s": _seconds(sample.median),
                        "mean_s": _seconds(sample.mean),
                        "low_s": _seconds(sample.low),
                        "high_s": _seconds(sample.high),
                        "samples": sample.count,
                        "by_microbatch_s": [_seconds(t) for t in sample.by_microbatch.tolist()],
                        "collectives_s": _seconds(stage.inner_ps[kind]),
                    }
                    for kind, sample in stage.work.items()
                ],
            }
            for stage in run.stages
        ],
        "ranks": [
            {
                "rank": rank.rank,
                "stage": rank.stage,
                "pipeline_s": _seconds(rank.pipeline_ps),
                "step_s": _seconds(rank.step_ps),
                "work_s": _seconds(rank.work_ps),
                "host_s": _seconds(rank.host_ps),
                "wait_s": _seconds(rank.wait_ps),
                "actions": rank.actions,
                "bubble": run.bubble(rank),
            }
            for rank in run.ranks
        ],
        "step_operations": [
            {
                "stage": op.stage,
                "operation": op.label,
                "size_bytes": op.size_bytes,
                "group": op.group,
                "duration_s": _seconds(op.duration_ps),
                "groups_s": [_seconds(time) for time in op.times_ps],
                "wait_s": _seconds(op.wait_ps),
            }
            for op in run.step_ops
        ],
        "expert_imbalance": asdict(run.imbalance) if run.imbalance else None,
        "warnings": run.run.warnings,
    }


def _log(run: LeafRun) -> dict[str, Any]:
    return {
        "source": run.source,
        "degrees": {"pp": run.pp, "tp": run.tp, "dp": run.dp, "microbatches": run.microbatches},
        "microbatch_size": run.microbatch_size,
        "step_s": _seconds(run.step_ps),
        "step_spread_s": _seconds(run.step_spread_ps),
        "steps": run.steps,
        "stages": [
            {
                "stage": stage.stage,
                "layers": stage.layers,
                "leaf_modules_of_layers_s": _seconds(stage.layers_ps),
                "leaf_modules_of_ends_s": _seconds(stage.ends_ps),
                "samples": stage.samples,
            }
            for stage in run.stages
        ],
        "warnings": run.warnings,
    }


def _seconds(time_ps: int) -> float:
    return time_ps / PS_PER_S
