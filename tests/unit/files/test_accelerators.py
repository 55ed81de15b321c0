"""Device and framework files: the shipped ones, and what is refused."""

import re
from pathlib import Path

import pytest

from stepsim.base.errors import PlanError
from stepsim.base.units import parse_size_bytes
from stepsim.files.accelerators import device_names, read_device, read_framework
from stepsim.files.load import topology_of
from stepsim.files.reading import names_of_files, shipped_folder
from stepsim.workload.model.choices import Precision, RecomputeModule


@pytest.mark.parametrize("name", device_names())
def test_a_shipped_device_says_where_its_numbers_are_from(name: str) -> None:
    device = read_device(name)
    assert {"memory", "peak", "rate", "sustained", "attention"} <= device.sources.keys()
    for rate in device.rates.values():
        assert 0 < rate.rate <= rate.peak
    if device.topology:
        topology_of(device.topology)


def test_names_are_read_in_any_case_and_by_their_other_names() -> None:
    assert read_device("a100") == read_device("A100-80GB")
    assert read_framework("nemo").name == "nemo-performance"


@pytest.mark.parametrize("kind", ["device", "framework"])
def test_a_file_is_meant_by_its_own_name_and_by_no_other_file(kind: str) -> None:
    """A name is looked up as that of a file first, so no file may be called as another is."""
    files = list(shipped_folder(f"{kind}s").glob("*.toml"))
    names = names_of_files(kind)
    assert {names[path.stem] for path in files} == set(files)
    read = read_device if kind == "device" else read_framework
    assert all(read(name) == read(path) for name, path in names.items())
    assert all(read(path).name.lower() == path.stem for path in files)


def test_fp16_is_as_fast_as_bf16_and_mxfp8_as_fp8() -> None:
    rates = read_device("b200").rates
    assert rates[Precision.FP16] == rates[Precision.BF16]
    assert rates[Precision.MXFP8] == rates[Precision.FP8]


@pytest.mark.parametrize("device", ["h100", "mi325x", "tpu-v6e"])
def test_a_chip_without_a_format_is_lent_none(device: str) -> None:
    found = read_device(device)
    with pytest.raises(PlanError, match=r"precision is mxfp8: .* has .*bf16"):
        found.rate_of(Precision.MXFP8)


def test_an_unknown_device_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match=r"no device named 'h10' \(did you mean h100\?\)"):
        read_device("h10")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('memory = "80 GiB"', "", "memory is missing"),
        ('memory = "80 GiB"', 'memory = "80"', "80"),
        ("rate = 732.2", "rate = -1", "rate"),
        ("[rate.bf16]", "[rate.bf17]", "bf16"),
        ("sustained = ", "sustainable = ", "sustainable"),
        ("sustained = ", 'lends = ["bf17"]\nsustained = ', r"lends\[0\] is 'bf17': .* fp16, mxfp8"),
        ("memory_share = 0.95", "memory_share = []", r"grouped.fp8_block.memory_share is \[\]: "),
        ("whole = true", "whole = 1", "scan.fused.whole is 1: expected true or"),
    ],
)
def test_a_wrong_device_file_names_the_entry(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    text = (shipped_folder("devices") / "h100.toml").read_text()
    assert before in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(before, after))
    with pytest.raises(PlanError, match=message) as error:
        read_device(path)
    assert "mine.toml" in str(error.value)


def test_a_file_of_the_users_is_read_each_time(tmp_path: Path) -> None:
    """It may have changed in between, as in a notebook; what is shipped has not."""
    path = tmp_path / "mine.toml"
    text = (shipped_folder("devices") / "h100.toml").read_text()
    for memory in ("10 GiB", "20 GiB"):
        path.write_text(re.sub('memory = ".*"', f'memory = "{memory}"', text, count=1))
        assert read_device(path).memory_bytes == parse_size_bytes(memory)
    assert read_device("h100") is read_device("H100")


def test_a_recipe_of_a_framework_names_its_model_device_and_modules() -> None:
    recipes = read_framework("megatron-bridge").recipes
    found = {(each.model, each.device, each.sharded): each for each in recipes}
    assert found["llama3-70b", "GB200", True].offload_layers == 20
    assert found["kimi-k2", None, False].recompute_modules == (RecomputeModule.UP_PROJECTION,)


def test_a_recipe_with_an_unknown_module_is_refused(tmp_path: Path) -> None:
    text = (shipped_folder("frameworks") / "megatron-bridge.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('"moe_act"', '"moe_actor"'))
    with pytest.raises(PlanError, match=r"mine.toml.*moe_actor"):
        read_framework(path)
