"""Print docs/kernels.md: how well the times of operators meet measured kernels.

python benchmarks/accuracy_kernels.py ../shared > docs/kernels.md
python benchmarks/accuracy_kernels.py ../shared --fit      the constants of devices/*.toml again
"""

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from scipy.optimize import minimize
from sizes import arguments

from stepsim.base.arrays import Bools, Floats
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
    Mixer,
)
from stepsim.workload.model.blocks import collapse_streams, expand_streams, layer_blocks
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.compressed_attention import CompressedAttention
from stepsim.workload.model.delta_net import TRITON_CHANNEL_OPERATIONS, GatedDeltaNet
from stepsim.workload.model.device import (
    TILE_COLUMNS,
    TILE_ROWS,
    Device,
    GroupedRate,
    GroupedShape,
    ScanRate,
)
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.mamba import CHANNEL_OPERATIONS, Mamba2
from stepsim.workload.model.operators import attention_operators, convolution, grouped
from stepsim.workload.model.parts import Operator, OperatorKind
from stepsim.workload.model.pricing import Pricer
from stepsim.workload.model.sparse_attention import SparseLatentAttention
from stepsim.workload.plan import Plan, PlanTable

GPUS = ("H100", "H200", "B200", "GB200")
SETS = ("H100", "B200")
"""One GPU of each generation sets constants; the other one is judged."""

FAMILIES = MappingProxyType({"H100": "flash3", "H200": "flash3"})
BARE = Framework(
    name="kernels",
    memory_factor=1.0,
    host_layer_ps=0,
    host_expert_layer_ps=0,
    attention=FAMILIES,
)
US = 1e6
Row = dict[str, str]


class Line(Struct, frozen=True, kw_only=True):
    """Shapes of one operator on one GPU: seconds measured, predicted, and of the roofline.

    `sets` says whether the GPU set the operator's constants.
    """

    table: str
    operator: str
    gpu: str
    sets: bool
    measured: Floats
    predicted: Floats
    roofline: Floats

    @property
    def errors(self) -> Floats:
        """Predicted over measured, minus 1."""
        return self.predicted / self.measured - 1

    @property
    def median(self) -> float:
        """The median size of the errors."""
        return float(np.median(np.abs(self.errors)))


HEAD = """# Accuracy of kernels

Made by `python benchmarks/accuracy_kernels.py ../shared > docs/kernels.md`. The fastest measured
kernel of each shape is compared with the price of what it does. H100 and B200 set the constants of
their generations. H200 and GB200 set none. Their numbers follow by peak, bandwidth, processors and
clock. Errors are predicted over measured, minus 1. Mean and median are of their sizes. A kernel
without limits does its work at the peak, or moves its bytes at the whole bandwidth. **Roofline** is
that time over the measured one.

The tables are forward kernels of serving
([aiconfigurator](https://github.com/ai-dynamo/aiconfigurator) 095f58a51, Apache-2.0), and training
kernels of [SimuMax](https://github.com/MooreThreads/SimuMax) 4dcaae5 (Apache-2.0).

## GPUs that set no constant
"""
ACROSS = """
## A generation that sets no constant

Blackwell with the shares, steps and starts of H100 alone. Chunks side by side do not follow the
peak: their constants belong to a generation. Power laws are as near as balanced loads.
"""
SETTING = """
## GPUs that set constants
"""
TAIL = """
## What takes the time

- **Scans** of linear attention are limited neither by their work nor by their bytes. Training runs
  chunks side by side. They reach 3 to 10 % of the bf16 peak, and hand a state to the next chunk in
  1 to 2 us. Serving runs one kernel, where a processor takes all chunks of a head, 2 to 4 us each.
  Heads beyond the processors wait for the next round.
- **Short convolutions** are limited by vectors: 46 operations for each channel and token in CUDA
  (Mamba-2), 54 in Triton (delta rules).
- **Attention to a window or to chosen keys** pays for more keys than it reads, 370 on Hopper, 520
  on Blackwell: tiles at both ends are computed whole. Serving also writes keys and values to a
  cache. That is in this comparison and not in a step.
- **Heads that share one key** are computed 64 at once, in latent attention on Blackwell 128. A rank
  with fewer heads takes as long.
- **Products of experts** take whole tiles of 64 tokens x 128. The last round of them is half empty.
  Reading weights adds as the root of the sum of both squares. What serving does around them is in
  this comparison: routing, sorting, activation, sums. The fullest rank counts, by 24 draws of the
  law that the source drew from.
- **Hyper-connections** and all else that moves bytes reach 0.8 of the bandwidth.

## Training

A step launches experts one by one at the rate of any product. Each costs 4 us more (`group_start`,
set on the 36 forwards of B200), unless its framework says `groups_experts`. The backward costs, for
each forward:

- products of experts: the same work for each of both gradients. A weight's gradient is read and
  written, 8 bytes in fp32 or 4 in bf16. SimuMax lists its shapes twice, the second time in 0.6 of
  the time, which sums in bf16 explain.
- attention: 2.5 times the work at 0.72 to 0.78 of the rate. It has five products for two.
- scans: twice the work, a gradient for each factor, and the part of the forward again that makes
  states, which are not kept. The state passes twice.
- short convolutions: 1.5 times the bytes in a gated delta net. In Mamba-2, which runs the forward
  again, 2.5 times.
- hyper-connections of n streams: (3n + 1) / (n + 1) and (3n + 2) / (2n + 1) of the bytes.

## What no measurement holds

No time of a scan of Mamba-2 is in the tables. Its work is priced at the rate of chunked delta
rules. Backward kernels of scans and of sparse attention were not measured. MiniMax-M3's sparse
attention is not a block yet. {count} times of short convolutions are left out. They move more bytes
than the bandwidth allows, so their sizes cannot be what ran.
"""
COLUMNS = "| table | operator | GPU | shapes | median | mean | bias | roofline |"


