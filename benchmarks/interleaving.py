"""1F1B against interleaved 1F1B on gpt_1024 over NIC bandwidth and point-to-point mode.

Usage: python benchmarks/interleaving.py
Prints the tables of docs/interleaving.md.
"""

from pathlib import Path

from sizes import sized

import stepsim
from stepsim.base.axes import Part
from stepsim.base.structs import replace
from stepsim.base.units import parse_bandwidth
from stepsim.face.results import Result
from stepsim.network.topology import NestedTopology

WORKLOAD = Path(__file__).resolve().parents[1] / "workloads" / "gpt_1024.txt"
SCHEDULES = ("1f1b", "interleaved:2", "interleaved:4", "interleaved:8")
MODES = sized(("eager", "overlap", "blocking"), ("eager", "overlap"))
GBPS = sized((100, 200, 400, 800), (100,))
PATH_PARTS = {
    Part.COMPUTE: "compute",
    Part.EXPOSED_TP: "tp",
    Part.EXPOSED_DP: "dp",
    Part.EXPOSED_PP: "pp",
}


def fabric(gbps: int) -> NestedTopology:
    """HGX H100 with NICs of another rate."""
    topology = stepsim.load_topology("hgx-h100")
    assert isinstance(topology, NestedTopology)
    inner, outer = topology.dimensions
    link = replace(outer.link, bandwidth=parse_bandwidth(f"{gbps} Gbps"))
    return replace(topology, dimensions=(inner, replace(outer, link=link)))


def main() -> None:
    """Print step times, and what the critical path is made of."""
    workload = stepsim.load_workload(WORKLOAD)
    results: dict[tuple[int, str, str], Result] = {}
    for gbps in GBPS:
        topology = fabric(gbps)
        for schedule in SCHEDULES:
            for mode in MODES:
                results[gbps, schedule, mode] = stepsim.simulate(
                    workload, topology, schedule=schedule, p2p=mode
                )
    print("| NIC | p2p | " + " | ".join(SCHEDULES) + " |")
    print("|---|---|" + "---|" * len(SCHEDULES))
    for gbps in GBPS:
        for mode in MODES:
            times = [results[gbps, schedule, mode].step_time_s for schedule in SCHEDULES]
            cells = (f"{time:.2f} s ({times[0] / time:.3f})" for time in times)
            print(f"| {gbps} Gbps | {mode} | " + " | ".join(cells) + " |")
    print("\n| NIC | schedule, p2p | " + " | ".join(PATH_PARTS.values()) + " |")
    print("|---|---|" + "---|" * len(PATH_PARTS))
    for gbps in dict.fromkeys((GBPS[0], GBPS[-1])):
        for schedule in (SCHEDULES[0], SCHEDULES[-1]):
            for mode in MODES:
                report = results[gbps, schedule, mode].report
                shares = (report.critical_path_ps[p.key] / report.step_time_ps for p in PATH_PARTS)
                row = " | ".join(f"{share:.1%}" for share in shares)
                print(f"| {gbps} Gbps | {schedule}, {mode} | {row} |")
    print("\n| interleaved:8 at 100 Gbps, overlap | step |\n|---|---|")
    for name, warmup_flush, deallocate_outputs in (
        ("as above", False, False),
        ("warm-up and flush overlapped", True, False),
        ("outputs deallocated, as Megatron trains", False, True),
    ):
        result = stepsim.simulate(
            workload,
            fabric(100),
            schedule="interleaved:8",
            p2p="overlap",
            warmup_flush=warmup_flush,
            deallocate_outputs=deallocate_outputs,
        )
        print(f"| {name} | {result.step_time_s:.2f} s |")

    print(
        "\n| microbatches | 1f1b, blocking | interleaved:4, overlap | speed-up |\n|---|---|---|---|"
    )
    for count in sized((16, 32, 64, 128, 256), (16,)):
        plain, mixed = (
            stepsim.simulate(workload, fabric(400), schedule=name, microbatches=count).step_time_s
            for name in ("1f1b", "interleaved:4")
        )
        print(f"| {count} | {plain:.2f} s | {mixed:.2f} s | {plain / mixed:.3f} |")


if __name__ == "__main__":
    main()
