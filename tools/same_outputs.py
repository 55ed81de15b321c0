r"""Show that two versions of stepsim give the same outputs: the same commands, run with both.

    python tools/same_outputs.py record --stepsim OLD/bin/stepsim --out old [--jobs 2]
    python tools/same_outputs.py record --stepsim NEW/bin/stepsim --out new [--jobs 2]
    python tools/same_outputs.py compare old new [--declared FILE] [--list]

`record` runs every command of `CASES` in a fresh folder that has this checkout's workloads and
topologies, the small `FILES`, and `shared` (reference material, by default beside the checkout),
and keeps what it prints, its exit code and the files it writes. `compare` prints a line per class
of differences, then how many commands are equal, and exits with 1 if a difference is not declared.
Both take `--only REGEX`, searched in the commands. Use the same checkout and libraries for both.

A line of a file of declared changes is a regex, a tab and a reason. The regex is searched in
`COMMAND [OUTPUT: CLASS]`, as in `^inspect .* \[stdout: look\]$`. A text that differs only in
spaces and in the lines around cells is of class `look`; other classes are suffixes and names.

Bytes are compared, of figures too, but for what differs between two runs of one version: `.sqlite`
(sweeps export CSV), compression of `.gz`, times of --verbose, free space in `doctor`, the order in
which 0.1.0 draws switches (lines of that .svg are sorted). Numbers of versions are taken out.
"""

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from string import Formatter

ROOT = Path(__file__).resolve().parents[1]
NESTED = (
    'name = "made"\nsource = "made up"\n[[dimension]]\nname = "net"\nbandwidth = "50 GB/s"\n'
    'latency = "500 ns"\nendpoint_latency = "1 us"\n'
)
WIRINGS = """\
ring: kind = "ring"; size = 8
pairs: kind = "fully_connected"; size = 8
torus: kind = "torus"; shape = [2, 4]
grown: kind = "torus"; shape = [2, 2, 2]; size = "auto"; efficiency = 0.9
mesh: kind = "mesh"; shape = [3, 4]
cables: kind = "cables"; cables = [[0, 1], [1, 2], [2, 3], [3, 0], [0, 1]]
switch: kind = "switch"; size = 8; nics = 2; reduces = true; reduce_efficiency = 0.8
shared: kind = "switch"; size = 8; npus_per_nic = 2
k_ary: kind = "fat_tree"; radix = 4
thin: kind = "fat_tree"; size = "auto"; leaf = 8; oversubscription = 2.0
pods: kind = "fat_tree"; size = 32; leaf = 4; spines = 2; pod = 16; cores = 2
dragonfly: kind = "dragonfly"; routers = 4; npus_per_router = 2; global_links = 1"""
CURVES = "all_gather,8,1,A100 reduce_scatter,8,1,A100 reduce_scatter,4,4,H100 all_reduce,8,1,H100"
FILES = {
    "nets/listed.toml": 'name = "listed"\nsource = "made up"\nnpus = 3\nlink_class = ['
    '{name = "a", bandwidth = "9 GB/s", latency = "1 us"}, '
    '{name = "b", bandwidth = "90 GB/s", latency = "2 us"}]\nlink = ['
    + ", ".join(f'{{from = "npu{n}", to = "hub", link_class = "{c}"}}' for n, c in enumerate("abb"))
    + "]\n",
    "nets/astra.yml": "topology: [ Ring, Switch ]\nnpus_count: [ 4, 4 ]\n"
    "bandwidth: [ 100.0, 25.0 ]  # GB/s\nlatency: [ 500.0, 1000.0 ]\n",
    "nccl.csv": "kind,ranks,nodes,machine,bytes,time_us\n"
    + "".join(f"{c},{2**n},{20 + 2**n / 2e5}\n" for c in CURVES.split() for n in range(8, 30, 3)),
    "all_reduce.log": "#  Rank  0 Group  0 Pid 4000 on host0 device  0 [0000:00:00] NVIDIA H100\n"
    "#  Rank  1 Group  0 Pid 4001 on host0 device  1 [0000:01:00] NVIDIA H100\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "     1048576        262144     float     sum      -1    20.00   52.43   52.43      0\n"
    "   134217728      33554432     float     sum      -1   800.00  167.77  167.77      0\n",
    "load.txt": "90\n110\n150\n50  # tokens\n",
    "stuck.csv": "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n2F0,2F1,2B0,2B1\n3F0,3F1,3B0,3B1\n",
    "steps.csv": "workload,topology,schedule,npus,pp,microbatches,measured_s\n"
    "workloads/gpt_tp4.txt,hgx-a100,interleaved:2,64,4,16,1.12\n",
    "steps.toml": '[[run]]\nworkload = "workloads/moe_128.txt"\nmeasured_s = 0.2\n'
    'host_overhead = "250us"\ntp_overlap = false\nslow = "0:1.5"\nexpert_skew = 1.2\n',
    "study.toml": 'workload = "workloads/moe_128.txt"\n[options]\nmicrobatches = 8\n'
    'dp-overlap = true\n[axes]\nfabric.bandwidth = "100..400 Gbps:3"\n'
    'schedule = ["1f1b", "zb-h1"]\n[output]\ndatabase = "study.sqlite"\n'
    'export = ["study.csv"]\nplot = "study.svg"\n[run]\njobs = 1\n',
    "machine.toml": 'schema_version = 1\nsources = ["made"]\ntraces = ["made"]\nnode_size = 8\n'
    '[host_overhead]\nvalue = "286.8 us"\nresidual = 0.05\nsamples = 508\n'
    '[[point_to_point]]\nplacement = "intra_node"\nlatency = "170.6 us"\nresidual = 0.01\n'
    'bandwidth = "40.06 GB/s"\nsamples = 224\nsizes = [8388608]\nboth_ways = true\n',
} | {
    f"nets/{name}.toml": NESTED + wiring.replace("; ", "\n")
    for name, wiring in (line.split(": ") for line in WIRINGS.splitlines())
}