def main() -> None:
    """Print the page, or the constants that fit the GPUs that set them."""
    folder = Path(arguments()[0]) / "reference" / "kernels"
    if "--fit" in sys.argv:
        for name, constants in fitted(folder):
            print(name, " ".join(f"{value:.4g}" for value in constants))
        return
    every = list(lines(folder))
    print(HEAD)
    print_table([line for line in every if not line.sets])
    print(ACROSS)
    across = [*scans(folder, hopper_like), *experts(folder, hopper_like)]
    blackwell = [line for line in across if device_of(line.gpu).generation == "blackwell"]
    print_table([line for line in blackwell if line.sets and "power law" not in line.operator])
    print(SETTING)
    print_table([line for line in every if line.sets and "power law" not in line.operator])
    left_out = sum(len(rows) - len(kept) for rows, kept in possible(folder).values())
    print(TAIL.format(count=left_out), end="")


def print_table(rows: Sequence[Line]) -> None:
    """A row of Markdown for each line."""
    print(COLUMNS)
    print("|---|---|---|---|---|---|---|---|")
    for line in rows:
        bias, reached = np.median(line.errors), np.median(line.roofline / line.measured)
        cells = [line.table, line.operator, line.gpu, f"{len(line.measured):,}"]
        cells += [f"{line.median:.1%}", f"{np.abs(line.errors).mean():.1%}", f"{bias:+.1%}"]
        print(f"| {' | '.join([*cells, f'{reached:.0%}'])} |")


def lines(folder: Path) -> Iterator[Line]:
    """All tables of a folder, GPU by GPU, and both passes of training kernels."""
    for table in (scans, convolutions, latent, windows, streams, sparse, experts):
        found = sorted(table(folder), key=lambda line: (line.operator, place_of(line.gpu)))
        yield from found
    yield from training(folder)


def place_of(gpu: str) -> int:
    """Where a GPU stands in tables: those that are not named above come last."""
    return GPUS.index(gpu) if gpu in GPUS else len(GPUS)


def of_generation(table: Mapping[str, tuple[float, float]], device: Device) -> tuple[float, float]:
    """What a table has for a device's generation, Hopper's where it has nothing."""
    return table.get(device.generation.partition("-")[0], table["hopper"])


def rows_of(path: Path) -> list[Row]:
    """Rows of a CSV; comments before its header are left out."""
    text = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#")))


def fastest(rows: Sequence[Row], keys: Sequence[str], time: str = "us") -> list[Row]:
    """The row of the fastest kernel of each shape."""
    best: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if key not in best or float(row[time]) < float(best[key][time]):
            best[key] = row
    return list(best.values())


def numbers(rows: Sequence[Row], name: str) -> Floats:
    """A column."""
    return np.array([float(row[name]) for row in rows])


def split(rows: Sequence[Row], *names: str) -> Iterator[tuple[tuple[str, ...], list[Row]]]:
    """Rows by the values of some columns."""
    parts: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(row[name] for name in names), []).append(row)
    yield from parts.items()


def device_of(gpu: str) -> Device:
    """The shipped device at the clocks of a short benchmark."""
    return replace(read_device(gpu), sustained=1.0)


