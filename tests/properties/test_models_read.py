"""Whatever stands in a description of a model, there is a model or one clear error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepsim.base.errors import StepsimError
from stepsim.files.load import is_model, public_model, public_names, read_model
from stepsim.files.models.families import FAMILIES
from stepsim.files.models.huggingface import architecture_of
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.layout import LayerLayout, named_layout

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 300)
    | st.sampled_from([10**6, 10**30])
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(0, 3), max_size=5)
    | st.dictionaries(st.sampled_from(["alibi", "kv_n_heads", "moe_top_k"]), st.integers(0, 9))
)
KEYS = sorted({key for name in public_names() for key in public_model(name)})
FLAGS = (
    *("num-layers", "hidden-size", "num-attention-heads", "vocab-size", "moe-layer-freq", "fp8"),
    *("num-experts", "cp-comm-type", "hidden-dropout", "window-size", "kv-channels", "bf16"),
    *("recompute-granularity", "pipeline-model-parallel-layout", "num-query-groups"),
)


def found_or_refused(read: Callable[[], Architecture]) -> Architecture | str:
    """What is read, or the error in one line."""
    try:
        return read()
    except StepsimError as error:
        return str(error)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(public_names()),
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
)
def test_any_configuration_is_an_architecture_or_an_error(
    name: str, family: str, changes: dict[str, Any]
) -> None:
    values = {**public_model(name), **changes, "architectures": [family]}
    found = found_or_refused(lambda: architecture_of(values, place="config.json", name="any")[0])
    if isinstance(found, str):
        assert found.startswith("config.json")
        assert "\n" not in found
    else:
        assert found.parameters() > 0
        assert len(found.layers) == found.depth


TMP = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@TMP
@given(
    pairs=st.lists(st.tuples(st.sampled_from(FLAGS), st.text(max_size=8)), max_size=12),
    yaml=st.booleans(),
)
def test_any_arguments_are_a_model_or_an_error(
    pairs: list[tuple[str, str]], yaml: bool, tmp_path: Path
) -> None:
    path = tmp_path / ("a.yaml" if yaml else "a.sh")
    lines = [f"{name}: {value}" if yaml else f"--{name} {value}" for name, value in pairs]
    path.write_text("--num-layers 2 --hidden-size 8 \n" + "\n".join(lines), errors="replace")
    found = found_or_refused(lambda: read_model(path).architecture)
    assert "\n" not in found if isinstance(found, str) else found.parameters() > 0


@TMP
@given(
    data=st.binary(max_size=60),
    name=st.sampled_from(["config.json", "a.toml", "a.sh", "a.yml"]),
)
def test_any_bytes_are_refused_in_one_line(data: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    is_model(path)
    assert isinstance(found_or_refused(lambda: read_model(path).architecture), str)


@given(st.text("EtmL|*()0123456789,+ ends", max_size=12), st.integers(1, 8), st.integers(1, 4))
def test_any_layout_adds_up_or_is_refused(text: str, layers: int, stages: int) -> None:
    try:
        layout: LayerLayout = named_layout(text)
        slices = layout.resolve(layers, 0, stages)
    except StepsimError:
        return
    assert len(slices) == stages
    assert sum(each.layers for each in slices) == layers


def test_variables_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text("A=" + "$A" * 200 + "\n--num-layers $A --hidden-size 8")
    with pytest.raises(StepsimError):
        read_model(path)


def test_huge_numbers_of_layers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    values = dict(public_model("llama-3-8b"), num_hidden_layers=10**12)
    path.write_text(json.dumps(values))
    with pytest.raises(StepsimError, match="num_hidden_layers is 1000000000000: expected a whole"):
        read_model(path)
