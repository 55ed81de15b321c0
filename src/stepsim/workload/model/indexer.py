"""The indexer of sparse attention: it scores keys, and the best ones are read.

It is that of DeepSeek-V3.2 (2512.02556) and of the compressed attention of DeepSeek-V4, trained
beside the model: it learns what attention weighs over the keys that were chosen, and nothing of its
gradient reaches the layer's input (`dsa.py` of Megatron-Core, with `dsa_indexer_use_sparse_loss`).
All ranks of tp run the whole of it.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import AtLeastOne
from stepsim.workload.model.model import ModelPart
from stepsim.workload.model.operators import keys_before, memory, products
from stepsim.workload.model.parts import Exchange, Operator, OperatorKind, Operators, operator_of
from stepsim.workload.plan import PlanTable

SCORE_BYTES = 4.0
"""Bytes of a score, of the number of a key, and of what attention weighs."""


class Indexer(ModelPart):
    """An indexer of `heads` queries, `dim` wide as its keys are, that chooses `top_k` keys.

    One key stands for `ratio` tokens.
    """

    heads: AtLeastOne
    dim: AtLeastOne
    top_k: AtLeastOne
    ratio: AtLeastOne = 1

    @property
    def width(self) -> int:
        """Width of all queries."""
        return self.heads * self.dim

    def read(self, columns: PlanTable) -> Floats:
        """Keys that a token reads, on average of the sequence; one may stand for several tokens."""
        return keys_before(columns.attended / self.ratio, self.top_k)

    def projections(
        self, rank: float, hidden: float, keys: float, columns: PlanTable
    ) -> Iterator[Operator]:
        """Products for queries, `keys` wide keys, and weights; their inputs get no gradient."""
        t = columns.tokens
        for item in products(
            columns,
            ("index queries", t, rank, self.width),
            ("index keys", t, hidden, keys),
            ("index weights", t, hidden, self.heads),
        ):
            yield item.times(np.array([[1.0], [0.0], [1.0]]))

    def around(self, attention: Operator, flops: Floats, columns: PlanTable) -> Operators:
        """Scores of all keys before a token, the choice of the best, attention, and the target.

        Scores take 2 t s/2 H d in the forward; backward thrice that of the chosen keys: scores
        again, gradients of queries and of keys. The choice reads each score in 4 bytes. The indexer
        learns from a target: attention's scores of the chosen keys once more, of so many `flops`.
        """
        t, keys = columns.tokens, self.read(columns)
        scores, chosen = t * columns.attended / self.ratio / 2, SCORE_BYTES * t * keys
        nothing = np.zeros_like(t)
        mixed = partial(operator_of, kind=OperatorKind.MIXED, launches=(1, 1), core=True)
        return (
            mixed(
                "index scores",
                flops=(2.0 * scores * self.width, 6.0 * t * keys * self.width),
                moved=(SCORE_BYTES * scores, 2.0 * chosen),
            ),
            memory("choice of keys", SCORE_BYTES * scores + chosen, nothing, core=True),
            attention,
            mixed("index target", flops=(flops, nothing), moved=(chosen, 2.0 * chosen)),
        )

    def summed(self, columns: PlanTable) -> Exchange:
        """The sum of this target over ranks of tp, each having that of its own heads."""
        size = SCORE_BYTES * columns.tokens * self.read(columns) * (columns.tp > 1)
        return Exchange(CollectiveKind.ALL_REDUCE, Group.TP, size)

    def kept(self, columns: PlanTable) -> Floats:
        """Bytes kept of queries and weights, and of each chosen key in 4 bytes.

        Those are its number, its weight and attention's.
        """
        chosen = 3 * SCORE_BYTES * self.read(columns)
        return columns.tokens * (2.0 * (self.width + self.heads) + chosen)
