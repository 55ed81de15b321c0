"""How a pipeline can be run: the choices of people, by name."""

from enum import StrEnum


class StageRows(StrEnum):
    """Who runs embedding, head and loss rows."""

    ENDS = "ends"
    EVERY = "every"


class JobPlacement(StrEnum):
    """Which NPUs a job takes of a network of nodes (or racks) that one switch joins inside.

    `ALIGNED`: of each as many as keep the groups whole that fit in one, as schedulers place jobs.
    `PACKED`: all of one, then all of the next.
    """

    ALIGNED = "aligned"
    PACKED = "packed"


class Sharing(StrEnum):
    """Which transfers that overlap share links: none, siblings (groups that act together), all."""

    NONE = "none"
    SIBLINGS = "siblings"
    FAIR = "fair"


class Engine(StrEnum):
    """What finds the times of a run: events (SimPy), or columns level by level."""

    SIMPY = "simpy"
    LEVELS = "levels"