def hopper_like(gpu: str) -> Device:
    """A device with the shares and the steps of H100, as if its own generation had set nothing."""
    first = device_of("H100")
    own = replace(device_of(gpu), grouped=first.grouped, scans=first.scans)
    return replace(own, generation=first.generation)


def shapes(rows: Sequence[Row], size: str = "batch") -> PlanTable:
    """Plans of one rank with the rows' samples and sequences."""
    return PlanTable(
        [
            Plan.of_batch(
                microbatch_size=int(row.get(size, 1)),
                global_batch=int(row.get(size, 1)),
                sequence=int(row["seq" if "seq" in row else "tokens"]),
                sequence_parallel=False,
            )
            for row in rows
        ]
    )


def price(device: Device, columns: PlanTable, operators: Sequence[Operator]) -> Floats:
    """Seconds of a forward of some operators."""
    return (
        Pricer(device=device, framework=BARE, columns=columns)
        .together(map(Pricer(device=device, framework=BARE, columns=columns).price_one, operators))
        .forward
    )


def roof(device: Device, flops: Floats | float, moved: Floats | float) -> Floats:
    """Seconds at the peak, or at the whole bandwidth: whatever takes longer."""
    peak = device.rates[Precision.BF16].peak
    return np.maximum(np.asarray(flops) / peak, np.asarray(moved) / device.memory_bandwidth)


def joined_parts(parts: Sequence[tuple[Floats, Floats, Floats]]) -> tuple[Floats, Floats, Floats]:
    """Measured, predicted and roofline of all parts."""
    measured, predicted, best = zip(*parts, strict=True)
    return np.concatenate(measured), np.concatenate(predicted), np.concatenate(best)


def joined(
    table: str, operator: str, gpu: str, parts: Sequence[tuple[Floats, Floats, Floats]]
) -> Line:
    """A line of several parts, each measured, predicted and roofline."""
    measured, predicted, best = joined_parts(parts)
    return Line(
        table=table,
        operator=operator,
        gpu=gpu,
        sets=gpu in SETS,
        measured=measured,
        predicted=predicted,
        roofline=best,
    )


SCANS = {
    "gated delta rule": ("gdn", {"chunked": ("chunk_gated",), "fused": ("flashinfer",)}),
    "Kimi delta rule": ("kda", {"chunked-kda": ("chunk_kda",), "fused-kda": ("flashkda",)}),
}
"""Operators of linear attention: the table's name, and what kernels of each family are called."""

SHAPE = ("gpu", "batch", "seq", "k_heads_or_groups", "k_dim_or_state", "v_heads", "v_dim")


def rule_of(row: Row) -> GatedDeltaNet:
    """The gated delta net of a row."""
    return GatedDeltaNet(
        heads=int(row["v_heads"]),
        key_heads=int(row["k_heads_or_groups"]),
        key_dim=int(row["k_dim_or_state"]),
        value_dim=int(row["v_dim"]),
    )


def family_of(row: Row) -> str:
    """The family of a row's kernel, empty for a convolution."""
    kernel = row["kernel"]
    kda = "-kda" if row["op"] == "kda" else ""
    if "conv" in kernel:
        return ""
    return ("fused" if "flash" in kernel else "chunked") + kda


