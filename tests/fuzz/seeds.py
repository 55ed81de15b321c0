"""Documents that mutations start from: the project's own, cut short, and small ones made here.

Reference material beside the project is used too where it is present.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from helpers import uniform_workload
from sweeps import Quick, exported, grouped, study
from traces import MadeRun

import stepsim
from stepsim.explain.as_profile import profile_of_step
from stepsim.explore.sweep import run_sweep
from stepsim.measured.profile.events import Profile

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path(os.environ.get("STEPSIM_SHARED", ROOT.parent / "shared")) / "reference"

CALIBRATION = """schema_version = 1
sources = ["a run"]
traces = ["run"]
node_size = 8
unidentified = [["optimizer", "one rank"]]
[host_overhead]
value = "312.5 us"
residual = 0.11
samples = 96
[gradient_scaling]
value = "211.5 GB/s"
residual = 0.02
samples = 4
[[point_to_point]]
placement = "intra_node"
latency = "8.2 us"
bandwidth = "21.3 GB/s"
residual = 0.07
samples = 128
sizes = [8388608]
both_ways = true
[[expert_imbalance]]
source = "a run"
ep = 4
experts = 8
mean = 1.12
largest = 1.43
samples = 16
[[layer_times]]
source = "a run"
hidden = 4096
sequence = 1024
tp = 1
ep = 4
forward = "3.25 ms"
backward = "6.5 ms"
first_forward = "0.4 ms"
first_backward = "0.1 ms"
last_forward = "1.2 ms"
last_backward = "2.3 ms"
get_batch = "0.2 ms"
loss = "0.05 ms"
[[collective]]
machine = "A100"
source = "nccl"
kind = "all_reduce"
ranks = 8
nodes = 1
sizes = [1024, 1048576, 134217728]
times = ["21.5 us", "40.25 us", "1201 us"]
"""
SWEEP = """workload = "gpt_tp4.txt"
[axes]
fabric.bandwidth = "100..800 Gbps:8"
microbatches = [8, 16]
schedule = "1f1b,interleaved:2"
dp_overlap = [true, false]
[options]
topology = "hgx-h100"
dp-overlap = true
host_overhead = "10 us"
npus = 64
[output]
database = "sweep.sqlite"
export = ["sweep.csv"]
plot = "sweep.png"
plot_axes = "fabric.bandwidth,microbatches"
[run]
jobs = 2
executor = "local"
"""
STEP_TABLE = (
    "workload,topology,schedule,microbatches,slow,expert_load,dp_overlap,measured_s\n"
    "gpt.txt,hgx-h100,1f1b,32,0:1.5,,true,4.21\n"
    '"moe, small.txt",nets/a.toml,interleaved:2,,,skew:1.2,false,0.5\n'
)
STEP_TABLE_TOML = """[[run]]
workload = "gpt.txt"
measured_s = 4.2
microbatches = 32
dp_overlap = false
compute_scale = "0.5"
[[run]]
workload = "moe.txt"
topology = "hgx-a100"
measured_s = 1
"""
COMM_TABLE = """kind,ranks,nodes,bytes,time_us,busbw_GBs,machine,source
all_reduce,8,1,1024,21.5,0.083,A100,x
all_reduce,8,1,1048576,40.25,45.6,A100,x
all_reduce,8,1,134217728,1201.0,195.6,A100,x
"all_gather",16,2,1MiB,50,,A100,y
"""
NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5
#  Rank  0 Group  0 Pid 4000 on host0 device  0 [0000:00:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 4001 on host0 device  1 [0000:01:00] NVIDIA H100 80GB HBM3
# Collective test starting: all_reduce_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)
#       size         count      type   redop    root     time   algbw   busbw #wrong
        1024           256     float     sum      -1    12.00    0.09    0.09      0
     1048576        262144     float     sum      -1    20.00   52.43   52.43      0
   134217728      33554432     float     sum      -1   800.00  167.77  167.77      0
# Avg bus bandwidth    : 73.4
"""
PUBLISHED = """id,source,model,hidden,layers,heads,kv_heads,head_dim,ffn,act,vocab,gpu,n_gpus,gpn,\
seq,gbs,mbs,tp,pp,dp,precision,recompute,framework,step_s
a,x,small,1024,4,16,16,64,4096,gelu,50304,h100,8,8,2048,64,1,2,2,2,bf16,none,megatron-core,0.5
b,x,mixed,1024,4,16,4,64,2816,swiglu,32000,a100-80gb,8,8,2048,64,2,1,1,8,bf16,full,nanotron,0.7
"""
PLAN = """model = "gpt2"
topology = "hgx-h100"
[options]
npus = 2
microbatches = 2
tp = 2
"""
ASTRA = """topology: [ Ring, FullyConnected, Switch ] # kinds
npus_count: [ 4, 2, 8 ]
bandwidth: [ 50.0, 25, 12.5 ]  # GB/s
latency: [ 500.0, 700, 0 ]     # ns
"""
SMALL_WORKLOAD = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 pp: 1 \
vpp: 1 ga: 1 all_gpus: 2 checkpoints: 0 checkpoint_initiates: 0 pp_comm: 1024
5
grad_param_comm -1 0 NONE 0 0 NONE 0 1 REDUCESCATTER 4096 100
embedding_layer -1 1000 NONE 0 1000 NONE 0 1000 NONE 0 100
attention -1 2000 ALLREDUCE 4096 2000 ALLREDUCE 4096 1500 NONE 0 100
mlp -1 3000 ALLREDUCE 4096 3000 NONE 0 2500 NONE 0 100
attention -1 2000 NONE 0 2000 NONE 0 1500 NONE 0 100
"""
SIMAI_NETWORK = """7 2 2 1 8 H100
4 5 6
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 400Gbps 0.0005ms 0
1 6 400Gbps 0.0005ms 0
2 6 400Gbps 0.0005ms 0
3 6 400Gbps 0.0005ms 0
"""
EXPLICIT = """name = "pair"
source = "test"
npus = 2
[[link_class]]
name = "cable"
bandwidth = "1 GB/s"
latency = "1 us"
[[link]]
from = "npu0"
to = "leaf"
link_class = "cable"
[[link]]
from = "leaf"
to = "npu1"
link_class = "cable"
"""
_RATES = 'bandwidth = "400 Gbps"\nlatency = "500 ns"\n'
_OUTER = f'[[dimension]]\nname = "net"\n{_RATES}'
NESTED = f"""name = "nested"
source = "test"
[collective]
launch_latency = "3 us"
algorithms = ["ring", "double_binary_tree"]
[[dimension]]
name = "inner"
kind = "switch"
size = 4
nics = 2
{_RATES}reduces = true
reduce_efficiency = 0.8
"""
SHAPES = (
    'kind = "rail"\nsize = "auto"\nendpoint_latency = "1.5 us"\nefficiency = 0.5\n',
    'kind = "torus"\nshape = [2, 2, 2]\n',
    'kind = "mesh"\nshape = [2, 3]\n',
    'kind = "cables"\ncables = [[0, 1], [1, 2], [0, 2]]\n',
    'kind = "fat_tree"\nsize = 4\nleaf = 4\nspines = 2\npod = 8\ncores = 2\nrails = true\n',
    'kind = "fat_tree"\nradix = 4\n',
    'kind = "fat_tree"\nsize = "auto"\nleaf = 8\noversubscription = 2.0\n',
    'kind = "dragonfly"\nrouters = 2\nnpus_per_router = 4\nglobal_links = 1\nsize = 4\n',
    'kind = "ring"\nsize = 4\n',
    'kind = "fully_connected"\nsize = 3\n',
)


def shortened(text: str, head: int = 24, tail: int = 8) -> bytes:
    """The first and last lines of a text."""
    lines = text.splitlines()
    return "\n".join(lines if len(lines) < head + tail else lines[:head] + lines[-tail:]).encode()


@cache
def workloads() -> tuple[bytes, ...]:
    """One microbatch or two of every workload file, and one with other policies."""
    files = [*_files(ROOT / "workloads", "*.txt"), *_files(REFERENCE / "workloads", "*.txt")]
    customized = (
        "HYBRID_CUSTOMIZED\n2\n"
        "conv -1 500 NONE 0 400 NONE 0 300 ALLREDUCE 1024 10 DATA\n"
        "fc -1 50 ALLGATHER 64 40 REDUCESCATTER 64 30 NONE 0 10 MODEL\n"
    )
    return (*(shortened(_text(path)) for path in files), customized.encode())


@cache
def topology_tomls() -> tuple[bytes, ...]:
    """Shipped topologies, every kind of dimension, listed links."""
    shipped = [path.read_bytes() for path in _files(ROOT / "topologies", "*.toml")]
    kinds = [f"{NESTED}{_OUTER}{shape}".encode() for shape in SHAPES]
    return (*shipped, *kinds, EXPLICIT.encode())


@cache
def simai_networks() -> tuple[bytes, ...]:
    """A small cluster, and reference files."""
    files = _files(REFERENCE / "topologies", "Spectrum*")
    return (SIMAI_NETWORK.encode(), *(path.read_bytes() for path in files))


@cache
def schedules() -> tuple[bytes, ...]:
    """Small schedules of several kinds, as torch's CSV."""
    from stepsim.files.schedule_csv import format_schedule
    from stepsim.parallel.schedules import build

    shapes = [("1f1b", 2, 4), ("interleaved:2", 2, 4), ("zb-h1", 3, 3), ("dualpipe", 2, 4)]
    shapes += [("dualpipe-v", 2, 4), ("gpipe", 1, 2), ("looped-bfs:2", 2, 2)]
    built = [build(name, ranks=ranks, microbatches=count) for name, ranks, count in shapes]
    return tuple(format_schedule(schedule).encode() for schedule in built)


