"""What a tower for images sees goes with the tokens of a microbatch, in the model's share."""

import json
from pathlib import Path
from typing import Any

import pytest

import stepsim

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "files/models/published.json").read_text()
)
JOB: dict[str, Any] = {"npus": 8, "tp": 2, "microbatches": 2, "topology": "hgx-h100"}


def model(folder: Path, image_tokens: int) -> Path:
    path = folder / f"seeing-{image_tokens}" / "config.json"
    path.parent.mkdir()
    config = PUBLISHED["qwen3-vl-8b"]["config"] | {"image_tokens": image_tokens}
    path.write_text(json.dumps(config))
    return path.parent


@pytest.mark.filterwarnings("ignore")
def test_short_documents_bring_their_share_of_images(tmp_path: Path) -> None:
    seeing, less, blind = (model(tmp_path, tokens) for tokens in (2048, 256, 0))
    full, short = (
        stepsim.batches(
            seeing, lengths=[length], packers=["padded"], steps=1, sequence=8192, **JOB
        ).packed[0]
        for length in (8192, 1024)
    )
    planned = stepsim.simulate(seeing, sequence=8192, **JOB).report.step_time_ps
    assert full.step_time_ps.tolist() == [planned]
    # an eighth of the tokens with an eighth of the images: the levels that were priced
    eighth = stepsim.simulate(less, sequence=1024, **JOB).report.step_time_ps
    assert short.step_time_ps.tolist() == [eighth]
    without = stepsim.simulate(blind, sequence=1024, **JOB).report.step_time_ps
    assert without < eighth