def scan_parts(
    rows: Sequence[Row], device: Device, families: Sequence[str]
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Scans by the fastest of some families, heads by heads."""
    for _, alike in split(rows, "k_heads_or_groups", "v_heads"):
        columns, mixer = shapes(alike), rule_of(alike[0])
        rule = next(
            item
            for item in mixer.mixing(1024, columns)[1].operators
            if item.kind is OperatorKind.SCAN
        )
        assert rule.scanned is not None
        times = [
            price(device, columns, [replace(rule, scanned=replace(rule.scanned, family=family))])
            for family in families
        ]
        moved = 2.0 * columns.tokens * (2 * mixer.keys + 2 * mixer.inner)
        best = roof(device, rule.flops[0], moved)
        yield numbers(alike, "us") / US, np.minimum.reduce(times), best


def scans(folder: Path, known: Callable[[str], Device] = device_of) -> Iterator[Line]:
    """Linear attention: the fastest kernel, and those that training runs."""
    table = [row for row in rows_of(folder / "linear_attention.csv") if family_of(row)]
    for operator, (name, families) in SCANS.items():
        named = [row for row in table if row["op"] == name]
        for (gpu,), rows in split(named, "gpu"):
            device, every = known(gpu), tuple(families)
            parts = list(scan_parts(fastest(rows, SHAPE), device, every))
            yield joined("linear_attention", f"{operator}, fastest", gpu, parts)
            side = [row for row in rows if family_of(row).startswith("chunked")]
            parts = list(scan_parts(fastest(side, SHAPE), device, every[:1]))
            yield joined("linear_attention", f"{operator}, chunks side by side", gpu, parts)


def channels_of(row: Row) -> int:
    """Channels of a row's short convolution."""
    if row["op"] != "mamba2":
        return 2 * rule_of(row).keys + rule_of(row).inner
    mixer = Mamba2(
        heads=int(row["v_heads"]),
        head_dim=int(row["v_dim"]),
        groups=int(row["k_heads_or_groups"]),
        state=int(row["k_dim_or_state"]),
    )
    return mixer.inner + mixer.joint


def possible(folder: Path) -> dict[tuple[str, str], tuple[list[Row], list[Row]]]:
    """Convolutions by operator and GPU: all, and those whose bytes the bandwidth allows."""
    table = [row for row in rows_of(folder / "linear_attention.csv") if not family_of(row)]
    found = {}
    for (name, gpu), rows in split(table, "op", "gpu"):
        bandwidth = device_of(gpu).memory_bandwidth
        moved = 4.0 * numbers(rows, "batch") * numbers(rows, "seq")
        least = moved * np.array([channels_of(row) for row in rows]) / bandwidth
        real = numbers(rows, "us") / US > least
        found[name, gpu] = rows, [row for row, good in zip(rows, real, strict=True) if good]
    return found


def convolutions(folder: Path) -> Iterator[Line]:
    """Short convolutions; those of Kimi's rule are three, one after the other."""
    for (name, gpu), (_, rows) in possible(folder).items():
        each = CHANNEL_OPERATIONS if name == "mamba2" else TRITON_CHANNEL_OPERATIONS
        parts, device, count = [], device_of(gpu), 3 if name == "kda" else 1
        for row in fastest(rows, (*SHAPE, "d_model")):
            columns = shapes([row])
            moved = columns.tokens * channels_of(row)
            item = convolution(moved / count, backward=6.0, each=each)
            predicted = count * price(device, columns, [item])
            parts.append((numbers([row], "us") / US, predicted, roof(device, 0, 4.0 * moved)))
        yield joined("linear_attention", f"short convolution of {name}", gpu, parts)


def core_of(
    attention: GroupedAttention | LatentAttention, columns: PlanTable
) -> tuple[Operator, ...]:
    """The core attention of a layer."""
    return attention_operators(attention, 1024, columns)[1]


def latent(folder: Path) -> Iterator[Line]:
    """Core attention of MLA, with keys of 192 and values of 128."""
    for gpu, rows in latent_rows(folder).items():
        yield joined(
            "mla_attention_fwd", "latent attention", gpu, latent_parts(rows, device_of(gpu))
        )


def latent_rows(folder: Path) -> dict[str, list[Row]]:
    """The fastest kernels of latent attention by GPU."""
    rows = fastest(rows_of(folder / "mla_attention_fwd.csv"), ("gpu", "batch", "seq", "heads"))
    return {gpu: alike for (gpu,), alike in split(rows, "gpu")}


def latent_parts(rows: Sequence[Row], device: Device) -> list[tuple[Floats, Floats, Floats]]:
    """Latent attention by heads."""
    parts = []
    for (heads,), alike in split(rows, "heads"):
        columns = shapes(alike)
        attention = LatentAttention(
            heads=int(heads),
            query_rank=1536,
            kv_rank=512,
            nope_dim=128,
            rope_dim=64,
            value_dim=128,
        )
        core = core_of(attention, columns)
        best = roof(device, core[0].flops[0], 2.0 * columns.tokens * int(heads) * 640)
        parts.append((numbers(alike, "us") / US, price(device, columns, core), best))
    return parts


def latent_errors(folder: Path, gpu: str, found: Floats) -> Floats:
    """Logarithms of predicted over measured where wide heads reach a share that was found."""
    device = with_attention(device_of(gpu), wide=float(found[0]))
    measured, predicted, _ = joined_parts(latent_parts(latent_rows(folder)[gpu], device))
    return np.log(predicted / measured)


def with_attention(device: Device, **changed: float) -> Device:
    """The device with other numbers of its attention."""
    families = {name: replace(rate, **changed) for name, rate in device.attention.items()}
    return replace(device, attention=MappingProxyType(families))


CACHED = {"hopper": (6.2e-6, 4.1), "blackwell": (3.5e-6, 5.3)}
"""Launch of serving's attention to a window, and how often it moves keys and values to a cache."""


def windows(folder: Path) -> Iterator[Line]:
    """Core attention to a window, and what serving does besides."""
    for (gpu,), rows in split(rows_of(folder / "window_attention_fwd.csv"), "gpu"):
        device = device_of(gpu)
        parts = window_parts(rows, device, *of_generation(CACHED, device))
        yield joined("window_attention_fwd", "attention to a window", gpu, parts)


def window_parts(
    rows: Sequence[Row], device: Device, launch: float, passes: float
) -> list[tuple[Floats, Floats, Floats]]:
    """Attention to a window by heads, width and window."""
    parts = []
    for (heads, kv, dim, window), alike in split(rows, "heads", "kv_heads", "head_dim", "window"):
        columns = shapes(alike)
        attention = GroupedAttention(
            heads=int(heads), kv_heads=int(kv), head_dim=int(dim), window=int(window)
        )
        core = core_of(attention, columns)
        keys = 4.0 * columns.tokens * int(dim) * int(kv)
        moved = 4.0 * columns.tokens * int(dim) * int(heads) + keys
        best = roof(device, core[0].flops[0], moved)
        cache = launch + passes * keys / (0.9 * device.memory_bandwidth)
        predicted = cache + price(device, columns, core)
        parts.append((numbers(alike, "best_us") / US, predicted, best))
    return parts


def window_errors(folder: Path, gpu: str, found: Floats) -> Floats:
    """Logarithms of predicted over measured with window keys, launch (us) and passes found."""
    rows = [row for row in rows_of(folder / "window_attention_fwd.csv") if row["gpu"] == gpu]
    device = with_attention(device_of(gpu), window_keys=float(found[0]))
    parts = window_parts(rows, device, float(found[1]) / US, float(found[2]))
    measured, predicted, _ = joined_parts(parts)
    return np.log(predicted / measured)


def streams(folder: Path) -> Iterator[Line]:
    """Hyper-connections: both sites of a layer."""
    keys = ("gpu", "op", "tokens", "hidden")
    for (op, gpu), rows in sorted(split(fastest(rows_of(folder / "mhc.csv"), keys), "op", "gpu")):
        parts, device = [], device_of(gpu)
        for (hidden, count), alike in split(rows, "hidden", "streams"):
            columns, n = shapes(alike), int(count)
            layer = Layer(attention=None, mlp=DenseMlp(width=1), streams=n, norms=1)
            site = (
                collapse_streams(layer, int(hidden), columns)
                if op == "pre"
                else (expand_streams("out", layer, int(hidden), columns),)
            )
            moved = 2.0 * columns.tokens * int(hidden) * (n + 1 if op == "pre" else 2 * n + 1)
            predicted = 2.0 * price(device, columns, site)
            parts.append((numbers(alike, "us") / US, predicted, roof(device, 0, 2.0 * moved)))
        yield joined("mhc", "streams to one" if op == "pre" else "one to streams", gpu, parts)


def _lightning(heads: int, *, hidden: int) -> SparseLatentAttention:
    """Sparse attention of DeepSeek-V3.2 (hidden 7168) and of GLM-5."""
    deep = hidden == 7168
    latent_attention = LatentAttention(
        heads=heads,
        query_rank=1536 if deep else 2048,
        kv_rank=512,
        nope_dim=128 if deep else 192,
        rope_dim=64,
        value_dim=128 if deep else 256,
    )
    indexer = Indexer(heads=64 if deep else 32, dim=128, top_k=2048)
    return SparseLatentAttention(heads=heads, latent=latent_attention, indexer=indexer)


def _compressed(heads: int, *, hidden: int, ratio: int) -> CompressedAttention:
    """Attention of DeepSeek-V4, Flash (hidden 4096) and Pro: an indexer where keys are many."""
    flash = hidden == 4096
    top_k = 512 if flash else 1024
    indexer = Indexer(heads=64, dim=128, top_k=top_k, ratio=ratio) if ratio == 4 else None
    return CompressedAttention(
        heads=heads,
        head_dim=512,
        query_rank=1024 if flash else 1536,
        output_groups=(8 if flash else 16) * heads // (64 if flash else 128),
        output_rank=1024,
        window=128,
        ratio=ratio,
        indexer=indexer,
    )


BLOCKS: dict[tuple[str, str], tuple[int, Callable[..., Mixer]]] = {
    ("dsa", "DeepSeek-V3.2"): (7168, _lightning),
    ("dsa", "GLM-5"): (6144, _lightning),
    ("dsv4_csa", "DeepSeek-V4-Flash-FP8"): (4096, partial(_compressed, ratio=4)),
    ("dsv4_hca", "DeepSeek-V4-Flash-FP8"): (4096, partial(_compressed, ratio=128)),
    ("dsv4_csa", "DeepSeek-V4-Pro"): (7168, partial(_compressed, ratio=4)),
    ("dsv4_hca", "DeepSeek-V4-Pro"): (7168, partial(_compressed, ratio=128)),
}
"""Whole blocks of the table that stepsim describes: hidden width, and the block of some heads."""


def sparse(folder: Path) -> Iterator[Line]:
    """Whole blocks of sparse and compressed attention with bf16 products."""
    table = [
        row
        for row in rows_of(folder / "sparse_attention.csv")
        if row["gemm_dtype"] == "bfloat16" and "skip" not in row["kernel"]
    ]
    keys = ("gpu", "op", "model", "heads_local", "tp", "batch", "seq")
    for (gpu, op, model), rows in split(fastest(table, keys), "gpu", "op", "model"):
        name = model if op == "dsa" or "Flash" in model else "DeepSeek-V4-Pro"
        if (op, name) not in BLOCKS:
            continue
        parts, device = [], device_of(gpu)
        hidden, make = BLOCKS[op, name]
        for (heads,), alike in split(rows, "heads_local"):
            columns = shapes(alike)
            layer = Layer(attention=make(int(heads), hidden=hidden), mlp=None, norms=1)
            block = _forward_of(layer, hidden, columns)
            flops, moved = (
                np.sum([getattr(item, name)[0] for item in block], axis=0)
                for name in ("flops", "bytes_moved")
            )
            best = roof(device, flops, moved / 2)
            parts.append((numbers(alike, "us") / US, price(device, columns, block), best))
        yield joined("sparse_attention", f"{op} of {name}", gpu, parts)


def _forward_of(layer: Layer, hidden: int, columns: PlanTable) -> list[Operator]:
    """What a mixer does in serving: no norm, no residual, and no target of the indexer."""
    model = Architecture(name="one", hidden=hidden, layers=(layer,), vocabulary=1000)
    blocks = layer_blocks(layer, model, columns)
    left_out = ("attention norm", "attention residual", "index target")
    return [item for block in blocks for item in block.operators if item.name not in left_out]


KINDS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625}
AROUND = {"hopper": (30.8e-6, 1.08), "blackwell": (26.5e-6, 1.66)}
"""Launches around the products of experts (routing, sorting, activation and sums), and how often
their bytes move; serving fuses and repeats what training does not, so no device has them."""


