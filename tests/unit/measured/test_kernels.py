"""Which kernels communicate, told by the parts of their names, and what they are called."""

import pytest

from stepsim.measured.profile.kernels import communication_kernel, kernel_names, name_parts

COMMUNICATIONS = {
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "nccl ReduceScatter"
    ),
    "ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)": "nccl AllGather",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "nccl AllReduce",
    "ncclDevKernel_Generic_2(ncclDevKernelArgsStorage<4096ul>) [clone .kd]": "nccl Generic",
    "_Z23ncclDevKernel_Generic_124ncclDevKernelArgsStorageILm4096EE": "nccl Generic",
    "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)": "nccl rccl_main",
    "void mscclpp::allreduceNvls<__half>(mscclpp::DeviceHandle*)": "nccl allreduce",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*, int)": (
        "deep_ep combine"
    ),
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*)": "deep_ep dispatch",
    "_ZN7deep_ep9internode15notify_dispatchILb0ELi4EEEvPKiPi": "deep_ep notify_dispatch",
    "void primus_turbo::deep_ep::internode::combine<4>(int4*)": "deep_ep combine",
    "void hybrid_ep::combine_kernel<hybrid_ep::warp_group<4, 0> >(hybrid_ep::param_t)": (
        "hybrid_ep combine"
    ),
    "hybrid_ep::device_sync_kernel(unsigned int*, unsigned int)": "hybrid_ep device_sync",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(A2AParams)": (
        "moe_a2a moeA2ADispatch"
    ),
    "EpCombineIntraNodeKernel_bf16_p2p": "moe_a2a EpCombineIntraNodeKernel_bf16_p2p",
    "void alltoall_on_stream_kernel<float>(int, float*, float const*, unsigned long)": (
        "nvshmem alltoall_on_stream"
    ),
    "nvshmemi_proxy_quiet_entrypoint()": "nvshmem nvshmemi_proxy_quiet_entrypoint",
    "kuserbuffers_pushrecv(int, int, int, int, int*)": "userbuffers kuserbuffers_pushrecv",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": (
        "symm_mem multimem_all_reduce"
    ),
    "void <unnamed>::two_shot_all_reduce_kernel_inplace<float, 8>(float**)": (
        "symm_mem two_shot_all_reduce_kernel_inplace"
    ),
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)": (
        "symm_mem cross_device_reduce_2stage"
    ),
    "oneccl_allreduce_pcie<sycl::half, RingTransmit>": "oneccl oneccl_allreduce_pcie",
    "hcom_allGather__210_1_1": "hccl hcom_allGather__210_1_1",
    "all-reduce.17": "collective all-reduce.17",
    "MyAllReduceKernel<float>(float*)": "collective MyAllReduce",
}


@pytest.mark.parametrize(("name", "called"), COMMUNICATIONS.items())
def test_kernels_of_libraries_communicate(name: str, called: str) -> None:
    assert communication_kernel(name) == called


@pytest.mark.parametrize(
    "name",
    [
        "void gemm::kernel<deep_ep::internode::SourceMeta>(deep_ep::Config const*)",
        "void cutlass::device_kernel<nvshmem::Params>(ncclDevComm*)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void hybrid_ep::permute_kernel<unsigned short, float>(unsigned short*)",
        "void cub::DeviceReduceKernel<cub::Policy, float*>(float*)",
        "gemm_reduce_scatter_kernel",
        "loop_broadcast_fusion_3",
        "accl_gemm",
        "operator<",
        "",
    ],
)
def test_others_compute(name: str) -> None:
    assert communication_kernel(name) == ""


def test_names_are_taken_apart() -> None:
    assert name_parts("void a::b<c::d<1>, (e)2>::f<g>(h::i)") == ("a", "b", "f")
    assert name_parts("_ZN3one3twoILi1EEEvv") == ("one", "two")
    assert name_parts("(") == ("",)


def test_every_library_has_a_source() -> None:
    libraries = kernel_names().library
    assert all(each.source for each in libraries)
    assert len({each.name for each in libraries}) == len(libraries)
