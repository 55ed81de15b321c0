"""The options of a step as keyword arguments, for editors and type checkers.

Written by tools/reference.py from `stepsim.options`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepsim.measured.calibration.calibration import Calibration
    from stepsim.network.measured_times import CommTable
    from stepsim.parallel.schedules import Schedule
    from stepsim.workload.model.calibration import ModelCalibration
    from stepsim.workload.model.device import Device
    from stepsim.workload.model.framework import Framework
    from stepsim.workload.scaling import ComputeScale, SlowRanks


class SharedKeywords(TypedDict, total=False):
    """The options that all plans of a search share: texts with units, else bytes and seconds."""

    activation_size: "str | int | None"
    algorithm: "str | Sequence[str] | None"
    attention: "Literal['flash', 'unfused'] | str | None"
    calibration: "str | Path | Calibration | ModelCalibration | None"
    chunks: "str | int | None"
    comm_table: "str | Path | Sequence[str | Path] | CommTable | None"
    compute_scale: "str | float | ComputeScale | None"
    contention: "Literal['none', 'siblings', 'fair'] | str | None"
    cp: "str | int | None"
    cp_comm: "Literal['ring', 'all_gather', 'all_to_all'] | str | None"
    cuda_graph: "str | bool | None"
    deallocate_outputs: "str | bool | None"
    delay_wgrad: "str | bool | None"
    device: "str | Path | Device | None"
    dispatch: (
        "Literal['all_to_all', 'deepep', 'deepep_fp8', 'hybridep', 'hybridep_fp8'] | str | None"
    )
    dp_bucket: "str | int | None"
    dp_overlap: "str | bool | None"
    dtype: "Literal['bf16', 'fp16', 'fp8', 'mxfp8', 'nvfp4'] | str | None"
    engine: "Literal['simpy', 'levels'] | str | None"
    ep: "str | int | None"
    ep_layout: "Literal['dp', 'folded'] | str | None"
    etp: "str | int | None"
    expert_load: "str | Path | Sequence[float] | None"
    expert_overlap: "str | bool | None"
    expert_tp: "str | int | None"
    fill_placeholders: "str | bool | None"
    framework: "str | Path | Framework | None"
    get_batch: "str | float | None"
    global_batch: "str | int | None"
    group_size: "str | int | None"
    host_overhead: "str | float | None"
    layout: "str | None"
    loss_chunks: "str | int | None"
    loss_time: "str | float | None"
    mbs: "str | int | None"
    memory_limit: "str | float | None"
    microbatch_size: "str | int | None"
    microbatches: "str | int | None"
    npus: "str | int | None"
    overlap_cost: "str | None"
    p2p: "Literal['eager', 'blocking', 'overlap'] | str | None"
    packed: "str | int | None"
    placement: "Literal['aligned', 'packed'] | str | None"
    pp: "str | int | None"
    precision: "Literal['bf16', 'fp16', 'fp8', 'mxfp8', 'nvfp4'] | str | None"
    rank_order: "Literal['tp-dp-pp', 'tp-pp-dp', 'dp-tp-pp', 'dp-pp-tp', 'pp-tp-dp', 'pp-dp-tp'] | str | None"  # noqa: E501
    recipe: "str | bool | None"
    recompute: "Literal['none', 'selective', 'operators', 'full'] | str | None"
    recompute_layers: "str | int | None"
    reshard: "str | bool | None"
    schedule: "str | Path | Schedule | None"
    seq: "str | int | None"
    sequence: "str | int | None"
    sequence_parallel: "str | bool | None"
    shard_ranks: "str | int | None"
    shared_overlap: "str | bool | None"
    slow: "str | SlowRanks | None"
    stage_rows: "Literal['ends', 'every'] | str | None"
    states: "Literal['fp32', 'bf16', 'bf16-gradients'] | str | None"
    tp: "str | int | None"
    tp_comm_overlap: "str | bool | None"
    vpp: "str | int | None"
    warmup_flush: "str | bool | None"
    zero: "str | int | None"


class StepKeywords(SharedKeywords, total=False):
    """Every option of a step, as people type it; `stepsim.simulate` says what each is."""

    gpus: "str | int | None"
