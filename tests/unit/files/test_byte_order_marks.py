"""A byte order mark, which spreadsheets and shells of Windows write, changes nothing of a file."""

from codecs import BOM_UTF8
from pathlib import Path

import pytest
from helpers import Run
from published_rows import table

ROOT = Path(__file__).resolve().parents[3]
CONFIG = """{
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2,
  "num_attention_heads": 4, "vocab_size": 320, "hidden_act": "silu"
}"""
KERNEL = '{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 9, "args": {"stream": 7}}'


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("inspect", "ring.toml", (ROOT / "topologies/ring.toml").read_text()),
        ("inspect", "h100.toml", (ROOT / "devices/h100.toml").read_text()),
        ("inspect", "rank0.txt", (ROOT / "workloads/measured/megatron_moe_rank0.txt").read_text()),
        ("inspect", "config.json", CONFIG),
        ("inspect", "rank0.json", f'{{"traceEvents": [{KERNEL}]}}'),
        ("validate", "steps.csv", ""),
    ],
)
def test_it_is_passed_over(run: Run, command: str, name: str, text: str, tmp_path: Path) -> None:
    path = table(tmp_path, {}) if not text else tmp_path / name
    path.write_text(text or path.read_text())
    plain = run(command, path)
    path.write_bytes(BOM_UTF8 + path.read_bytes())
    assert run(command, path) == plain
    assert plain[0] == 0, plain