SETS = r"""
command: simulate; compare; inspect; convert; diff; collective; sensitivity; noise; validate; report
  what-if; sweep; sweep-report; schema; doctor; calibrate; calibrate runs; calibrate nccl
shipped: dgx-v100; gb200-nvl72; hgx-a100; hgx-b200; hgx-h100; hgx-h200; ideal; rail-only-h100; ring
  spectrum-x-h100; tpu-v4; tpu-v5p
job: workloads/gpt_1024.txt -m 32; workloads/gpt_tp4.txt --npus 64 --pp 4 -m 8; {moe} -m 8
moe: workloads/moe_128.txt
measured: shared/reference/measured
workload: workloads/*.txt
read: simulate --json out.json; inspect; compare --schedules 1f1b --with simai-formula --json -
text: shared/reference/workloads/*.txt
run: shared/reference/measured/megatron_moe_16gpu/*
one: shared/reference/measured/optimus_a40/*; workloads/measured/*
bench: nccl.csv; all_reduce.log; shared/reference/measured/nccl/*.csv
seen: {run}; {one}; shared/reference/topologies/*; shared/reference/fabrics/*oci*
made: nets/*
network: hgx-h100; rail-only-h100
schedule: 1f1b; gpipe; interleaved:2; interleaved:4; looped-bfs:2; interleaved-zb:2; zb-h1; zb-v
  dualpipe; dualpipe-v; auto-zb
kind: all_reduce; all_gather; reduce_scatter; all_to_all; broadcast; reduce; gather; scatter
study: simulate --json out.json; sensitivity --json out.json; noise --samples 50 --json out.json
  sweep --set 'launch_latency=0,1 us' --export out.csv
varied: --p2p eager; --p2p blocking; --p2p overlap; --warmup-flush; --deallocate-outputs; --verbose
  --group-size 8; --warmup-flush --deallocate-outputs --group-size 8; --stage-rows every; --quiet
  --tp-overlap off; --dp-overlap; --dp-overlap --dp-bucket 20MB; --contention fair; --strict; --pp 2
  --dp-overlap --contention fair; --algorithm all_reduce=ring; --expert-load load.txt; --no-fold
  --algorithm all_to_all=ring --algorithm all_gather=direct; --comm-table nccl.csv; --chunks 2
  --comm-table nccl.csv --comm-source A100; --expert-skew 1.5; --slow 12:1.3,40-47:1.1; --npus 256
  --comm-table nccl.csv --comm-table all_reduce.log --comm-source '!A100'; --host-overhead 250us
  --get-batch 1ms; --loss-time 3ms; --fused-factor 0.8; --memory-limit 1.5; --activation-size 2GiB
  --pp 8 --npus 512; --microbatch-size 2; -t nets/grown.toml; --compute-scale 0.5
  --compute-scale forward=0.5,input_grad=0.6,weight_grad=0.7; --rank-order tp-pp-dp
  --rank-order dp-tp-pp; -t spectrum-x-h100; --calibration machine.toml
special: --schedule auto-zb --memory-limit 1.5; --schedule dualpipe --fused-factor 0.8; -t hgx-a100
  --schedule interleaved --chunks 4; --calibration machine.toml --host-overhead 1us; --no-fold
  --comm-table {bench}; --calibration machine.toml --comm-table nccl.csv; --npus 256
refused: --npus 100; --npus 0; --npus many; --pp 3; -m 0; --global-batch 3; --global-batch 8 -m 2
  --schedule 2f2b; --schedule interleaved:x; --chunks 2; --group-size 4; --schedule stuck.csv
  --schedule interleaved:2 --chunks 4; --csv -; --schedule dualpipe -m 2; --p2p magic; --slow 12
  --schedule zb-h1 --p2p blocking; --stage-rows all; --style wide; --compute-scale fast; -t nowhere
  --compute-scale=-1; --host-overhead 5; -t nowhere.toml; -t nets/ring.toml; --algorithm magic
  --ranks 0; --messages; --algorithm all_reduce=magic; --contention unfair; --dp-bucket 0
  --expert-skew 0.5; --slow 999:2; --trace t.txt; --expert-load load.txt --expert-skew 2; --nonsense
  --comm-table missing.csv; --comm-source A100; --plot p.gif; --rank-order tp-tp; --fused-factor=-1
  --activation-size 2; --tp-overlap maybe; --report r.txt; --trace t.json --ranks 999; --node-size 8
  --json missing/r.json; --plot p.svg --csv p.svg; --calibration missing.toml
axis: 'fabric.bandwidth=100..400 Gbps:4'; 'fabric.bandwidth=25..800 Gbps:4 log'; global_batch=64,128
  'fabric.latency=0..900 ns:3'; 'nvlink.endpoint_latency=0,1 us'; fabric.efficiency=0.8..1:3
  'launch_latency=0..10 us:3'; compute_scale=0.5..1.5:3; 'host_overhead=0..300 us:3'; npus=128,256
  'get_batch=0,1 ms'; 'loss_time=0,1 ms'; schedule=1f1b,interleaved:2,dualpipe-v; expert_skew=1..2:3
  microbatches=4..16:4; pp=2,4,8; microbatch_size=1,2; p2p=eager,blocking,overlap; tp_overlap=on,off
  contention=none,fair; stage_rows=ends,every; dp_overlap=on,off; algorithm=ring,all_reduce=nvls
  'dp_bucket=40,160 MB' --dp-overlap; chunks=1,2 --schedule interleaved -m 8
  fused_factor=0.8,1 --schedule dualpipe -m 8; rank_order=tp-dp-pp,dp-tp-pp
style: png; pdf --style page; svg --style column
typed: simulate --schedule int; compare --topology hg; collective --kind all_; simulate --p2p e
drawn: simulate {moe}; simulate {moe} -m 8 --schedule zb-v --messages; inspect nets/torus.toml
  compare {moe} -m 8 --schedules 1f1b,zb-v --messages; sensitivity {moe}; noise {moe} --samples 100
  noise {moe} --samples 50 --set 'fabric.bandwidth=100..400 Gbps:3' --set schedule=1f1b,gpipe
  collective --kind all_reduce --size 8..1GiB:x16 --ranks 0-63 --algorithm ring,nvls
  sweep {moe} --set compute_scale=0.5,1 --set microbatches=2..4 --plot-kind bound --pareto p.svg
  sweep {moe} --set microbatches=4..16:4 --set schedule=1f1b,zb-h1 --plot-kind bubble
  validate {measured}/*gpu/pp2*; simulate {measured}/*gpu/pp4*sl1024
traced: simulate {moe}; simulate {moe} -m 8 --schedule dualpipe --contention fair --dp-overlap
  compare {moe}; simulate workloads/measured/megatron_moe_rank0.txt
result: simulate {moe}; compare {moe}; sensitivity {moe} -m 4; noise {moe} --seed 3
swept: stepsim sweep {moe} --set pp=2,4 --set microbatches=4,8 --breakdown --db sweep.sqlite
shown: --export a.csv; --plot out.svg --style column; --plot-axes pp,microbatches --plot out.svg
  --plot-kind breakdown --plot out.svg; --pareto out.svg; --report out.html; --export out.parquet
  --plot-axes schedule --plot out.svg; --plot-kind magic --plot out.svg
resumed: --resume --export out.csv; --resume --dp-overlap; --db load.txt; -q
whole: collective --kind send_recv --size 8..1GiB:x64 --ranks 0,8 --algorithm all; stepsim # nothing
  --version; doctor; doctor --json out.json; schema; sweep study.toml; validate steps.csv
  what-if {measured}/*gpu/pp4*sl4096 --node-size 4 --bandwidth inter_node=1GB/s -q
  validate {run} --node-size 4; sweep study.toml --pp 2 --db a.sqlite --set schedule=gpipe
  simulate {moe} --report out.html; sweep {moe} --set npus=128,256 -t nets/grown.toml -q
  sweep {moe} --set pp=2,4 --jobs 2 --export a.csv --report out.html
  compare {moe} --report out.html; convert interleaved a.csv --chunks 3 --pp 2 -m 4
  inspect {moe} --strict --verbose; validate {measured}/*gpu/* --leave-one-out --json out.json
  compare {moe} -m 16 --schedules auto-zb,dualpipe --memory-limit 1.5 --fused-factor 0.8
  collective --kind all_reduce --size 1GiB --algorithm hierarchical:ring,direct --json -
  noise {moe} --communication 0.1 --rank 0.03 --stragglers 0.1 --straggler-factor 1.2 --seed 7
  validate steps.csv steps.toml --calibration machine.toml --json out.json --plot out.svg
  validate steps.csv --nccl nccl.csv --comm-source A100 --max-error 1% -q
  calibrate {measured}/optimus_a40/* workloads/measured/llama_pp8_a40.txt -o out.toml
  simulate workloads/gpt_1024.txt --strict; inspect {moe} --pp 2 -m 4 --compute-scale 0.5 -q
  calibrate runs {measured}/*gpu/* -o out.toml --nccl nccl.csv --comm-source H100 -q
  calibrate {run} -o a.toml --node-size 4
wrong: simulate missing.txt; inspect missing.txt; inspect nowhere; simulat; noise; sweep
  inspect {moe} --json a.json; inspect nets/ring.toml --npus 9; inspect {moe} --node-size 8
  collective --kind magic --size 1MiB; collective --kind reduce --size x; convert 2f2b a.csv
  convert 1f1b a.txt --pp 4; collective --kind reduce --size 1MiB --ranks 9-1; schema magic
  collective --kind reduce; collective --kind send_recv --size 1MiB --ranks 0-2; sweep {moe}
  report {moe} -o a.txt; convert zb-v a.csv --pp 2 -m 2 --chunks 3; diff load.txt missing.json
  collective --kind reduce --size 1MiB --algorithm magic; report load.txt -o a.html; what-if {moe}
  sweep {moe} --set speed=1,2; validate load.txt; sweep {moe} --set pp=9..1; sweep-report load.txt
  sweep {moe} --set pp=2 --pp 2; sweep {moe} --set pp=7,11; sweep {moe} --set 'ib.latency=1,2 us'
  compare {moe} --with magic; sweep {moe} --set pp=1..9999 --set npus=1..9999 --set chunks=1..9999
  noise {moe} --samples 0; sweep {moe} --set pp=2,4 --plot a.svg --plot-axes npus; sweep-report a.db
  noise {moe} --task=-1; sweep {moe} --set pp=2,4 --executor dask --scheduler x
  calibrate nccl load.txt; noise {moe} --stragglers 2; validate steps.csv --max-error x
  validate steps.csv --times x; calibrate load.txt -o a.toml; calibrate nccl nccl.csv --latency x
what: --schedule interleaved:2 --layers 8; -m 32; --balance 5,3; --balance 3,2,2,1
  --bandwidth intra_node=1GB/s; -m 9 --bandwidth inter_node=40Gbps; --calibration machine.toml
replay: --json out.json --csv out.csv; --times mean; --times microbatch; --calibration machine.toml
  --node-size 4; --report out.html; --schedule zb-h1
fitted: --json out.json --table out.csv; -o out.toml; --source A100 -o out.toml --latency small
  --source H800 -o a.toml --node-bandwidth 1TB/s --fabric-bandwidth 9GB/s; --sizes -q --node-size 8
broken: s/50 GB.s/50/; s/"ring"/"rong"/; s/size = 8/size = 0/; /latency/d; s/=/:/; s/500 ns/-5 ns/
spoilt: 1s/HYBRID_[A-Z_]*/MAGIC/; 4s/ALLGATHER/ALLMAGIC/; 4s/^[^ \t]*//; 2s/.*/7/; 1s/pp: 4/pp: x/
  3s/100$/100 5 x y/; 1s/all_gpus: 128/all_gpus: 100/; 5s/1000/-1000/; 3,$d; s/$/\r/; s/REDUCE/re&/
"""
CASES = r"""
{command} --help
for i in $(stepsim schema | cut -d' ' -f1); do stepsim schema $i > $i.json; done
COMP_WORDS='stepsim {typed}' COMP_CWORD=3 _STEPSIM_COMPLETE=complete_bash stepsim
simulate {job} -t {network} --schedule {schedule} --json out.json
simulate {workload} -t {shipped} --json out.json
compare {job} --schedules 1f1b,gpipe,zb-h1,zb-v,dualpipe,auto-zb -t {network} --json out.json
inspect {workload} -t {network} --npus 2048 --global-batch 8192 --microbatch-size 2
{read} {text}
{study} {moe} --global-batch 64 --schedule interleaved:2 {varied}
compare {moe} --global-batch 64 --schedules 1f1b,interleaved:2 {varied} --json out.json
stepsim simulate {moe} -m 16 {special} --json b; stepsim simulate {moe} --json a; stepsim diff a b
cp all_reduce.log a.log; stepsim calibrate nccl a.log --kind all_reduce --json out.json
stepsim convert {schedule} a.csv --pp 4 -m 16 && stepsim simulate {moe} -m 16 --schedule a.csv
stepsim {result} --json a.json; stepsim report a.json -o out.html
{drawn} --plot out.{style}
{traced} --trace out.json --ranks 0,2-3
{traced} --trace out.json.gz
inspect {shipped} --npus 256 --json out.json --plot out.svg
inspect {made} --json out.json --plot out.svg
inspect {seen}
simulate workloads/gpt_tp4.txt --npus 8 -t {made} --contention fair --dp-overlap --json out.json
collective --kind {kind} --size 1KiB..1GiB:x64 -t {network} --ranks 0-31 --algorithm all
collective --kind {kind} --size 1KiB..1GiB:x64 -t nets/listed.toml --json out.json
collective --kind all_reduce --size 64KiB..1GiB:x128 -t {made} --algorithm all --json out.json
collective --kind all_gather --size 64MiB -t {shipped} --ranks 0-7,16 --algorithm all
noise {job} --task 0.05 --samples 100 --json out.json
sweep {moe} --set {axis} --breakdown --export out.csv
{swept}; stepsim sweep-report sweep.sqlite {shown}
{swept}; {swept} {resumed}
{whole}
{wrong}
inspect {run} --json out.json
simulate {one} --json out.json
simulate {run} {replay}
validate {run} --json out.json --plot out.svg
what-if {run} {what}
what-if workloads/measured/megatron_moe_rank0.txt {what}
stepsim calibrate {measured}/*gpu/pp4* -o a.toml; stepsim validate {run} --calibration a.toml
calibrate nccl {bench} {fitted}
simulate {moe} {refused}
sed '{broken}' nets/ring.toml > bad.toml; stepsim inspect bad.toml
sed '{spoilt}' {moe} > bad.txt; stepsim simulate bad.txt
"""

