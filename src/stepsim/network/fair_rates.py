"""Max-min fair rates of transfers over links. No clock, no events.

A transfer puts a load on several links at once: as many of its flows (or shares of flows) as cross
each. All flows of a transfer have one rate, its level. Progressive filling raises all levels
together; when a link is full, the transfers that cross it keep their level and the others go on
(Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). The result is the one allocation in
which every transfer crosses a full link on which no other has a higher level.
"""

import numpy as np

from stepsim.base.arrays import Floats, Ints

_FULL = 1 + 1e-12
_MANTISSA = float(1 << 40)


def fair_levels(
    transfer: Ints, link: Ints, load: Floats, capacity: Floats, transfers: int
) -> Floats:
    """Level of each of the `transfers`, in units of capacity per unit of load.

    Row i says that `transfer[i]` puts `load[i]` on `link[i]`: loads are positive, and a (transfer,
    link) pair appears once. `capacity[l]` of link l is positive, or infinite for a link that never
    fills. A transfer that crosses no link of finite capacity has an infinite level. Levels are
    rounded to 40 bits, so that sums taken in another order give the same.
    """
    finite = np.isfinite(capacity[link])
    transfer, link, load = transfer[finite], link[finite], load[finite]
    level = np.full(transfers, np.inf)
    free = capacity.astype(np.float64)
    while transfer.size:
        wanted = np.bincount(link, load, minlength=len(capacity))
        reached = np.divide(free, wanted, out=np.full(len(free), np.inf), where=wanted > 0)
        now = float(rounded(max(float(reached.min()), 0.0)))
        full = reached <= now * _FULL
        stopped = np.zeros(transfers, bool)
        stopped[transfer[full[link]]] = True
        level[stopped] = now
        done = stopped[transfer]
        free -= np.bincount(link[done], load[done] * now, minlength=len(capacity))
        transfer, link, load = transfer[~done], link[~done], load[~done]
    return level


def rounded(values: Floats | float) -> Floats:
    """Positive numbers rounded to 40 significant bits; 0 and infinity as they are."""
    mantissa, exponent = np.frexp(values)
    found: Floats = np.ldexp(np.rint(mantissa * _MANTISSA) / _MANTISSA, exponent)
    return found
