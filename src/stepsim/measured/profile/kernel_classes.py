"""What kernels do, by their names and by the operators that launched them.

Names are read by what their parts mean in any library (cuBLAS and hipBLASLt, CUTLASS and CK, cuDNN,
FlashAttention, TransformerEngine, AITER, Triton), not by a list of names that were seen. A name
that says only that elements are touched, such as `vectorized_elementwise_kernel`, is told apart by
its functor or by its operator.
"""

import re
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from stepsim.measured.profile.events import HostOperator


class KernelClass(StrEnum):
    """What a kernel does; the value is what tables call it."""

    PRODUCTS = "products"
    EXPERTS = "products of experts"
    BATCHED = "batched products"
    ATTENTION = "attention"
    MIXERS = "state mixers"
    CONVOLUTIONS = "convolutions"
    NORMS = "norms"
    ACTIVATIONS = "activations"
    ELEMENTWISE = "elementwise"
    CASTS = "casts and copies"
    ROUTING = "routing of tokens"
    EMBEDDING = "embedding"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    OTHER = "not recognised"


_C = KernelClass
_SPECIFIC: tuple[tuple[KernelClass, str], ...] = (
    (_C.EMBEDDING, r"embedding|permute_pooled_emb|tbe_|indexing_backward|lookup"),
    (
        _C.MIXERS,
        r"selective_?scan|mamba|ssd_|chunk_(?:scan|state|cumsum|gated|local|scaled|fwd|bwd|delta|o_)"
        r"|delta_rule|state_passing|bmm_chunk|causal_?conv1d|conv1d|linear_attn|lightning|wkv|gla_"
        r"|kda_|recurrent",
    ),
    (_C.ELEMENTWISE, r"rope|rotary"),
    (
        _C.ATTENTION,
        r"flash|fmha|mha_|mha::|_mha|attn|attention|(?:^|[_:])sdpa|scaled_dot_product|[_:]mla_",
    ),
    (
        _C.OPTIMIZER,
        r"multi_?tensor|adam|lamb\b|lambstage|adafactor|adagrad|newton_?schulz|muon|momentum"
        r"|optimizer|[:_]sgd|_foreach_|distopt|l2_?norm|clip_grad",
    ),
    (_C.LOSS, r"cross_?entropy|xentropy|nll_?loss|log_?softmax|kl_?div|_loss"),
    (
        _C.EXPERTS,
        r"grouped_?(?:gemm|mm|matmul)(?!::)|(?:gemm|mm)_?grouped|group_?gemm|[mk]_grouped"
        r"|groupproblemshape|ptrarray|moe_?gemm|fused_moe|moe_2stages|ck_moe|megablocks|\bt?gmm\b",
    ),
    (_C.CASTS, r"::transpose|batched_transpose|cast_(?:and_)?transpose|transpose_dbias"),
    (
        _C.NORMS,
        r"layer_?norm|rms_?norm|batch_?norm|group_?norm|normali[sz]|(?:^|[_: ])ln_|_norm(?:_|\b)"
        r"|[_:]norm_|bn_(?:fw|bw)|gamma_?beta|rowwise_?moments|norm2d",
    ),
    (_C.CONVOLUTIONS, r"conv(?!ert)|winograd|im2col|nchw|nhwc|max_?pool|avg_?pool"),
    (
        _C.PRODUCTS,
        r"(?<!fb)gemm|gemv|nvjet|cublas|hipblas|rocblas|tensile|cijk_|xmma|matmul|split_?k|stream_?k"
        r"|wgmma|mfma|(?:^|[_: ])(?:add|scaled_|fused_|triton_)?mm(?:_|\b)|[:_]linear\b|dot_kernel",
    ),
    (
        _C.ACTIVATIONS,
        r"silu|swi_?glu|ge_?glu|gelu|relu|swish|sigmoid|act_and_mul|activation|threshold_kernel"
        r"|dgated|gated_kernel|softplus|glu_|::tanh|tanh_",
    ),
    (_C.ATTENTION, r"softmax"),
    (
        _C.ROUTING,
        r"top_?k|permute|moe|expert|router|routing|histogram|bincount|radix_?sort|::sort|sort_"
        r"|scatter|multihot|token_dispatch|sinkhorn|cub::|fused_mapping|[_:]gather|index_?select"
        r"|expand_to_fused|reduce_fused|aux_loss|searchsorted|nonzero",
    ),
    (
        _C.CASTS,
        r"(?<!no)cast|quant|transpose|copy|cat_?array|::cat\b|convert|_to_float|_to_hfp8|fill|amax|memset"
        r"|layout|contiguous|hadamard|_to_fp8|_to_copy|slice|stack|::to\b|::pad",
    ),
)
_GENERAL: tuple[tuple[KernelClass, str], ...] = (
    (
        _C.ELEMENTWISE,
        r"elementwise|element_wise|pointwise|functor|triton_(?:poi|red|per)|dropout|reduce|residual"
        r"|bias|::(?:add|mul|sub|div|pow|sum|mean|where|neg|exp|rsqrt|sqrt|eq|zero|ones)"
        r"|masked|arange|philox|distribution|cumsum|scan|index",
    ),
)