NORMALISED = (
    (r"^--version|\.(json|html|gz)$", rb'(stepsim |"version": ?")\d+(\.\w+)+', rb"\1VERSION"),
    (r"--verbose.* stderr$", rb"(?m)^ *\d+ ms", b"TIME"),
    (r"^doctor.* (stdout|out\.json)$", rb"\d+ GB free|\d+(\.\w+)+", b"NUMBER"),
)
"""Where (regex of `COMMAND OUTPUT`) something is taken out, what, and what stands for it."""
_AROUND_CELLS = re.compile(r"[\u2500-\u259f|]|(?<!\S)[-=+_]{2,}(?!\S)")


def commands(folder: Path) -> Iterator[str]:
    """Every command of CASES; patterns such as `workloads/*` are the files that they find."""
    sets = {
        name: re.split(r"\s*[;\n]\s*", texts)
        for name, texts in re.findall(r"^(\w+): (.*(?:\n  .*)*)", SETS, re.MULTILINE)
    }

    def expanded(text: str) -> Iterator[str]:
        names = list(dict.fromkeys(field[1] for field in Formatter().parse(text) if field[1]))
        if "/*" in text and " " not in text:
            yield from (str(path.relative_to(folder)) for path in sorted(folder.glob(text)))
        elif not names:
            yield text
        else:
            choices = ([one for each in sets[name] for one in expanded(each)] for name in names)
            for chosen in product(*choices):
                yield text.format(**dict(zip(names, chosen, strict=True)))

    for case in CASES.strip().splitlines():
        yield from expanded(case)