DRAWS = 24


def loads(row: Row) -> Floats:
    """Tokens of each expert of the fullest rank, draws x experts.

    Power laws are drawn as the source does: x^-alpha up to 0.8 of the tokens, scaled to all pairs,
    and no expert has more than all tokens.
    """
    size, ep, k = int(row["experts"]), int(row["ep"]), int(row["topk"])
    tokens = int(row["tokens"])
    if row["distribution"] == "balanced":
        return np.full((DRAWS, size // ep), tokens * k / size)
    a, most = float(row["distribution"].rsplit("_", 1)[1]), 0.8 * tokens
    drawn = np.random.default_rng(1).random((DRAWS, size))
    law = (1 + (most ** (1 - a) - 1) * drawn) ** (1 / (1 - a))
    counts = np.minimum(np.round(law / law.sum(1, keepdims=True) * tokens * k), tokens)
    ranks = counts.reshape(DRAWS, ep, -1)
    return np.asarray(ranks[np.arange(DRAWS), ranks.sum(2).argmax(1)], dtype=np.float64)


class Experts(Struct, frozen=True, kw_only=True):
    """Rows of experts in one precision: both products by row and draw, and what is around them."""

    kind: str
    measured: Floats
    products: tuple[tuple[GroupedShape, Floats, Floats], ...]
    around: Floats
    roofline: Floats

    def predicted(self, device: Device, launches: float, passes: float) -> Floats:
        """Seconds of each row: the median of its draws."""
        seconds = launches + passes * self.around / device.bytes_per_s
        for shape, tiles, moved in self.products:
            seconds = seconds + device.grouped_seconds(self.kind, shape, tiles, moved)
        return np.asarray(np.median(seconds, axis=1))


def experts_of(rows: Sequence[Row], device: Device, kind: str) -> Experts:
    """Routed experts of a rank; those of Nemotron have two matrices, all others three."""
    counts = [loads(row) for row in rows]
    pairs = np.array([count.sum(1) for count in counts])
    used = np.array([(count > 0).sum(1) for count in counts], dtype=float)
    tall = np.array([np.ceil(count / TILE_ROWS).sum(1) for count in counts])
    hidden, inner, tokens = (numbers(rows, name)[:, None] for name in ("hidden", "inter", "tokens"))
    plain = [row["topk"] == "22" or row["hidden"] == "2688" for row in rows]
    inputs, element = np.where(plain, 1.0, 2.0)[:, None], BYTES[kind]
    products = []
    for n, k in ((inputs * inner, hidden), (hidden, inner)):
        shape = GroupedShape(count=used, rows=pairs / used, columns=n, depth=k)
        moved = element * (used * n * k + pairs * k) + 2.0 * pairs * n
        products.append((shape, tall * np.ceil(n / TILE_COLUMNS), moved))
    cast = 0.0 if kind == "bf16" else element
    around = tokens * hidden * (6.0 + cast) + pairs * hidden * (2 * element + 2.0)
    matrices = hidden * inner * (inputs + 1)
    peak = device.rate_of(Precision.FP8 if kind == "fp8_block" else Precision(kind)).peak
    best = np.maximum(
        2.0 * pairs * matrices / peak, element * used * matrices / device.memory_bandwidth
    )
    return Experts(
        kind=kind,
        measured=numbers(rows, "best_us") / US,
        products=tuple(products),
        around=around + pairs * inner * (2.0 * inputs + element),
        roofline=np.asarray(np.median(best, axis=1)),
    )


def experts(folder: Path, known: Callable[[str], Device] = device_of) -> Iterator[Line]:
    """Routed experts of a rank: both products and what is around them, by precision and law."""
    for path in sorted(folder.glob("moe_grouped_*.csv")):
        gpu = path.stem.removeprefix("moe_grouped_")
        device = known(gpu)
        around = of_generation(AROUND, device)
        for (dtype, law), rows in split(rows_of(path), "dtype", "distribution"):
            part = experts_of(rows, device, KINDS[dtype])
            found = part.measured, part.predicted(device, *around), part.roofline
            yield joined("moe_grouped", f"{dtype}, {law.replace('_', ' ')}", gpu, [found])


PHASES = {"fwd": 0, "bwd_grad_act": 1, "bwd_grad_w": 2}
TRAINED = {"B200": "B200", "A100-PCIe": "A100-40GB"}
"""GPUs of SimuMax's table and the devices that price them."""

NAMES = ("forward", "input gradient", "weight gradient")


def training(folder: Path) -> Iterator[Line]:
    """Products of experts and attention in training, phase by phase.

    B200's forwards set constants (a product's start among others, and attention).
    """
    rows = rows_of(folder / "simumax_training_ops.csv")
    for gpu, name in TRAINED.items():
        mine = [row for row in rows if row["gpu"] == gpu]
        device = read_device(name)
        for phase, sums, alike in phases(mine):
            operator = f"experts, {NAMES[phase]}{' in bf16' * (sums == 2)}"
            line = joined("simumax", operator, gpu, [trained(alike, device, phase, sums)])
            yield replace(line, sets=gpu == "B200" and phase == 0)
        for phase, op in enumerate(("sdp_fwd", "sdp_bwd")):
            cores = [row for row in mine if row["op"] == op]
            parts = [attended(row, device, phase) for row in cores]
            line = joined("simumax", f"attention, {('forward', 'backward')[phase]}", gpu, parts)
            yield replace(line, sets=gpu == "B200")


def phases(rows: Sequence[Row]) -> Iterator[tuple[int, int, list[Row]]]:
    """Rows of experts by phase and by the bytes of sums.

    Weight gradients of a shape stand there twice, the second time in 0.6 of the time: as sums in
    bf16 explain.
    """
    for name, phase in PHASES.items():
        first: dict[tuple[str, ...], Row] = {}
        again: list[Row] = []
        for row in rows:
            key = tuple(row[column] for column in ("op", "m", "n", "k"))
            if row["layout"] == name and first.setdefault(key, row) is not row:
                again.append(row)
        if phase < 2:
            yield phase, 4, [*first.values(), *again]
            continue
        yield phase, 4, list(first.values())
        if again:
            yield phase, 2, again


def trained(
    rows: Sequence[Row], device: Device, phase: int, sums: int
) -> tuple[Floats, Floats, Floats]:
    """Products of experts in one phase, launched one by one; gradients in `sums` bytes."""
    count = np.array([float(row["op"].split()[1]) for row in rows])
    m, n, k = (numbers(rows, name) for name in ("m", "n", "k"))
    columns = PlanTable([Plan()] * len(rows))
    item = grouped("experts", columns, count * m, count, k, n)
    framework = replace(BARE, gradient_bytes=sums)
    pricer = Pricer(device=device, framework=framework, columns=columns)
    priced = pricer.together(map(pricer.price_one, [item]))
    flops = 2.0 * count * m * n * k
    measured = flops / (numbers(rows, "tflops") * 1e12)
    seconds = (priced.forward, priced.input_grad, priced.weight_grad)[phase]
    moved = item.bytes_moved[phase] - 2.0 * (4 - sums) * count * n * k
    return measured, seconds, roof(device, flops, moved)


def attended(row: Row, device: Device, phase: int) -> tuple[Floats, Floats, Floats]:
    """Core attention of a row: tokens, heads, width of keys; values are 128 wide."""
    columns = shapes([{"seq": row["m"]}])
    heads, width = int(row["n"]), int(row["k"])
    attention = GroupedAttention(heads=heads, kv_heads=heads, head_dim=width, value_dim=128)
    core = core_of(attention, columns)
    pricer = Pricer(device=device, framework=BARE, columns=columns)
    priced = pricer.together(map(pricer.price_one, core))
    flops = core[0].flops[phase]
    measured = flops / (float(row["tflops"]) * 1e12)
    return measured, (priced.forward, priced.input_grad)[phase], roof(device, flops, 0)


def fitted(folder: Path) -> Iterator[tuple[str, Floats]]:
    """The constants of the GPUs that set them, by the mean size of the errors' logarithms."""
    for gpu in SETS:
        yield from fitted_scans(folder, gpu)
        yield f"{gpu} wide", smallest(partial(latent_errors, folder, gpu), [1.2])
        first = [400.0, 12.0, 5.0]
        yield f"{gpu} window", smallest(partial(window_errors, folder, gpu), first)
        yield from fitted_experts(folder, gpu)


def smallest(error: Callable[[Floats], Floats], first: Sequence[float]) -> Floats:
    """Positive constants with the smallest mean error, by Nelder and Mead's search."""

    def mean(values: Floats) -> float:
        return float(np.mean(np.abs(error(np.abs(values)))))

    found = minimize(mean, np.array(first, dtype=np.float64), method="Nelder-Mead")
    return np.asarray(np.abs(found.x), dtype=np.float64)


FIRST = {"fused": (0.0, 2.9, 15.0), "fused-kda": (0.3, 4.0, 25.0)}


def fitted_scans(folder: Path, gpu: str) -> Iterator[tuple[str, Floats]]:
    """Share, step (us) and start (us) of each family; a first guess of 0 stays."""
    table = [row for row in rows_of(folder / "linear_attention.csv") if row["gpu"] == gpu]
    for family in ("chunked", "fused", "chunked-kda", "fused-kda"):
        rows = fastest([row for row in table if family_of(row) == family], SHAPE)
        first = FIRST.get(family, (0.08, 1.7, 22.0))
        free = np.array(first) > 0
        error = partial(scan_errors, rows, device_of(gpu), family, free)
        guess = [value for value in first if value > 0]
        yield f"{gpu} {family}", spread(smallest(error, guess), free)


def scan_errors(
    rows: Sequence[Row], device: Device, family: str, free: Bools, found: Floats
) -> Floats:
    """Logarithms of predicted over measured with the constants that were found."""
    share, step, start = spread(found, free)
    rate = ScanRate(
        share=share,
        step_ps=round(step * 1e6),
        start_ps=round(start * 1e6),
        whole="fused" in family,
    )
    trial = replace(device, scans={family: rate})
    parts = list(scan_parts(rows, trial, (family,)))
    measured, predicted, _ = joined_parts(parts)
    return np.log(predicted / measured)


def spread(values: Floats, free: Bools) -> Floats:
    """Values where they are free, 0 elsewhere."""
    whole = np.zeros(len(free))
    whole[free] = values
    return whole


def fitted_experts(folder: Path, gpu: str) -> Iterator[tuple[str, Floats]]:
    """Launches (us) and passes around experts, then share and memory share by precision."""
    device, table = device_of(gpu), rows_of(folder / f"moe_grouped_{gpu}.csv")
    parts = [experts_of(rows, device, KINDS[dtype]) for (dtype,), rows in split(table, "dtype")]

    def error(found: Floats) -> Floats:
        rates = {
            part.kind: GroupedRate(share=share, memory_share=min(memory, 0.95))
            for part, share, memory in zip(parts, found[2::2], found[3::2], strict=True)
        }
        trial = replace(device, grouped=rates)
        return np.concatenate(
            [
                np.log(part.predicted(trial, found[0] / US, found[1]) / part.measured)
                for part in parts
            ]
        )

    first = [24.0, 1.0, *(0.9, 0.9) * len(parts)]
    yield f"{gpu} {' '.join(part.kind for part in parts)}", smallest(error, first)


if __name__ == "__main__":
    main()
