"""Every reader of files and every parser of command-line text, ready to be given any bytes.

A target takes bytes to the end of what the program does with them, see `checks`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz import checks, commands, model_checks, seeds

Run = Callable[[bytes, Path], object]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader: what mutations start from, and what is done with bytes in an empty folder.

    `run` raises StepsimError where the bytes are refused.
    """

    seeds: Callable[[], Sequence[bytes]]
    run: Run
    weight: float = 1.0


def in_file(name: str, check: Callable[[Path], object]) -> Run:
    """Writes the bytes to a file of this name and checks it."""

    def run(data: bytes, folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        check(path)

    return run


def words(parse: Callable[[str], object], *texts: str) -> Target:
    """A parser with examples of what it accepts; bytes arrive as the command line has them."""
    return Target(
        seeds=lambda: seeds.encoded(*texts),
        run=lambda data, _: parse(data.decode("utf-8", "surrogateescape")),
    )


TARGETS: Mapping[str, Target] = {
    "workload": Target(seeds=seeds.workloads, run=in_file("w.txt", checks.check_workload)),
    "topology-toml": Target(
        seeds=seeds.topology_tomls, run=in_file("t.toml", checks.check_topology)
    ),
    "topology-astra": Target(
        seeds=lambda: seeds.encoded(seeds.ASTRA), run=in_file("t.yml", checks.check_topology)
    ),
    "topology-simai": Target(seeds=seeds.simai_networks, run=in_file("t", checks.check_topology)),
    "schedule-csv": Target(seeds=seeds.schedules, run=in_file("s.csv", checks.check_schedule)),
    "sweep-toml": Target(
        seeds=lambda: seeds.encoded(seeds.SWEEP), run=in_file("s.toml", checks.check_sweep_file)
    ),
    "calibration-toml": Target(
        seeds=lambda: seeds.encoded(seeds.CALIBRATION),
        run=in_file("c.toml", checks.check_calibration),
    ),
    "step-table-csv": Target(
        seeds=lambda: seeds.encoded(seeds.STEP_TABLE), run=in_file("m.csv", checks.check_step_table)
    ),
    "step-table-toml": Target(
        seeds=lambda: seeds.encoded(seeds.STEP_TABLE_TOML),
        run=in_file("m.toml", checks.check_step_table),
    ),
    "expert-load": Target(
        seeds=lambda: seeds.encoded("100 # first\n200\n0\n1.5e3\n", "1\n2\n3\n4\n5\n6\n7\n8\n"),
        run=in_file("load.txt", checks.check_expert_load),
    ),
    "expert-counts": Target(
        seeds=lambda: seeds.encoded(
            "layer,microbatch,expert,tokens\n0,0,0,3\n0,0,1,1.5\n1,2,3,4\n",
            "expert,tokens,layer,microbatch,more\n7,1e3,0,0,x\n",
        ),
        run=in_file("router.csv", checks.check_expert_counts),
    ),
    "measurements": Target(
        seeds=seeds.measurements, run=in_file("m.csv", checks.check_measurements)
    ),
    "megatron-trace": Target(seeds=seeds.traces, run=in_file("rank0.txt", checks.check_run)),
    "megatron-folder": Target(
        seeds=seeds.traces, run=in_file("run/rank0.txt", checks.check_folder)
    ),
    "chakra-trace": Target(seeds=seeds.chakra, run=in_file("t.0.et", checks.check_profile)),
    "kineto-trace": Target(seeds=seeds.kineto, run=in_file("rank0.json", checks.check_profile)),
    "ndtimeline": Target(
        seeds=model_checks.ndtimelines, run=in_file("a.parquet", checks.check_profile)
    ),
    "nsys-export": Target(
        seeds=model_checks.nsys_exports, run=in_file("a.sqlite", checks.check_profile)
    ),
    "trace-archive": Target(
        seeds=model_checks.archives, run=in_file("a.tar.gz", checks.check_profile)
    ),
    "step-log": Target(
        seeds=lambda: seeds.encoded(
            model_checks.STEP_LOG, model_checks.TITAN, model_checks.DEEPSPEED
        ),
        run=in_file("train.log", model_checks.check_step_log),
    ),
    "model-config": Target(
        seeds=model_checks.configurations, run=in_file("config.json", model_checks.check_model)
    ),
    "megatron-script": Target(
        seeds=lambda: seeds.encoded(model_checks.SCRIPT),
        run=in_file("train.sh", model_checks.check_model),
    ),
    "megatron-yaml": Target(
        seeds=lambda: seeds.encoded(model_checks.ARGUMENTS),
        run=in_file("model.yaml", model_checks.check_model),
    ),
    "torchtitan-job": Target(
        seeds=lambda: seeds.encoded(model_checks.TITAN_JOB),
        run=in_file("job.toml", model_checks.check_launch),
    ),
    "bridge-overrides": Target(
        seeds=lambda: seeds.encoded(model_checks.OVERRIDES),
        run=in_file("plan.sh", model_checks.check_launch),
    ),
    "device-toml": Target(
        seeds=model_checks.devices, run=in_file("d.toml", model_checks.check_device)
    ),
    "framework-toml": Target(
        seeds=model_checks.frameworks, run=in_file("f.toml", model_checks.check_framework)
    ),
    "plan-toml": Target(
        seeds=lambda: seeds.encoded(seeds.PLAN), run=in_file("p.toml", model_checks.check_plan)
    ),
    "published-steps": Target(
        seeds=lambda: seeds.encoded(seeds.PUBLISHED),
        run=in_file("steps.csv", model_checks.check_published),
    ),
    "model-calibration": Target(
        seeds=lambda: seeds.encoded(model_checks.MODEL_CALIBRATION),
        run=in_file("c.toml", model_checks.check_model_calibration),
    ),
    "gemm-table": Target(
        seeds=lambda: seeds.encoded(model_checks.GEMM),
        run=in_file("g.csv", model_checks.check_gemm),
    ),
    "optimus-log": Target(seeds=seeds.optimus_logs, run=in_file("log.txt", checks.check_log)),
    "result-json": Target(seeds=seeds.results, run=in_file("r.json", checks.check_result)),
    "html-report": Target(seeds=seeds.reports, run=in_file("r.json", checks.check_report)),
    "sweep-database": Target(seeds=seeds.sweeps, run=in_file("s.sqlite", checks.check_sweep)),
    "command-line": Target(
        seeds=lambda: seeds.encoded(*commands.COMMANDS), run=commands.run_command
    ),
    "axis": words(
        checks.parse_axis,
        "fabric.bandwidth=100..800 Gbps:8",
        "nvlink.latency=1..1024 ns:11 log",
        "microbatches=8..16",
        "schedule=1f1b,interleaved:2",
        "algorithm=all_reduce=ring;auto",
        "dp_overlap=on,off",
        "compute_scale=0.5,1e0,2",
    ),
    "units": words(checks.parse_units, "500ns", "1.5 us", "64 MiB", "400Gbps", "50 GB/s", "inf"),
    "slow-ranks": words(checks.parse_slow, "12:1.3,40-47:1.1", "0-63:2e0"),
    "compute-scale": words(checks.parse_scale, "0.5", "forward=0.5,input_grad=0.6,weight_grad=1e1"),
    "ranks": words(checks.parse_ranks, "0-7,16", "0,1,2,3", "8-15"),
    "window": words(checks.parse_window, "2s..3s", "0 ms..1.5 us", "1ns..2ns"),
    "sizes": words(checks.parse_sizes, "64MiB", "8..1GiB:x2", "1..4096", "100"),
    "algorithm": words(
        checks.parse_algorithm, "all_reduce=ring", "hierarchical:ring,direct auto", "nvls"
    ),
    "schedule-name": words(checks.parse_schedule, "1f1b", "interleaved:4", "zb-v", "looped-bfs:2"),
}
