"""How a pipeline can be run: the choices of people, by name."""

from enum import StrEnum


class StageRows(StrEnum):
    """Who runs embedding, head and loss rows."""

    ENDS = "ends"
    EVERY = "every"


class RankOrder(StrEnum):
    """Which axis runs fastest through the NPUs of the network, which next, which slowest."""

    TP_DP_PP = "tp-dp-pp"
    TP_PP_DP = "tp-pp-dp"
    DP_TP_PP = "dp-tp-pp"
    DP_PP_TP = "dp-pp-tp"
    PP_TP_DP = "pp-tp-dp"
    PP_DP_TP = "pp-dp-tp"


class JobPlacement(StrEnum):
    """Which NPUs a job takes of a network of nodes (or racks) that one switch joins inside.

    `ALIGNED`: of each as many as keep the groups whole that fit in one, as schedulers place jobs.
    `PACKED`: all of one, then all of the next.
    """

    ALIGNED = "aligned"
    PACKED = "packed"


class EpLayout(StrEnum):
    """Where expert groups lie in a stage.

    `DP`: consecutive cp and dp indices with one tp index, Megatron's order where experts are split
    over tp as other layers are. `FOLDED`: consecutive ranks, tp included, Megatron's parallel
    folding (`--expert-tensor-parallel-size 1`).
    """

    DP = "dp"
    FOLDED = "folded"


class Sharing(StrEnum):
    """Which transfers that overlap share links: none, siblings (groups that act together), all."""

    NONE = "none"
    SIBLINGS = "siblings"
    FAIR = "fair"


class Engine(StrEnum):
    """What finds the times of a run: events (SimPy), or columns level by level."""

    SIMPY = "simpy"
    LEVELS = "levels"
