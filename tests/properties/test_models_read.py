"""Whatever stands in a description of a model, there is a model or one clear error."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stepsim.base.errors import StepsimError
from stepsim.files.load import public_model, public_names, read_model
from stepsim.files.models.fields import families
from stepsim.files.models.huggingface import architecture_of
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


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(public_names()),
    st.sampled_from(sorted(families().family)),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
)
def test_any_configuration_is_an_architecture_or_an_error(
    name: str, family: str, changes: dict[str, Any]
) -> None:
    values = {**public_model(name), **changes, "architectures": [family]}
    try:
        found, *_ = architecture_of(values, place="config.json", name="any")
    except StepsimError as error:
        said = str(error)
    else:
        said = "config.json"
        assert found.parameters() > 0
        assert len(found.layers) == found.depth
    assert re.match(r"config\.json.*\Z", said)


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
