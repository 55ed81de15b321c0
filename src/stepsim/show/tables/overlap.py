"""Kernels alone and beside communication, and what the communications took of their GPU."""

from collections.abc import Iterator, Sequence

from msgspec.structs import asdict

from stepsim.measured.calibration.overlap import EngineFit
from stepsim.measured.kernels_beside import BesideRow
from stepsim.show.frames import Columns, columns_of_rows
from stepsim.show.tables.model import BANDWIDTH, COUNT, SHARE, TEXT, Shown, as_number, table_of
from stepsim.workload.model.device import Device

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