def _compiled(
    rules: tuple[tuple[KernelClass, str], ...],
) -> tuple[tuple[KernelClass, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in rules)


_RULES, _LAST_RULES = _compiled(_SPECIFIC), _compiled(_GENERAL)
_TOLD_BY = {
    _C.PRODUCTS: (_C.EXPERTS, _C.CONVOLUTIONS),
    _C.ACTIVATIONS: (_C.CONVOLUTIONS,),
    _C.ATTENTION: (_C.LOSS,),
}
"""Classes by name that are of another one where the operator says so."""
_BATCHED = re.compile(r"::(?:bmm|baddbmm)\b")
_UNFUSED = re.compile(r"softmax|bmm", re.IGNORECASE)
SIMULATED = "stepsim::"
"""What the names of kernels of simulated steps begin with: they mean nothing to others."""
_ROUTER_SIDES = 2
"""A softmax over so many sides is not one of attention's scores: it chooses experts."""
_MATRIX = 2


PRODUCT_FAMILIES = ("attention", "grouped_gemm", "conv", "gemm")
"""Families of kernels that matrix units bound; memory bounds the others."""
OTHER = "other"
_FAMILIES = MappingProxyType(
    {
        _C.PRODUCTS: "gemm",
        _C.BATCHED: "gemm",
        _C.EXPERTS: "grouped_gemm",
        _C.ATTENTION: "attention",
        _C.CONVOLUTIONS: "conv",
        _C.NORMS: "norm",
        _C.EMBEDDING: "embedding",
        _C.OTHER: OTHER,
    }
)
_BESIDE_PRODUCTS = re.compile(
    r"split_?k_?reduce|reduce_wgrad|bwd_?preprocess|gemv|gemmk1|gemmsn|ton(?:chw|hwc)",
    re.IGNORECASE,
)
"""Kernels that sum split products, lay their operands out, or multiply by a vector: bytes."""


class KernelWork(Struct, frozen=True, kw_only=True):
    """What a kernel does: its class, and of a product its three `sides`, ascending.

    Attention is `unfused` where it is made of products and a softmax.
    """

    work: KernelClass
    sides: tuple[int, ...] = ()
    unfused: bool = False


def kernel_work(name: str, operator: HostOperator | None = None) -> KernelWork:
    """What a kernel does, by its name and by the operator that launched it."""
    own = "" if name.startswith(SIMULATED) else name
    called = operator.name if operator else ""
    work = _class_of(own, called)
    sides = product_sides(operator.sides) if operator else ()
    if work in (_C.PRODUCTS, _C.BATCHED) and _class_by(called) is _C.ATTENTION:
        return KernelWork(work=_C.ATTENTION, unfused=True)
    if work is _C.ATTENTION and _is_softmax(own, called):
        narrow = operator is not None and _is_narrow(operator.sides)
        return KernelWork(work=_C.ROUTING if narrow else work, unfused=not narrow)
    if work in (_C.PRODUCTS, _C.EXPERTS):
        return KernelWork(work=work, sides=sides)
    return KernelWork(work=work)


def family_of(name: str) -> str:
    """What a kernel does by its name, as tables of kernels beside communication call it."""
    if _BESIDE_PRODUCTS.search(name):
        return "reduce"
    return _FAMILIES.get(kernel_work(name).work, "elementwise")


def _class_of(name: str, called: str) -> KernelClass:
    by_name = _class_by(name)
    if by_name is _C.PRODUCTS and _BATCHED.search(called):
        return _C.BATCHED
    if by_name in _TOLD_BY:
        by_operator = _class_by(called)
        return by_operator if by_operator in _TOLD_BY[by_name] else by_name
    if by_name is not None:
        return by_name
    if _BATCHED.search(called):
        return _C.BATCHED
    known = _class_by(called) or _general(name) or _general(called)
    return known or _C.OTHER


def _class_by(text: str) -> KernelClass | None:
    """The class that a text says by itself."""
    return next((kind for kind, rule in _RULES if rule.search(text)), None) if text else None


def _general(text: str) -> KernelClass | None:
    return next((kind for kind, rule in _LAST_RULES if rule.search(text)), None) if text else None


def _is_softmax(name: str, called: str) -> bool:
    """Whether attention is a kernel of its parts: a fused kernel has a name that says attention."""
    text = name or called
    fused = next(rule for kind, rule in _RULES if kind is _C.ATTENTION)
    return not fused.search(text) and bool(_UNFUSED.search(f"{name} {called}"))


def _is_narrow(sides: tuple[tuple[int, ...], ...]) -> bool:
    return bool(sides) and len(sides[0]) <= _ROUTER_SIDES


def product_sides(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Rows, depth and columns of a product by the shapes of its operands, ascending.

    The three are the same of a product and of both its gradients. All sides of an operand but the
    last are rows, and of weights of groups the first is no side. () where shapes tell no product.
    """
    operands = [shape for shape in shapes if len(shape) >= _MATRIX]
    if len(operands) < _MATRIX:
        return ()
    first, second = operands[-2], operands[-1]
    rows, depth = 1, first[-1]
    for side in first[:-1]:
        rows *= side
    inner, outer = second[-2:]
    if depth not in (inner, outer):
        return ()
    return tuple(sorted((rows, depth, outer if depth == inner else inner)))
