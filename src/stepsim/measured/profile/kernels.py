"""Which kernels communicate: a table of libraries, and the parts of names that tell them.

A kernel's name is taken apart first: `void dpsk::ep::internode::combine<false, 8>(int4*)` has the
parts `dpsk`, `ep`, `internode` and `combine`. What it is made of and takes, in angle brackets and
in round ones, says nothing of what it does: a product may take a buffer of a library.
"""

import re
from typing import NamedTuple

_SKIPPED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\(unnamed\)::|_NV_ANON_NAMESPACE::")
_LENGTH = re.compile(r"(\d{1,3})(?=\D)")
_ENDING = re.compile(r"_?kernel(?:_impl)?$", re.IGNORECASE)
_COLLECTIVES = "all[-_]?reduce|reduce[-_]?scatter|all[-_]?gather|all[-_]?to[-_]?all|send[-_]?recv"
_CAMELS = "AllReduce|ReduceScatter|AllGather|AllToAll|SendRecv"


class KernelLibrary(NamedTuple):
    """A library whose kernels communicate, and where its names stand.

    `pattern` has to occur in the parts of a name, joined by `::`. Kernels of the library whose own
    name has `local` in it work for one rank alone. `source` is where the names were read.
    """

    name: str
    pattern: str
    source: str
    local: str = r"^$"


LIBRARIES = (
    KernelLibrary(
        name="nccl",
        pattern=r"(?:^|::)(?:nccl|rccl|msccl)",
        source="NVIDIA/nccl src/device/generate.py: ncclDevKernel_, ncclSymkDevKernel_, 2.18 "
        "ncclKernel_; ROCm/rccl src/device: ncclDevKernel_Generic, before rccl_main_kernel; "
        "microsoft/msccl: mscclKernel_; microsoft/mscclpp: namespace mscclpp",
    ),
    KernelLibrary(
        name="hybrid_ep",
        pattern=r"(?i)hybrid_?ep(?:_|::)",
        source="deepseek-ai/DeepEP, branch hybrid-ep, csrc/hybrid_ep/backend (namespace hybrid_ep)",
        local=r"permute|scan|preprocess|pad|convert|metadata",
    ),
    KernelLibrary(
        name="deep_ep",
        pattern=r"(?:^|::)(?:deep_ep|dpsk::ep|uccl)::",
        source="deepseek-ai/DeepEP csrc/kernels (namespace deep_ep), DeepSeek's own build in "
        "deepseek-ai/profile-data (dpsk::ep); AMD-AGI/Primus-Turbo (primus_turbo::deep_ep); "
        "uccl-project/uccl ep/src",
        local=r"layout|permute",
    ),
    KernelLibrary(
        name="moe_a2a",
        pattern=r"(?i:moe_?a2a)|(?:^|::)Ep(?:Dispatch|Combine)|(?:^|::)pplx::",
        source="NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels (moeA2A...), "
        "ROCm/mori src/ops/dispatch_combine (EpDispatch...Kernel), perplexityai/pplx-kernels",
        local=r"prepare|layout",
    ),
    KernelLibrary(
        name="nvshmem",
        pattern=r"(?:^|::)(?:nvshmem|rocshmem|roc_shmem)|_on_stream_kernel|exchangeSplitAndOffset",
        source="NVIDIA/nvshmem src/host/coll and src/host/stream (..._on_stream_kernel, "
        "nvshmemi_...), ROCm/rocSHMEM; pytorch torch/csrc/distributed/c10d/symm_mem/"
        "nvshmem_extension.cu",
    ),
    KernelLibrary(
        name="userbuffers",
        pattern=r"userbuffers_",
        source="NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers",
    ),
    KernelLibrary(
        name="symm_mem",
        pattern=r"(?i)symm_?mem|symmetric_memory|multimem_|(?:one|two)_?shot_?all|"
        r"cross_device_reduce|all_?reduce_fusion|(?:^|::)(?:barrier|put_signal|wait_signal)_kernel$",
        source="pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu; vLLM and "
        "SGLang csrc/custom_all_reduce.cuh (cross_device_reduce_1stage); TensorRT-LLM "
        "allReduceFusionKernels.cu",
    ),
    KernelLibrary(
        name="oneccl",
        pattern=r"(?:^|::)(?:oneccl|ccl_)|(?:^|::)ccl::",
        source="uxlfoundation/oneCCL src/coll/algorithms (oneccl_allreduce_...), kernels of Intel "
        "GPUs",
    ),
    KernelLibrary(
        name="hccl",
        pattern=r"(?:^|::)(?:hcom_|hccl)",
        source="Ascend/msprof: COMMUNICATION_OP (hcom_allReduce__428_0_1); Habana's HCCL",
    ),
    KernelLibrary(
        name="gloo",
        pattern=r"(?:^|::)gloo(?:$|[:_])",
        source="pytorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp (gloo:all_reduce)",
    ),
    KernelLibrary(
        name="collective",
        pattern=rf"(?:(?<![A-Za-z])(?i:{_COLLECTIVES})|{_CAMELS})[^:]*$",
        source="any other kernel that bears the name of a collective (MTIA's among them)",
        local=r"gemm|matmul|warp|block|thread|tile",
    ),
)
"""Libraries in the order in which they are asked: the first whose pattern occurs has the kernel."""

_COMPILED = tuple(
    (each.name, re.compile(each.pattern), re.compile(each.local, re.IGNORECASE))
    for each in LIBRARIES
)
_CALLED = re.compile(rf"{_COLLECTIVES}|broadcast|reduce|generic", re.IGNORECASE)


def communication_kernel(name: str) -> str:
    """What a kernel that communicates is called in short, `deep_ep combine`; empty for others.

    The words are the library's and the kernel's own name, without what it is made of; those of
    NCCL's are the collective's.
    """
    parts = name_parts(name)
    path = "::".join(parts)
    for library, pattern, local in _COMPILED:
        if pattern.search(path):
            return "" if local.search(parts[-1]) else f"{library} {_own_name(library, parts[-1])}"
    return ""


def name_parts(name: str) -> tuple[str, ...]:
    """The scopes of a kernel's name and its own, without types: at least one, maybe empty."""
    if name.startswith("_Z"):
        return _mangled_parts(name) or (name,)
    depth, kept = 0, list[str]()
    for letter in _SKIPPED.sub("", name):
        if letter in "<(":
            if letter == "(" and not depth and kept:
                break
            depth += 1
        elif letter in ">)":
            depth = max(depth - 1, 0)
        elif not depth:
            kept.append(letter)
    words = "".join(kept).split()
    return tuple(words[-1].split("::")) if words else ("",)


def is_peer_copy(name: str) -> bool:
    """Whether a copy goes from one device to another, as copy engines carry collectives.

    CUPTI calls it `Memcpy PtoP (Device -> Device)`, or tells that its ends are two devices.
    """
    return "ptop" in name.lower() or "peer" in name.lower()


def _mangled_parts(name: str) -> tuple[str, ...]:
    """The names of `_ZN7deep_ep9internode8dispatchE...`: each has its length before it.

    Only scopes begin with an N; without it one name stands alone, and its types follow.
    """
    found, scoped = list[str](), name.startswith("_ZN")
    place = 3 if scoped else 2
    while (length := _LENGTH.match(name, place)) and (scoped or not found):
        place = length.end() + int(length[1])
        found.append(name[length.end() : place])
    return tuple(each for each in found if each != "_GLOBAL__N_1")


def _own_name(library: str, name: str) -> str:
    called = _CALLED.search(name) if library == "nccl" else None
    return called[0] if called else _ENDING.sub("", name) or name
