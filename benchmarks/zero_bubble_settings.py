"""The Zero Bubble paper's settings, and the iterations that its cluster should show.

What differs from the calculation of the paper: the stages are not equal, every action costs host
time, and the optimizer follows. One number per model is calibrated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from accuracy_published import iteration_ms, stage_cost

from stepsim.measured.layers import StageCost
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.auto_zb import auto_zb
from stepsim.parallel.schedules.interleaved import interleaved
from stepsim.parallel.schedules.one_f_one_b import one_f_one_b

PS_PER_MS = 10**9
MEMORY_LIMITS = {"ZB-1p": 1.0, "ZB-2p": 2.0}
BLOCKING = ("1F1B", "1F1B-I")
_BYTES_PER_ELEMENT = 2


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the paper's profiles; times in ps."""

    row: dict[str, str]

    def time(self, name: str) -> int:
        return round(float(self.row[f"T_{name}_ms"]) * PS_PER_MS)

    def number(self, name: str) -> int:
        return int(self.row[name])

    @property
    def layers(self) -> int:
        """Layers of a middle stage, and chunks of 1F1B-I; the ends hold one less."""
        return (self.number("layers") + 2) // self.number("p")

    @property
    def message_bytes(self) -> int:
        """Activations of a microbatch in bf16."""
        elements = self.number("hidden") * self.number("seq") * self.number("mbs")
        return _BYTES_PER_ELEMENT * elements

    @property
    def stage_parameters(self) -> int:
        """Weights of a middle stage: 12 h^2 a layer."""
        return 12 * self.layers * self.number("hidden") ** 2

    @property
    def weight_grad_share(self) -> float:
        """The paper's part of a layer's activation that its weight gradients need.

        32 h of the 34 h + 5 a s bytes of a token: h the hidden size, a heads, s the sequence.
        """
        hidden, heads, sequence = (self.number(name) for name in ("hidden", "heads", "seq"))
        return 32 * hidden / (34 * hidden + 5 * heads * sequence)

    @cached_property
    def schedules(self) -> dict[str, Schedule]:
        """The paper's four orders; those of ZB are searched with its equal stages."""
        ranks, microbatches = self.number("p"), self.number("m")
        searched = {
            name: auto_zb(
                ranks=ranks,
                microbatches=microbatches,
                forward_ps=self.time("F"),
                input_grad_ps=self.time("B"),
                weight_grad_ps=self.time("W"),
                hop_ps=self.time("comm"),
                memory_limit=limit,
                weight_grad_share=self.weight_grad_share,
            )
            for name, limit in MEMORY_LIMITS.items()
        }
        return {
            "1F1B": one_f_one_b(ranks=ranks, microbatches=microbatches),
            "1F1B-I": interleaved(ranks=ranks, microbatches=microbatches, chunks=self.layers),
            **searched,
        }

    def stages(self, chunks: int, excess: float) -> list[list[StageCost]]:
        """What the chunks of every rank take, of equally many layers each.

        The first stage holds one layer less. So does the last one, whose head and loss take as long
        as that layer and `excess` times the stage besides.
        """
        stage = np.array([self.time(name) for name in "FBW"])
        layer = stage / self.layers
        rows = [[stage / chunks] * chunks for _ in range(self.number("p"))]
        rows[0] = [rows[0][0] - layer, *rows[0][1:]]
        rows[-1] = [*rows[-1][:-1], rows[-1][-1] + excess * stage]
        return [[stage_cost(*times.tolist()) for times in rank] for rank in rows]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the cluster adds to the profiled times, in ps.

    `host` per action, `hop_constant` the part of T_comm that is host time, `optimizer` per
    parameter of a stage.
    """

    host: float
    hop_constant: float
    optimizer: float

    def iteration_ms(self, setting: Setting, name: str, excess: float) -> float:
        """An iteration of a schedule: the longest span of a rank, and the optimizer."""
        schedule = setting.schedules[name]
        span = iteration_ms(
            schedule,
            setting.stages(schedule.placement.chunks, excess),
            max(setting.time("comm") - self.hop_constant, 0),
            self.host,
            P2PMode.BLOCKING if name in BLOCKING else None,
        )
        return span + self.optimizer * setting.stage_parameters / PS_PER_MS

    def excess(self, setting: Setting) -> float:
        """Excess of the last stage that makes the measured 1F1B iteration, found by halving."""
        measured = float(setting.row["iter_ms_measured_1F1B"])
        low, high = 0.0, 1.0
        while high - low > 1e-5:
            middle = (low + high) / 2
            if self.iteration_ms(setting, "1F1B", middle) < measured:
                low = middle
            else:
                high = middle
        return low


def constant_of_messages(settings: Sequence[Setting]) -> float:
    """What T_comm holds beside the bytes, in ps: the constant of a least-squares line."""
    sizes = [setting.message_bytes for setting in settings]
    return float(np.polyfit(sizes, [setting.time("comm") for setting in settings], 1)[1])