def fill(folder: Path, shared: Path) -> None:
    """Put what commands read into a folder."""
    for name, target in (("shared", shared), *((n, ROOT / n) for n in ("workloads", "topologies"))):
        (folder / name).symlink_to(target.resolve(strict=True))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by their paths; links are not followed."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def run(command: str, options: argparse.Namespace) -> None:
    """Run a command in a fresh folder, and keep what it prints and writes."""
    called = command if re.search(r"\bstepsim\b", command) else f"stepsim {command}"
    script = f'stepsim() {{ "{options.stepsim.absolute()}" "$@"; }}; {called}'
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    known |= {"COLUMNS": "240", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), options.shared)
        ran = subprocess.run(
            ["bash", "-c", script], cwd=name, env=known, input=b"", capture_output=True, check=False
        )
        inputs = {path: text.encode() for path, text in FILES.items()}
        outputs = dict(contents(Path(name)).items() - inputs.items())
    outputs |= {"command": command.encode(), "exit": b"%d" % ran.returncode}
    outputs |= {"stdout": ran.stdout, "stderr": ran.stderr}
    kept = options.out / hashlib.sha256(command.encode()).hexdigest()[:16]
    shutil.rmtree(kept, ignore_errors=True)
    for path, data in outputs.items():
        (kept / path).parent.mkdir(parents=True, exist_ok=True)
        (kept / path).write_bytes(data.replace(name.encode(), b"FOLDER"))


