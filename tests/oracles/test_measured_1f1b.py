"""Measured 1F1B iterations of Megatron on 8 A100, predicted from per-rank forwards and backwards.

One number, host time per action, is fitted on four rows and scored on the other four. The rows
are those of the VocabularyParallelism artifact, see the reference README.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
from helpers import pipeline_graph, prices_of

from stepsim.base.arrays import Floats
from stepsim.base.units import PS_PER_S
from stepsim.core.timeline import run_graph
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import build

PS_PER_US = 1_000_000
Row = dict[str, str]


def rows(shared: Path) -> list[Row]:
    with (shared / "reference/measured/megatron_1f1b_8xA100.csv").open() as file:
        return list(csv.DictReader(file))


def predicted_ms(row: Row, host_us: float) -> float:
    """Pipeline time with host time before every action, messages free."""
    forward, backward = (
        [round(float(each) * PS_PER_US) for each in row[column].split()]
        for column in ("F_us", "B_us")
    )
    schedule = build("1f1b", ranks=int(row["P"]), microbatches=int(row["m"]))
    host_ps = round(host_us * PS_PER_US)
    graph = pipeline_graph(schedule, forward, backward, P2PMode.BLOCKING, host_ps)
    return run_graph(graph, prices_of(graph, 0)).pipeline_time_ps / PS_PER_S * 1e3


def errors(table: list[Row], host_us: float) -> Floats:
    return np.array([predicted_ms(r, host_us) / float(r["iter_ms_measured"]) - 1 for r in table])


@pytest.mark.parametrize("training", [(0, 2, 4, 6), (1, 3, 5, 7), (0, 1, 2, 3), (4, 5, 6, 7)])
def test_one_host_time_predicts_the_other_rows(training: tuple[int, ...], shared: Path) -> None:
    """The host time with the least squared error: predictions are nearly linear in it."""
    every = rows(shared)
    fitted = [every[i] for i in training]
    bare = errors(fitted, 0)
    slope = errors(fitted, 100) - bare
    host_us = -100 * float(slope @ bare / (slope @ slope))
    others = np.abs(errors([row for row in every if row not in fitted], host_us))
    assert 0 < host_us < 1000
    assert others.mean() < 0.005
    assert others.max() < 0.010
