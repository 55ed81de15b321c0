"""Kernels alone and beside communication, and what the communications took of their GPU."""

from collections.abc import Iterator, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import asdict

from stepsim.measured.calibration.overlap import EngineFit, mean_error, predicted_ratio
from stepsim.measured.kernels_beside import BesideRow, SyntheticLoad
from stepsim.runs.overlap import MeasuredOverlap
from stepsim.show.frames import Columns, columns_of_rows
from stepsim.show.tables.model import BANDWIDTH, COUNT, SHARE, TEXT, Shown, as_number, table_of
from stepsim.workload.model.device import Device
from stepsim.workload.overlap import GpuLimits

_RATIO = as_number(".2f")
_FITS = {
    "GPU": TEXT.of(lambda pair: pair[0].name),
    "communication": TEXT.of(lambda pair: pair[1].engine),
    "SMs": COUNT.of(lambda pair: pair[1].traits.sms),
    "memory": BANDWIDTH.of(lambda pair: pair[1].traits.bytes_per_s or ""),
    "delay, us": _RATIO.of(lambda pair: pair[1].traits.delay_us),
    "kernels": COUNT.of(lambda pair: pair[1].rows),
    "short ones": COUNT.of(lambda pair: pair[1].short_rows),
    "error": SHARE.of(lambda pair: pair[1].error),
    "by usual numbers": SHARE.of(lambda pair: pair[1].usual_error),
    "no slowdown": SHARE.of(lambda pair: pair[1].no_slowdown_error),
}
_COLUMNS = (
    *("gpu", "class", "kernel", "grid", "block", "shape", "comm_kind", "comm_kernel"),
    *("comm_blocks", "n_alone", "n_beside", "n_partly", "alone_us", "alone_p25_us"),
    *("alone_p75_us", "beside_us", "beside_p25_us", "beside_p75_us", "share_beside"),
    *("registers", "shared_bytes", "ratio", "clean"),
)


def overlap_shown(
    rows: Sequence[BesideRow], fits: Sequence[tuple[Device, EngineFit]]
) -> Iterator[Shown]:
    """What communications took of each GPU, and how far the law is off with it."""
    clean = sum(row.is_clean for row in rows)
    yield f"{len(rows)} kernels ran alone and beside communication, {clean} of them cleanly"
    if fits:
        yield table_of("what communications take", fits, _FITS)
        yield (
            "errors: mean of |predicted / measured - 1| of kernels of 10 us and more; no memory: "
            "kernels missed none"
        )


def loads_shown(beside: MeasuredOverlap) -> Iterator[Shown]:
    """How much longer kernels took beside each load, and how far the law is off."""
    clean = [row for row in beside.rows if row.is_clean]
    groups = {
        load: [row for row in clean if row.comm_kernel == load]
        for load in sorted({row.comm_kernel for row in clean})
    }
    lines = [_LoadLine(rows=own, gpu=beside.gpu) for own in groups.values()]
    lines.sort(key=lambda line: (line.load.blocks, line.load.bytes_per_s))
    yield table_of("kernels beside loads", lines, _LOADS)
    yield "error: mean of |predicted / measured - 1| of clean kernels"


class _LoadLine(Struct, frozen=True, kw_only=True):
    """Kernels beside one load."""

    rows: list[BesideRow]
    gpu: GpuLimits

    @property
    def load(self) -> SyntheticLoad:
        """The load, as its kernel is called."""
        found = SyntheticLoad.called(self.rows[0].comm_kernel)
        assert found
        return found

    @property
    def error(self) -> float:
        """That of the law."""
        return mean_error(self.rows, lambda row: predicted_ratio(row, self.gpu))


_LOADS = {
    "SMs": COUNT.of("load.blocks"),
    "memory": BANDWIDTH.of(lambda line: line.load.bytes_per_s or ""),
    "kernels": COUNT.of(lambda line: len(line.rows)),
    "times as long": _RATIO.of(lambda line: median(row.ratio for row in line.rows)),
    "predicted": _RATIO.of(
        lambda line: median(predicted_ratio(row, line.gpu) for row in line.rows)
    ),
    "error": SHARE.of("error"),
    "no slowdown": SHARE.of(lambda line: mean_error(line.rows, lambda row: 1.0)),
}


def beside_columns(rows: Sequence[BesideRow]) -> Columns:
    """A row for every kernel, as `stepsim calibrate overlap` reads it again."""
    return columns_of_rows(_COLUMNS, [tuple(_told(row)[name] for name in _COLUMNS) for row in rows])


def _told(row: BesideRow) -> dict[str, object]:
    return {
        **asdict(row),
        "grid": "x".join(map(str, row.grid)),
        "block": "x".join(map(str, row.block)),
        "class": row.kernel_class,
        "ratio": round(row.ratio, 3),
        "clean": int(row.is_clean),
    }
