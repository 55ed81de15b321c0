"""A shipped name is what ships, whatever lies in the working folder; `./NAME` is the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

JOB = ("--gpus", "8", "--global-batch", "8", "--seq", "1024", "--tp", "8")


@pytest.fixture(params=["folder", "model", "file"])
def here(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workloads: Path) -> Path:
    """A working folder with something that is called as a model is."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "llama-3-8b"
    if request.param == "file":
        path.write_bytes((workloads / "gpt_tp4.txt").read_bytes())
        return tmp_path
    path.mkdir()
    if request.param == "model":
        config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "vocab_size": 1000}
        config |= {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8}
        (path / "config.json").write_text(json.dumps(config | {"intermediate_size": 1024}))
    return tmp_path


@pytest.mark.parametrize(
    "command", ["simulate", "simulate --sensitivity", "compare", "inspect", "plan --runs 1"]
)
def test_a_name_is_the_shipped_model(run: Run, here: Path, command: str) -> None:
    name, *more = command.split()
    job = JOB[:-2] if name == "plan" else ("--npus", *JOB[1:]) if name == "inspect" else JOB
    code, out, err = run(name, "llama-3-8b", *more, *job)
    assert code == 0, err
    assert err.count("llama-3-8b: the shipped model is taken; ./llama-3-8b is the file") == 1
    (here / "llama-3-8b").rename(here / "elsewhere")
    assert run(name, "llama-3-8b", *more, *job)[:2] == (0, out)


@pytest.mark.parametrize("command", ["simulate", "inspect"])
def test_a_path_is_the_file(run: Run, here: Path, command: str) -> None:
    path = here / "llama-3-8b"
    for typed in ("./llama-3-8b", str(path)):
        code, out, err = run(command, typed, "--npus", "8", "--pp", "2")
        assert "the shipped model is taken" not in err
        if path.is_dir() and not (path / "config.json").exists():
            assert code == 2
            assert "8.03" not in out
        else:
            assert code == 0, err
            assert "8.03 billion" not in out


def test_topologies_and_devices_are_names_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hgx-h100", "h100", "megatron-core"):
        (tmp_path / name).write_text("nothing of use\n")
    named = ("-t", "hgx-h100", "--device", "h100", "--framework", "megatron-core")
    code, out, err = run("simulate", "llama-3-8b", *JOB, *named)
    assert code == 0, err
    for kind, name in (
        ("topology", "hgx-h100"),
        ("device", "h100"),
        ("framework", "megatron-core"),
    ):
        assert f"warning: {name}: the shipped {kind} is taken; ./{name} is the file" in err
    for name in ("hgx-h100", "h100"):
        code, out, err = run("inspect", name)
        assert code == 0
        assert err.count("\n") == 1
        assert name in out.lower()
    code, _, err = run("simulate", "llama-3-8b", *JOB, "-t", "./hgx-h100", "-q")
    assert (code, err.count("\n")) == (2, 1)
