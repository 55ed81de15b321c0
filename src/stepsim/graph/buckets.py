"""Gradient buckets: reducing gradients piece by piece while the last backward goes on.

As Megatron-LM's distributed data parallel does with `overlap_grad_reduce`: rows add their gradients
to a bucket, and a full bucket is reduced at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepsim.workload.rows import CommOp, Row


@dataclass(slots=True, kw_only=True)
class Buckets:
    """What is left to reduce: `ops` reduce the gradients of rows whose weights sum to `weight`.

    A row's share of the gradients is its share of the weight-gradient compute, since both grow
    with its parameters. `even`: no row says, so all have the same.
    """

    ops: tuple[CommOp, ...]
    bucket_bytes: int
    weight: int
    even: bool
    _passed: int = 0
    _taken: tuple[int, ...] = ()

    def add(self, row: Row) -> tuple[CommOp, ...]:
        """The row's gradients are ready: what to reduce now, nothing until a bucket is full."""
        self._passed += 1 if self.even else row.weight_grad.compute_ps
        taken = self._taken or (0,) * len(self.ops)
        ready = tuple(op.size_bytes * self._passed // self.weight for op in self.ops)
        if sum(ready) - sum(taken) < self.bucket_bytes and self._passed < self.weight:
            return ()
        self._taken = ready
        shares = zip(self.ops, taken, ready, strict=True)
        return tuple(replace(op, size_bytes=b - a) for op, a, b in shares if b > a)


def gradient_buckets(ops: Sequence[CommOp], rows: Sequence[Row], bucket_bytes: int) -> Buckets:
    """Buckets for the gradients of these rows."""
    weight = sum(row.weight_grad.compute_ps for row in rows)
    return Buckets(
        ops=tuple(ops), bucket_bytes=bucket_bytes, weight=weight or len(rows), even=not weight
    )
