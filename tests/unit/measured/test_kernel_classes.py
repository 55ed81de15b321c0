"""Kernels are known by what their names say, whatever library they are of."""

import pytest

from stepsim.measured.profile.events import HostOperator
from stepsim.measured.profile.kernel_classes import KernelClass, kernel_work, product_sides

NAMES = {
    KernelClass.PRODUCTS: (
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>>>",
        "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0",
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<...>>",
        "triton_tem_fused_mm_12",
        "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasSplitKParams<float>)",
    ),
    KernelClass.EXPERTS: (
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::"
        "GroupProblemShape<cute::tuple<int, int, int>>>>",
        "_ZN9deep_gemm24m_grouped_fp8_gemm_nt_contiguousE",
        "void ck_tile::kentry<ck_tile::GroupedGemmKernel<...>>",
        "fused_moe_kernel",
        "void megablocks::gmm<...>",
    ),
    KernelClass.ATTENTION: (
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false>>",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwd<2>>>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x128x128_4x1x1",
        "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<...>>",
        "_attn_fwd",
        "void scaled_upper_triang_masked_softmax_warp_forward<__nv_bfloat16, float, 12>",
    ),
    KernelClass.NORMS: (
        "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<...>",
        "void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16>>",
        "triton_red_fused__to_copy_native_layer_norm_0",
        "void ck_tile::kentry<ck_tile::Rmsnorm2dFwd<...>>",
        "_rms_norm_fwd_kernel",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>",
    ),
    KernelClass.ACTIVATIONS: (
        "void transformer_engine::gated_kernel<float, transformer_engine::Empty, silu>",
        "triton_poi_fused_mul_silu_3",
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>",
        "_swiglu_fwd_kernel",
        "void vllm::act_and_mul_kernel<c10::BFloat16>",
    ),
    KernelClass.OPTIMIZER: (
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>>",
        "void transformer_engine::multi_tensor_adam::AdamFunctorMaster<...>",
        "void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>>",
    ),
    KernelClass.LOSS: (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, LogSoftMaxForwardEpilogue>",
        "liger_cross_entropy_kernel",
        "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
    ),
    KernelClass.ROUTING: (
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>",
        "void transformer_engine::moe_permute_kernel<__nv_bfloat16>",
        "_permute_kernel",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4>",
    ),
    KernelClass.CASTS: (
        "void transformer_engine::cast_transpose_optimized_kernel<true, false, float>",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1>",
        "_per_token_group_quant_fp8",
    ),
    KernelClass.ELEMENTWISE: (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "void fused_rope_forward<__nv_bfloat16>",
        "triton_poi_fused_add_5",
    ),
    KernelClass.MIXERS: (
        "_chunk_scan_fwd_kernel",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<32, 4>>",
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "void causal_conv1d_fwd_kernel<...>",
    ),
    KernelClass.CONVOLUTIONS: (
        "cutlass_tensorop_s1688fprop_optimized_tf32_64x128_32x3_nhwc_align4",
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc",
    ),
    KernelClass.EMBEDDING: ("void at::native::(anonymous namespace)::embedding_backward_kernel",),
    KernelClass.OTHER: ("Kernel2", "spin_kernel"),
}


@pytest.mark.parametrize(
    ("work", "name"), [(w, name) for w, names in NAMES.items() for name in names]
)
def test_a_name_says_what_a_kernel_does(work: KernelClass, name: str) -> None:
    assert kernel_work(name).work is work


@pytest.mark.parametrize(
    ("name", "operator", "work"),
    [
        ("Kernel2", "aten::_grouped_mm", KernelClass.EXPERTS),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "aten::bmm", KernelClass.BATCHED),
        ("ampere_sgemm_128x64_nn", "aten::cudnn_convolution", KernelClass.CONVOLUTIONS),
        (
            "softmax_warp_forward<float, float, float, 10, true>",
            "aten::_log_softmax",
            KernelClass.LOSS,
        ),
        ("triton_unknown_4", "aten::silu", KernelClass.ACTIVATIONS),
        ("stepsim::attention out", "aten::mm", KernelClass.PRODUCTS),
    ],
)
def test_an_operator_says_what_a_name_leaves_open(
    name: str, operator: str, work: KernelClass
) -> None:
    assert kernel_work(name, HostOperator(name=operator)).work is work


def test_unfused_attention_is_told_from_fused_and_from_the_choice_of_experts() -> None:
    assert not kernel_work("void flash::flash_fwd_splitkv_kernel<softmax>").unfused
    scores = HostOperator(name="aten::_softmax", sides=((1, 32, 4096, 4096),))
    assert kernel_work("softmax_warp_forward<float>", scores).unfused
    router = HostOperator(name="aten::_softmax", sides=((4096, 128),))
    assert kernel_work("softmax_warp_forward<float>", router).work is KernelClass.ROUTING


@pytest.mark.parametrize(
    ("shapes", "sides"),
    [
        (((8, 4), (4, 6)), (4, 6, 8)),
        (((4, 8), (8, 6)), (4, 6, 8)),  # weight gradient
        (((6,), (8, 4), (4, 6)), (4, 6, 8)),  # with a bias
        (((2, 4, 4), (6, 4)), (4, 6, 8)),  # a linear layer of 2 x 4 tokens
        (((8, 4), (3, 4, 6)), (4, 6, 8)),  # 3 experts
        (((8, 5), (4, 6)), ()),
        (((8, 4),), ()),
    ],
)
def test_a_product_and_its_gradients_have_the_same_sides(
    shapes: tuple[tuple[int, ...], ...], sides: tuple[int, ...]
) -> None:
    assert product_sides(shapes) == sides
