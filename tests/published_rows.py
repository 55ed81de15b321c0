"""A table of published steps of models, as `stepsim validate` and `calibrate model` read it."""

import csv
from pathlib import Path

ROW = {
    "id": "1",
    "source": "made",
    "model": "small",
    "gpu": "H100",
    "n_gpus": "8",
    "gpn": "8",
    "seq": "2048",
    "gbs": "64",
    "mbs": "2",
    "tp": "2",
    "pp": "2",
    "vpp": "1",
    "dp": "2",
    "ep": "1",
    "zero": "0",
    "etp": "1",
    "precision": "bf16",
    "recompute": "none",
    "attn": "flash",
    "hidden": "2048",
    "layers": "8",
    "heads": "16",
    "kv_heads": "16",
    "head_dim": "128",
    "ffn": "8192",
    "act": "gelu",
    "vocab": "32000",
    "experts": "0",
    "topk": "0",
    "step_s": "0.5",
    "mem_gib": "20",
    "framework": "megatron-core",
    "cuda_graph": "0",
    "note": "4x100Gb RoCE per node",
    "complete": "1",
}


def table(folder: Path, *changes: dict[str, str]) -> Path:
    path = folder / "steps.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROW)
        writer.writeheader()
        writer.writerows(ROW | change for change in changes)
    return path