def record(options: argparse.Namespace) -> int:
    """Run the commands with one version."""
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), options.shared)
        chosen = [each for each in commands(Path(name)) if re.search(options.only, each)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda command: run(command, options), chosen))
    print(f"{len(chosen)} commands")
    return 0


def difference(command: str, name: str, *versions: bytes) -> str:
    """The class of the difference of an output; empty where it is the same."""
    if name.endswith(".gz"):
        versions = tuple(gzip.decompress(each) for each in versions)
    if command.startswith("inspect ") and name.endswith(".svg"):
        versions = tuple(b"\n".join(sorted(each.splitlines())) for each in versions)
    for where, what, instead in NORMALISED:
        if re.search(where, f"{command} {name}"):
            versions = tuple(re.sub(what, instead, each) for each in versions)
    if len(set(versions)) == 1 or name.endswith(".sqlite"):
        return ""
    if name not in ("stdout", "stderr") or versions[0].startswith(b"{"):
        return Path(name).suffix.lstrip(".") or name
    words = [_AROUND_CELLS.sub(" ", each.decode(errors="replace")).split() for each in versions]
    return "look" if words[0] == words[1] else name


def differences(command: str, *folders: Path) -> Iterator[tuple[str, str]]:
    """Each difference in what a command gave: its class, and it as declared changes name it."""
    if len(folders) == 1:
        yield "missing", f"{command} [missing]"
        return
    old, new = map(contents, folders)
    for name in sorted(old | new):
        both = name in old and name in new
        kind = difference(command, name, old[name], new[name]) if both else "written by one only"
        if kind:
            yield kind, f"{command} [{name}: {kind}]"


