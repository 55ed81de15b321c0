"""Names of rows that mean something, and names that mean nothing where the structure needs one.

`docs/formats.md` lists them; AICB's generator writes them. What a row is for follows from its name
alone, so that an unknown one at the ends of a block is taken as a part of a layer.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from stepsim.workload.rows import Row

_FLAGS = re.ASCII
_KNOWN = re.compile(
    r"embedding_layer\w*|attention\w*|(dense_)?mlp\w*|moe\w*|shared_expert\w*|final_\w*"
    r"|embedding_norm|cross_entropy\w*|optimizer\w*|grad_\w+|layernorm|norm|embedding_grads"
    r"|micro_test",
    _FLAGS,
)
_LAYER = re.compile(r"attention\w*", _FLAGS)
_EMBEDDING = re.compile(r"embedding_layer\w*", _FLAGS)
_SHOWN = 4


def unknown_names(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence for each way in which a name that is not known decides how rows are taken."""
    starts = [i for i, row in enumerate(rows) if _EMBEDDING.match(row.name)]
    layers = [i for i, row in enumerate(rows) if _LAYER.match(row.name)]
    unknown = [i for i, row in enumerate(rows) if not _KNOWN.fullmatch(row.name)]
    before = [i for i in unknown if starts and i < starts[0]]
    if before:
        yield f"{_shown(rows, before)}: no known name: run once per step"
    inside = [i for i in unknown if i not in set(before)]
    if not starts and any("embed" in rows[i].name.lower() for i in inside):
        yield "no row begins with embedding_layer: the rows are one microbatch without embedding"
    if not layers:
        if len(inside) > 1:
            yield f"{_shown(rows, inside)}: no row begins with attention: every row is a layer"
        return
    count = Counter(_stem(row.name) for row in rows)
    ends = [i for i in inside if 2 * count[_stem(rows[i].name)] < len(layers)]
    if ends:
        yield (
            f"{_shown(rows, ends)}: no known name: part of the layer that it stands in "
            "(embedding_layer, final_ and cross_entropy begin the names of the ends)"
        )


def _shown(rows: Sequence[Row], numbers: Sequence[int]) -> str:
    names = list(dict.fromkeys(rows[i].name for i in numbers))
    more = ", ..." if len(names) > _SHOWN else ""
    return f"row(s) {', '.join(map(repr, names[:_SHOWN]))}{more}"


def _stem(name: str) -> str:
    return name.rstrip("0123456789").rstrip("_")