@cache
def traces() -> tuple[bytes, ...]:
    """The first rank of simulated runs, and the beginning of a measured one."""
    shapes = [(2, 2, "1f1b"), (3, 3, "1f1b"), (2, 2, "gpipe"), (1, 1, "1f1b")]
    made = [_trace(stages, count, schedule, 0) for stages, count, schedule in shapes]
    measured = ROOT / "workloads" / "measured" / "megatron_moe_rank0.txt"
    return (*made, shortened(_text(measured), 10, 4))


@cache
def second_trace() -> bytes:
    """The other rank of the first run."""
    return _trace(2, 2, "1f1b", 1)


def _trace(stages: int, microbatches: int, schedule: str, rank: int) -> bytes:
    times = [10.0, 12.0, 11.0][:stages]
    run = MadeRun(forward=times, backward=times, microbatches=microbatches, schedule=schedule)
    with tempfile.TemporaryDirectory() as folder:
        return _files(run.write(Path(folder) / "run"), "*.txt")[rank].read_bytes()


@cache
def optimus_logs() -> tuple[bytes, ...]:
    """The settings, two steps of two stages, and batches."""
    header = "[rank:{0} stage:{0}] transformer-block(module) forward time (no send/recv) - step {1}"
    layer = "  layer[{0}]: total=38.362ms, ops=256, avg/op=0.150ms"
    lines = [f"> {name}: {value}" for name, value in zip(_SETTINGS, (2, 1, 1, 8, 2), strict=True)]
    for step in (1, 2, 3):
        for stage in (0, 1):
            lines += [header.format(stage, step), layer.format(stage), layer.format("embed")]
        lines.append(f"| epoch   1 |   {step}/  323 batches | lr 0.00 | ms/batch 1600.43 | loss 2")
    files = _files(REFERENCE / "measured" / "optimus_a40", "*.txt")
    return ("\n".join(lines).encode(), *(_of_interest(_text(path)) for path in files))


