"""The page of coverage: machines and kinds of models, and what steps of them were held against."""

from collections.abc import Iterator, Sequence

from stepsim.files.accelerators import device_names, framework_names, read_device, read_framework
from stepsim.workload.model.evidence import ErrorBand

_HEAD = """# What predictions were held against

Made by `python tools/reference.py` from the `[[error]]` tables of `frameworks/`, which
`python benchmarks/model_constants.py ../shared --errors` writes. The line `accuracy` of a step has
their mean. An error is that of a prediction whose constants were set without the run's source. Runs
on TPUs set no constant at all.

**Unknown** means that nothing was held against such steps. They may be right, and nobody knows. The
range is that of 80 % of the measured steps of other sources, over the prediction.

| device | models | runs | mean error | range | frameworks | sources |
|---|---|---|---|---|---|---|
"""


def coverage_page() -> str:
    """The whole page."""
    bands = [(name, band) for name in framework_names() for band in read_framework(name).errors]
    rows, bare = list[str](), list[str]()
    for device in map(read_device, device_names()):
        own = [(name, band) for name, band in bands if band.device == device.name]
        kinds = sorted({(band.sparse, band.mixes) for _, band in own})
        for kind in kinds:
            alike = [each for each in own if (each[1].sparse, each[1].mixes) == kind]
            rows.append(f"| {' | '.join(_cells(device.name, kind, alike))} |")
        bare += [] if kinds else [device.name]
    return _HEAD + "\n".join(rows) + f"\n\nUnknown on all others: {', '.join(bare)}.\n"


def _cells(
    device: str, kind: tuple[bool, bool], bands: Sequence[tuple[str, ErrorBand]]
) -> Iterator[str]:
    """A row: a kind has experts or not, and layers without usual attention or not."""
    runs = sum(band.runs for _, band in bands)
    yield device
    yield "hybrid" if kind[1] else "experts" if kind[0] else "dense"
    yield str(runs)
    yield f"{sum(b.error * b.runs for _, b in bands) / runs:.1%}" if runs else "unknown"
    ranges = {f"{band.low:.2f} to {band.high:.2f}" for _, band in bands if band.others}
    yield ", ".join(sorted(ranges)) or "unknown"
    yield ", ".join(sorted({name for name, band in bands if band.runs}))
    yield ", ".join(sorted({each for _, band in bands for each in band.source.split(", ") if each}))
