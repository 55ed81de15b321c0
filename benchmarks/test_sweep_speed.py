"""Parts of a sweep that are not simulation: `pytest benchmarks/test_sweep_speed.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import sized

import stepsim
from stepsim.explore.sweep import Grid, Study, open_for_reading, parse_axis
from stepsim.files.sweep_document import write_table
from stepsim.files.sweep_table import (
    SweepTable,
    missing_spans,
    open_for_writing,
    progress_of,
    write_span,
)

GPT = Path(__file__).resolve().parents[1] / "workloads" / "gpt_1024.txt"
BANDWIDTHS = sized(1000, 20)
SCENARIOS = BANDWIDTHS * 100
AXES = (f"fabric.bandwidth=100..800 Gbps:{BANDWIDTHS}", "nvlink.bandwidth=100..900 GB/s:100")
CHUNK = SCENARIOS // 5


def study() -> Study:
    return Study(
        workload=stepsim.load_workload(GPT),
        topology=stepsim.load_topology("hgx-h100"),
        grid=Grid(axes=tuple(map(parse_axis, AXES))),
    )


def written(path: Path) -> Any:
    """The table of the study, open to be written."""
    asked = study()
    return open_for_writing(path, asked.grid, asked.identity(), resume=path.exists())


def results() -> Iterator[tuple[range, dict[str, list[Any]]]]:
    """Made-up results of all scenarios in five chunks."""
    grid = study().grid
    for span in grid.cut([range(SCENARIOS)], lambda _: CHUNK):
        bandwidth = grid.columns(span)["fabric.bandwidth"].astype(np.float64)
        steps = (1e22 / bandwidth).astype(np.int64)
        yield (
            span,
            {
                "step_time_ps": steps.tolist(),
                "pipeline_time_ps": steps.tolist(),
                "bubble_fraction": [0.5] * len(steps),
                "total_bandwidth": bandwidth.tolist(),
            },
        )


def test_parse_axis(benchmark: Any) -> None:
    assert len(benchmark(parse_axis, AXES[0])) == BANDWIDTHS


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a.sqlite"
    with written(path) as store:
        for span, outcomes in results():
            write_span(store, span, outcomes)
    return path


def test_store(benchmark: Any, tmp_path: Path) -> None:
    made = [*results()]

    def store_all() -> None:
        path = tmp_path / "a.sqlite"
        path.unlink(missing_ok=True)
        with written(path) as store:
            for span, outcomes in made:
                write_span(store, span, outcomes)
            assert missing_spans(store, SCENARIOS) == []
            assert progress_of(store).done == SCENARIOS

    benchmark(store_all)


def test_find_what_is_missing(benchmark: Any, database: Path) -> None:
    with written(database) as store:
        store.connection.execute("DELETE FROM result WHERE id BETWEEN 50 AND 99 OR id = 777")
        spans = benchmark(missing_spans, store, SCENARIOS + 1)
    assert spans == [
        range(50, 100),
        range(777, 778),
        range(SCENARIOS, SCENARIOS + 1),
    ]


def test_export_csv(benchmark: Any, database: Path, tmp_path: Path) -> None:
    with open_for_reading(database) as store:
        benchmark(write_table, SweepTable(store=store), tmp_path / "a.csv")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == SCENARIOS + 1


def test_fastest_by_two_axes(benchmark: Any, database: Path) -> None:
    with open_for_reading(database) as store:
        table = SweepTable(store=store)
        found = benchmark(table.fastest, table.axes, ["step_time_ps"])
        assert found.shape == (1, BANDWIDTHS, 100)
        assert not np.isnan(found).any()
        assert found[0, 0, 0] == pytest.approx(1e22 / 12.5e9)
