"""What a calibration of measured runs sets among the options of a step."""

from stepsim.base.structs import replace
from stepsim.base.units import format_size_bytes
from stepsim.measured.calibration.calibration import Calibration
from stepsim.options import StepOptions
from stepsim.workload.model.calibration import ModelCalibration

# Fields of a calibration that measured runs alone make use of.
_OF_RUNS = (
    "gradient_launch",
    "gradient_scaling",
    "optimizer",
    "leaf_overhead",
    "expert_imbalance",
    "layer_times",
)


def with_calibration(options: StepOptions, calibration: Calibration, path: str = "") -> StepOptions:
    """The options with what a calibration, read from `path`, knows, where nothing else was asked.

    Host time, times of collectives and messages, and what models alone take: rates and kernels, and
    how far off predictions were.
    """
    host, table = calibration.host_overhead, calibration.comm_table()
    if host and not options.host_overhead_ps:
        options = replace(options, host_overhead_ps=round(host.value))
    if table and options.comm_table is None:
        options = replace(options, comm_table=table)
    if calibration.rates or calibration.kernels or calibration.held:
        of_models = ModelCalibration(
            rates=calibration.rates,
            kernels=calibration.kernels,
            held=calibration.held,
            sources=calibration.sources,
            path=path,
        )
        options = replace(options, calibration=of_models)
    return options


def workload_notes(calibration: Calibration) -> list[str]:
    """What to know of a calibration that is used for a step, without its runs."""
    unused = [name for name in _OF_RUNS if getattr(calibration, name)]
    notes = (
        [f"numbers of the calibration that a step does not use: {', '.join(unused)}"]
        if unused
        else []
    )
    return notes + [
        f"messages {link.placement} were measured at {format_size_bytes(link.sizes[0])} only: "
        "other sizes take what their calibrated line says"
        for link in calibration.point_to_point
        if len(link.sizes) == 1
    ]
