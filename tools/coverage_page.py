"""The page of coverage: models and machines, and what steps of them were held against."""

from collections.abc import Iterator, Sequence

from stepsim.files.accelerators import (
    device_names,
    framework_names,
    read_device,
    read_framework,
    read_held,
)
from stepsim.files.load import public_names, read_model
from stepsim.workload.model.coverage import (
    Coverage,
    HeldAgainst,
    HeldRuns,
    Nearness,
    coverage_of,
)
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import ErrorBand

_HEAD = """# What predictions were held against

Made by `python tools/reference.py` from `frameworks/held.csv` and the `[[error]]` tables of
`frameworks/`, which `python benchmarks/model_constants.py ../shared --errors` writes. `stepsim
list` counts the same runs, and the line `accuracy` of a step has their mean. An error is that of a
prediction whose constants were set without the run's source. Runs on TPUs set no constant at all.

**Unknown** means that nothing was held against such steps. They may be right, and nobody knows.
"""
_MARKS = {Nearness.SAME: "**{}**", Nearness.ALIKE: "~{}", Nearness.KIND: "({})"}


def coverage_page() -> str:
    """The whole page."""
    held = read_held()
    return "\n".join([_HEAD, *_machines(held), *_models(held)]) + "\n"


def _machines(held: Sequence[HeldRuns]) -> Iterator[str]:
    """A table of devices and kinds of models, and the devices without a run."""
    yield "## Machines\n"
    yield (
        "The range is that of 80 % of the measured steps of other sources, over the prediction. A "
        "device without runs has the range of its generation.\n"
    )
    yield "| device | models | runs | mean error | largest | range | frameworks | sources |"
    yield "|---|---|---|---|---|---|---|---|"
    bare = []
    for device in map(read_device, device_names()):
        bands = [band for band in _bands() if band.generation == device.generation]
        for kind in sorted({(band.sparse, band.mixes) for band in bands}):
            rows = [row for row in held if row.device == device.name]
            rows = [row for row in rows if (row.experts, row.mixes) == kind]
            yield _machine(device, rows, bands, kind)
        bare += [] if bands else [device.name]
    yield f"\nUnknown on all others: {', '.join(bare)}.\n"


def _machine(
    device: Device, rows: Sequence[HeldRuns], bands: Sequence[ErrorBand], kind: tuple[bool, bool]
) -> str:
    """A row of a device and a kind of models; `bands` are those of its generation.

    A kind says whether models have experts, and whether they have layers without usual attention.
    """
    found = HeldAgainst.of(rows)
    cells = (
        device.name,
        "hybrid" if kind[1] else "experts" if kind[0] else "dense",
        str(found.runs),
        _share(found.error),
        _share(found.largest),
        _range([band for band in bands if (band.sparse, band.mixes) == kind]),
        ", ".join(sorted({name for row in rows for name in row.frameworks.split()})),
        ", ".join(sorted({row.source for row in rows})),
    )
    return f"| {' | '.join(cells)} |"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _range(bands: Sequence[ErrorBand]) -> str:
    """The factors that a step prints its range by, for a job no larger than those compared."""
    ranges = {f"{band.low:.2f} to {band.high:.2f}" for band in bands if band.others}
    return ", ".join(sorted(ranges)) or "unknown"


def _bands() -> Iterator[ErrorBand]:
    for name in framework_names():
        yield from read_framework(name).errors


def _models(held: Sequence[HeldRuns]) -> Iterator[str]:
    """A table of models and the devices that have runs."""
    devices = [read_device(name).name for name in device_names()]
    devices = [name for name in devices if any(row.device == name for row in held)]
    yield "## Models on machines\n"
    yield (
        "Mean error and runs of what is nearest: **of the same model**, ~ of models of its kind "
        "with half to twice its parameters, (of all others of its kind). Models are dense, have "
        "experts, or are hybrids: some layers mix tokens otherwise than by usual attention. On the "
        "machines that have no column every model is unknown.\n"
    )
    yield f"| model | {' | '.join(devices)} |"
    yield f"|---|{'---|' * len(devices)}"
    for name in public_names():
        architecture = read_model(name).architecture
        cells = (_cell(coverage_of(architecture, device, held)) for device in devices)
        yield f"| {name} | {' | '.join(cells)} |"


def _cell(coverage: Coverage) -> str:
    """Error and runs of the nearest runs, marked by how near they are."""
    held = coverage.held
    if held.error is None:
        return "unknown"
    return _MARKS[coverage.nearness].format(f"{held.error:.0%} of {held.runs}")
