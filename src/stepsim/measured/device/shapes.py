"""Which kernels tell the most of a model on a device: those of its own layers."""

from collections.abc import Iterator
from itertools import chain, product

from msgspec import Struct

from stepsim.measured.device.kernels import (
    AttentionCall,
    LayerCall,
    MovingCall,
    MovingKind,
    ProductCall,
)
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Mixer,
)
from stepsim.workload.model.blocks import head_blocks, layer_blocks
from stepsim.workload.model.columns import PlanColumns, plan_columns
from stepsim.workload.model.operators import OperatorKind
from stepsim.workload.model.plan import ModelPlan, Precision
from stepsim.workload.rows import Phase

_NARROW = 64
_WIDE = 128


class Shapes(Struct, frozen=True, kw_only=True):
    """A model's kernels at some splits: `tp` are its degrees, `batch` samples of a microbatch."""

    architecture: Architecture
    batch: int
    sequence: int
    tp: tuple[int, ...]

    def products(self, precisions: tuple[Precision, ...]) -> Iterator[ProductCall]:
        """Products of layers and head in all three layouts, of whole and of half microbatches.

        Each precision has its own; the head's and the router's are in bf16 alone.
        """
        known: set[ProductCall] = set()
        for kind, sides in chain.from_iterable(map(self._sides, self.tp)):
            whole, inner, outer = map(int, sides)
            used = [each for each in precisions if kind is not OperatorKind.HEAD or not each.casts]
            for tokens, precision, phase in product((whole, whole // 2), used, Phase):
                call = ProductCall(
                    phase=phase, tokens=tokens, inner=inner, outer=outer, precision=precision
                )
                if tokens and call not in known:
                    known.add(call)
                    yield call

    def _sides(self, tp: int) -> Iterator[tuple[OperatorKind, tuple[float, ...]]]:
        """Tokens, inner and outer width of every product of a rank."""
        columns = self.columns(tp)
        layers = self.architecture.layer_kinds()
        blocks = [b for layer in layers for b in layer_blocks(layer, self.architecture, columns)]
        blocks += head_blocks(self.architecture, columns, fused_loss=True)
        for block in blocks:
            for operator in block.operators:
                if operator.sides is not None:
                    yield operator.kind, tuple(float(side[0]) for side in operator.sides)

    def columns(self, tp: int) -> PlanColumns:
        """The plan of a microbatch on so many ranks, as columns."""
        plan = ModelPlan(
            tp=tp,
            microbatch_size=self.batch,
            global_batch=self.batch,
            sequence=self.sequence,
        )
        return plan_columns([plan])

    def attention(self) -> Iterator[AttentionCall]:
        """Core attention at a quarter, half and the whole of the sequence, of all splits' heads."""
        heads, kv_heads, width = self._heads()
        known: set[AttentionCall] = set()
        for tp in self.tp:
            for sequence in sorted({max(self.sequence // part, 1) for part in (4, 2, 1)}):
                for backward in (False, True):
                    call = AttentionCall(
                        batch=self.batch,
                        heads=max(heads // tp, 1),
                        kv_heads=max(kv_heads // tp, 1),
                        head_dim=width,
                        sequence=sequence,
                        backward=backward,
                    )
                    if call not in known:
                        known.add(call)
                        yield call

    def narrow(self) -> tuple[AttentionCall, AttentionCall]:
        """Forwards of heads 64 and 128 wide, alike in everything else."""
        heads, _, _ = self._heads()
        narrow, wide = (
            AttentionCall(
                batch=self.batch,
                heads=heads,
                kv_heads=heads,
                head_dim=width,
                sequence=self.sequence,
            )
            for width in (_NARROW, _WIDE)
        )
        return narrow, wide

    def _heads(self) -> tuple[int, int, int]:
        """Heads, those with keys, and their width; of layers without attention 128 wide ones."""
        for layer in self.architecture.layers:
            match layer.attention:
                case GroupedAttention() as attention:
                    return attention.heads, attention.kv_heads, attention.head_dim
                case LatentAttention() as attention:
                    return attention.heads, attention.heads, _WIDE
        heads = max(self.architecture.hidden // _WIDE, 1)
        return heads, heads, _WIDE

    def moving(self) -> Iterator[MovingCall]:
        """Kernels that move bytes, over a layer's tokens and hidden width."""
        tokens = self.batch * self.sequence
        for kind in MovingKind:
            yield MovingCall(kind=kind, rows=tokens, width=self.architecture.hidden)

    def layer(self) -> LayerCall | None:
        """A layer with grouped attention and a dense MLP; None where the model has none."""
        for layer in self.architecture.layers:
            attention, mlp = layer.attention, layer.mlp
            if isinstance(attention, GroupedAttention) and isinstance(mlp, DenseMlp):
                return LayerCall(
                    batch=self.batch,
                    sequence=self.sequence,
                    hidden=self.architecture.hidden,
                    heads=attention.heads,
                    kv_heads=attention.kv_heads,
                    head_dim=attention.head_dim,
                    width=mlp.width,
                    gated=mlp.activation.gated,
                )
        return None

    def notes(self) -> Iterator[str]:
        """What of the model is not measured."""
        layers = self.architecture.layer_kinds()
        if any(isinstance(each.mlp, ExpertMlp) for each in layers):
            yield "grouped products of experts are not measured: they take the rate of others"
        if any(isinstance(each.attention, LatentAttention) for each in layers):
            yield "core attention is measured with keys and values 128 wide, not the model's"
        if any(isinstance(each.attention, Mixer) for each in layers):
            yield "scans of layers with a state are not measured: they take an assumed time"
        if self.layer() is None:
            yield "no layer is measured: the model has none with grouped attention and a dense MLP"