def _of_interest(log: str) -> bytes:
    """The first lines of a log that say anything, and the first times of batches."""
    lines = log.splitlines()
    said = [line for line in lines if "layer[" in line or "forward time" in line or "> " in line]
    return "\n".join(said[:90] + [line for line in lines if "ms/batch" in line][:4]).encode()


_SETTINGS = ("PP", "TP", "DP", "GBS", "MBS")


@cache
def chakra_folder() -> dict[str, bytes]:
    """A Chakra trace of two ranks, by the names of the files."""
    from stepsim.files.traces.chakra_write import write_chakra

    return _written(write_chakra)


def chakra() -> tuple[bytes, ...]:
    """The trace of its first rank."""
    return (next(iter(chakra_folder().values())),)


@cache
def kineto() -> tuple[bytes, ...]:
    """A PyTorch profiler trace of the first rank of two."""
    from stepsim.files.traces.kineto_write import write_kineto

    return (next(iter(_written(write_kineto).values())),)


def _written(write: Callable[[Profile, Path], list[Path]]) -> dict[str, bytes]:
    work = uniform_workload(forward=10**9, backward=10**9, pp=2, microbatches=2)
    result = stepsim.simulate(work, "hgx-h100", npus=2)
    profile = profile_of_step(result.timeline, source="made")
    with tempfile.TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in write(profile, Path(folder) / "run")}


@cache
def measurements() -> tuple[bytes, ...]:
    """Tables of collectives and outputs of nccl-tests."""
    files = _files(REFERENCE / "measured" / "nccl", "*.csv")
    small = (COMM_TABLE.encode(), NCCL.encode(), NCCL.replace("all_reduce", "alltoall").encode())
    return (*small, *(shortened(_text(path), 12, 2) for path in files))


@cache
def results() -> tuple[bytes, ...]:
    """Results of two steps."""
    workload = uniform_workload(forward=10**9, backward=2 * 10**9, pp=2, microbatches=2)
    found = (stepsim.simulate(workload, name, npus=2) for name in ("hgx-h100", "ring"))
    return tuple(result.to_json().encode() for result in found)


@cache
def reports() -> tuple[bytes, ...]:
    """What pages are made of: a result, a comparison, sensitivities."""
    from stepsim.face.steps import compare, sensitivity
    from stepsim.step.compare import ComparisonDocument

    workload = uniform_workload(forward=10**9, backward=2 * 10**9, pp=2, microbatches=2)
    comparison = compare(workload, ["1f1b", "gpipe"], topology="ring", npus=2)
    slopes = sensitivity(workload, topology="ring", npus=2)
    return (results()[0], ComparisonDocument.of(comparison).to_json(), slopes.to_json().encode())


@cache
def sweeps() -> tuple[bytes, ...]:
    """The database of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "sweep.sqlite"
        run_sweep(grouped(partial(Quick, failing=4), study(breakdown=True)), database, jobs=1)
        exported(database)
        return (database.read_bytes(),)


def encoded(*texts: str) -> tuple[bytes, ...]:
    """Texts as UTF-8."""
    return tuple(text.encode() for text in texts)


def _files(folder: Path, pattern: str) -> Sequence[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")
