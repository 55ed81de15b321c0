"""A search of plans on a real Dask cluster finds what this process finds."""

from pathlib import Path

import pytest
from clusters import dask_cluster
from helpers import Run

pytest.importorskip("distributed", reason="Dask is an optional extra: pip install 'stepsim[dask]'")

ASKED = ("--gpus", "8", "--global-batch", "16", "--seq", "4096", "-t", "hgx-h100", "--runs", "4")
FEW = ("--fix", "mbs=1", "--fix", "recompute=none", "--fix", "vpp=1,2", "-q")


@pytest.mark.slow
def test_a_cluster_finds_the_same_byte_for_byte(run: Run, tmp_path: Path) -> None:
    asked = ("plan", "llama-3.1-8b", *ASKED, *FEW)
    alone = run(*asked)
    assert alone[0] == 0
    store = tmp_path / "plans.sqlite"
    with dask_cluster(tmp_path) as cluster:
        there = ("--executor", "dask", "--scheduler", cluster.address)
        assert run(*asked, *there, "--store", str(store)) == alone
    assert run(*asked, "--store", str(store), "--resume") == alone
