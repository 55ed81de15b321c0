"""Every reader of files and every parser of command-line text, ready to be given any bytes.

A target takes bytes to the end of what the program does with them, see `checks`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz import checks, commands, model_checks, seeds

from stepsim.explore.sweep import parse_axis
from stepsim.network.one_collective import parse_ranks
from stepsim.views.window import parse_window
from stepsim.workload.scaling import parse_compute_scale

Run = Callable[[bytes, Path], object]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader: what mutations start from, and what is done with bytes in an empty folder.

    `run` raises StepsimError where the bytes are refused.
    """

    seeds: Callable[[], Sequence[bytes]]
    run: Run


def reader(
    name: str, check: Callable[[Path], object], made: Callable[[], Sequence[bytes]]
) -> Target:
    """A reader of files: the bytes are written to one of this name, which is checked."""

    def run(data: bytes, folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        check(path)

    return Target(seeds=made, run=run)


def texts(*examples: str) -> Callable[[], Sequence[bytes]]:
    """Seeds that are given as they are."""
    return lambda: seeds.encoded(*examples)


def words(parse: Callable[[str], object], *examples: str) -> Target:
    """A parser with examples of what it accepts; bytes arrive as the command line has them."""
    return Target(
        seeds=texts(*examples),
        run=lambda data, _: parse(data.decode("utf-8", "surrogateescape")),
    )


TARGETS: Mapping[str, Target] = {
    "workload": reader("w.txt", checks.check_workload, seeds.workloads),
    "topology-toml": reader("t.toml", checks.check_topology, seeds.topology_tomls),
    "topology-astra": reader("t.yml", checks.check_topology, texts(seeds.ASTRA)),
    "topology-simai": reader("t", checks.check_topology, seeds.simai_networks),
    "schedule-csv": reader("s.csv", checks.check_schedule, seeds.schedules),
    "sweep-toml": reader("s.toml", checks.check_sweep_file, texts(seeds.SWEEP)),
    "calibration-toml": reader("c.toml", checks.check_calibration, texts(seeds.CALIBRATION)),
    "step-table-csv": reader("m.csv", checks.check_step_table, texts(seeds.STEP_TABLE)),
    "step-table-toml": reader("m.toml", checks.check_step_table, texts(seeds.STEP_TABLE_TOML)),
    "expert-load": reader(
        "load.txt",
        checks.check_expert_load,
        texts("100 # first\n200\n0\n1.5e3\n", "1\n2\n3\n4\n5\n6\n7\n8\n"),
    ),
    "expert-counts": reader(
        "router.csv",
        checks.check_expert_counts,
        texts(
            "layer,microbatch,expert,tokens\n0,0,0,3\n0,0,1,1.5\n1,2,3,4\n",
            "expert,tokens,layer,microbatch,more\n7,1e3,0,0,x\n",
        ),
    ),
    "measurements": reader("m.csv", checks.check_measurements, seeds.measurements),
    "megatron-trace": reader("rank0.txt", checks.check_run, seeds.traces),
    "megatron-folder": reader("run/rank0.txt", checks.check_folder, seeds.traces),
    "chakra-trace": reader("t.0.et", checks.check_profile, seeds.chakra),
    "kineto-trace": reader("rank0.json", checks.check_profile, seeds.kineto),
    "ndtimeline": reader("a.parquet", checks.check_profile, model_checks.ndtimelines),
    "nsys-export": reader("a.sqlite", checks.check_profile, model_checks.nsys_exports),
    "trace-archive": reader("a.tar.gz", checks.check_profile, model_checks.archives),
    "step-log": reader(
        "train.log",
        model_checks.check_step_log,
        texts(model_checks.STEP_LOG, model_checks.TITAN, model_checks.DEEPSPEED),
    ),
    "model-config": reader("config.json", model_checks.check_model, model_checks.configurations),
    "megatron-script": reader("train.sh", model_checks.check_model, texts(model_checks.SCRIPT)),
    "megatron-yaml": reader("model.yaml", model_checks.check_model, texts(model_checks.ARGUMENTS)),
    "torchtitan-job": reader("job.toml", model_checks.check_launch, texts(model_checks.TITAN_JOB)),
    "bridge-overrides": reader("plan.sh", model_checks.check_launch, texts(model_checks.OVERRIDES)),
    "device-toml": reader("d.toml", model_checks.check_device, model_checks.devices),
    "framework-toml": reader("f.toml", model_checks.check_framework, model_checks.frameworks),
    "plan-toml": reader("p.toml", model_checks.check_plan, texts(seeds.PLAN)),
    "published-steps": reader("steps.csv", model_checks.check_published, texts(seeds.PUBLISHED)),
    "model-calibration": reader(
        "c.toml", model_checks.check_model_calibration, texts(model_checks.MODEL_CALIBRATION)
    ),
    "gemm-table": reader("g.csv", model_checks.check_gemm, texts(model_checks.GEMM)),
    "optimus-log": reader("log.txt", checks.check_log, seeds.optimus_logs),
    "result-json": reader("r.json", checks.check_result, seeds.results),
    "html-report": reader("r.json", checks.check_report, seeds.reports),
    "sweep-database": reader("s.sqlite", checks.check_sweep, seeds.sweeps),
    "command-line": Target(seeds=texts(*commands.COMMANDS), run=commands.run_command),
    "axis": words(
        parse_axis,
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
    "compute-scale": words(
        parse_compute_scale, "0.5", "forward=0.5,input_grad=0.6,weight_grad=1e1"
    ),
    "ranks": words(parse_ranks, "0-7,16", "0,1,2,3", "8-15"),
    "window": words(parse_window, "2s..3s", "0 ms..1.5 us", "1ns..2ns"),
    "sizes": words(checks.parse_sizes, "64MiB", "8..1GiB:x2", "1..4096", "100"),
    "algorithm": words(
        checks.parse_algorithm, "all_reduce=ring", "hierarchical:ring,direct auto", "nvls"
    ),
    "schedule-name": words(checks.parse_schedule, "1f1b", "interleaved:4", "zb-v", "looped-bfs:2"),
}