def compare(options: argparse.Namespace) -> int:
    """Print what differs between two versions; 1 if something is not declared."""
    declared = [line.split("\t", 1) for line in options.declared.read_text().splitlines() if line]
    found = defaultdict(list)
    for path in (each for folder in options.folders for each in folder.glob("*/command")):
        found[path.read_text()].append(path.parent)
    places, counts = defaultdict(list), Counter(equal=0, declared=0, different=0, missing=0)
    for command in sorted(each for each in found if re.search(options.only, each)):
        states = ["equal"]
        for kind, place in differences(command, *found[command]):
            reasons = [reason for regex, reason in declared if re.search(regex, place)]
            places[f"declared, {reasons[0]}" if reasons else kind].append(place)
            states.append("declared" if reasons else {"missing": kind}.get(kind, "different"))
        counts[max(states, key=list(counts).index)] += 1
    for kind, where in sorted(places.items()):
        print(f"{kind}: {len(where)}, first {where[0]}")
        print("".join(f"    {place}\n" for place in where if options.list), end="")
    print("commands:", ", ".join(f"{count} {state}" for state, count in counts.items()))
    return int(counts["different"] + counts["missing"] > 0 or not counts.total())


def main() -> None:
    """Record or compare, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(required=True)
    first = actions.add_parser("record", help="run the commands with one version")
    first.add_argument("--stepsim", type=Path, required=True, help="its executable")
    first.add_argument("--out", type=Path, required=True, help="folder for what it gives")
    first.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    first.add_argument("--jobs", type=int, default=1)
    second = actions.add_parser("compare", help="say where two versions differ")
    second.add_argument("folders", type=Path, nargs=2)
    second.add_argument("--declared", type=Path, default=Path(os.devnull), help="declared changes")
    second.add_argument("--list", action="store_true", help="print every difference")
    for action, do in ((first, record), (second, compare)):
        action.add_argument("--only", default="", help="regex of commands")
        action.set_defaults(do=do)
    options = parser.parse_args()
    sys.exit(options.do(options))


if __name__ == "__main__":
    main()
