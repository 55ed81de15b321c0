"""Ask the program of before the house the cases of `tests/equal`; run by `tools/equal.py`."""

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from equal import SHARED, numbers, print_answers, sums

import stepsim
from stepsim import cli
from stepsim.base.structs import replace
from stepsim.files.topology.toml import read_topology_toml

rows: Any = SimpleNamespace()
"""Nouns of a workload file, wherever the program that is asked has them."""
for module in ("rows", "axes"):
    with suppress(ImportError):
        vars(rows).update(vars(import_module(f"stepsim.workload.{module}")))

ASKED = {
    "simulate": "step_time_ps pipeline_time_ps bubble_fraction zero_bubble_rate peak_activations "
    "slowed_by_communication_ps breakdown_ps critical_path_ps stages links comms throughput npus",
    "simulate_run": "step_time_ps pipeline_time_ps breakdown_ps",
    "plan": "looked_at too_large plans equal_plans",
    "sweep": "scenarios",
    "improve": "measured_s replayed_s ceiling changes",
    "stragglers": "measured_s replayed_s ideal_s slowdown ranks stages microbatches",
    "noise": "planned_ps mean_ps deviation_ps",
    "sensitivity": "step_time_ps numbers rows",
    "compare": "schedules runs",
    "batches": "packers",
    "explain_log": "measured_s predicted_s low_s high_s verdict",
}
"""What is compared of a document, by the function that makes it: fields at its top."""

PLANNED = (
    *("tp", "cp", "pp", "dp", "ep", "expert_tp", "chunks", "microbatch_size", "microbatches"),
    *("recompute", "zero", "dp_overlap", "tp_comm_overlap", "dispatch", "cuda_graph"),
)
"""Fields of a plan that entries of the old program have themselves."""


def answers(case: dict[str, Any], folder: Path) -> Iterator[tuple[str, int]]:
    """What a case gives: its source is a file, a model's name, rows, or a trace made of a step."""
    source, topology, asked = case["source"], case.get("topology"), case["do"]
    if isinstance(source, dict):
        source = _workload(source)
    elif "shared" in case:
        source = SHARED / source
    elif "trace" in case:
        source = traced(source, folder / case["trace"])
    if topology and "\n" in topology:
        (folder / "topology.toml").write_text(topology, "utf-8")
        topology = read_topology_toml(folder / "topology.toml")
    where = {} if topology is None else {"topology": topology}
    result = getattr(stepsim, asked)(source, **where, **case["options"])
    if isinstance(result, float):
        yield "ps", round(result * 1e12)
        return
    if asked == "what_if":
        yield from (
            (each, getattr(result, each).report.step_time_ps) for each in ("base", "changed")
        )
        return
    document = result.to_dict()
    for entry in document.get("plans") or ():
        if plan := entry.pop("plan", None):
            entry.update({name: plan[name] for name in PLANNED}, schedule=plan["order"])
    for name in ASKED[asked].split():
        yield from numbers(document.get(name), name)
    if asked == "simulate":
        yield from sums(document["ranks"])


def traced(arguments: str, folder: Path) -> Path:
    """The folder of a step's trace, written by the first program that is asked."""
    if not folder.exists():
        sys.argv = ["stepsim", "simulate", *arguments.split(), "--kineto", str(folder)]
        with suppress(SystemExit), redirect_stdout(StringIO()):
            cli.main()
    return folder


def _comm(plain: list[Any]) -> Any:
    kind, group, axis, size = plain
    kinds, groups = rows.CollectiveKind(kind), rows.Group(group)
    return rows.CommOp(kind=kinds, group=groups, axis=rows.ParallelAxis(axis), size_bytes=size)


def _work(plain: list[Any]) -> Any:
    compute, host, wait, comms = plain
    made = tuple(map(_comm, comms))
    return rows.Work(compute_ps=compute, host_ps=host, wait_ps=wait, comms=made)


def _row(plain: list[Any]) -> Any:
    (forward, inputs, weights), (again, lag) = map(_work, plain[:3]), plain[3:]
    made = rows.Row(name="layer", forward=forward, input_grad=inputs, weight_grad=weights)
    return replace(made, recompute=again, forward_lag=lag)


def _item(name: str, role: str, own: list[Any]) -> Any:
    phase = rows.Phase.WEIGHT_GRAD
    return rows.StepItem(name=name, phase=phase, work=_work(own), role=rows.Role(role))


def _block(first: list[Any], layers: list[Any]) -> Any:
    made = tuple(tuple(map(_row, layer)) for layer in layers)
    return rows.Microbatch(embedding=tuple(map(_row, first)), layers=made, head=())


def _degrees(plain: dict[str, Any]) -> dict[str, Any]:
    """What a workload was made for: a noun in the old program, fields in the new one."""
    if hasattr(rows, "MadeFor"):
        return {"made_for": rows.MadeFor(**plain)}
    fields: dict[str, Any] = {name: plain[name] for name in ("npus", "expert_tp") if name in plain}
    sizes = {name: size for name, size in plain.items() if name not in fields}
    return {"degrees": rows.degrees_of(**sizes), **fields}


def _workload(plain: dict[str, Any]) -> Any:
    return rows.Workload(
        source="random",
        **_degrees(plain["made_for"]),
        pp_comm_bytes=plain["pp_comm_bytes"],
        microbatches=tuple(_block(*each) for each in plain["microbatches"]),
        per_step=tuple(_item(*each) for each in plain["per_step"]),
    )


if __name__ == "__main__":
    print_answers(answers, stepsim.StepsimError)
