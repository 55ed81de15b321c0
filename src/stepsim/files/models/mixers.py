"""Mixers in place of attention, in the words of each family's configuration."""

from collections.abc import Callable, Mapping

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.files.models.kinds import Kinds
from stepsim.files.models.reading import HEADS, KV_HEADS
from stepsim.workload.model.architecture import GroupedAttention, Mixer
from stepsim.workload.model.block_sparse import BlockSparseAttention
from stepsim.workload.model.delta_net import GatedDeltaNet
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.kimi_delta import KimiDeltaAttention
from stepsim.workload.model.lightning_attention import LightningAttention
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.mamba1 import Mamba1
from stepsim.workload.model.parallel_mixer import ParallelMixer
from stepsim.workload.model.short_convolution import ShortConvolution


class Mixers(Kinds, kw_only=True):
    """Reads the mixer that some layers have in place of attention."""

    def mixer(self, hidden: int) -> Mixer:
        """The mixer of the family; one that names none has a gated delta net by its keys."""
        makers: Mapping[str, Callable[[int], Mixer]] = {
            "": self._delta_net,
            "delta": self._delta_net,
            "mamba": self._mamba1,
            "mamba2": self.mamba2,
            "parallel": self._parallel,
            "kimi": self._kimi,
            "lightning": self._lightning,
            "convolution": self._convolution,
            "blocks": self._blocks,
        }
        return makers[self.family.mixer](hidden)

    def grouped(self, hidden: int) -> GroupedAttention:
        """Grouped attention beside a state."""
        raise NotImplementedError

    def mamba2(self, hidden: int) -> Mamba2:
        """Mamba-2 in the words of NemotronHConfig, BambaConfig or Mamba2Config.

        Raises WorkloadError naming the key at fault.
        """
        fields = self.fields
        fields.read |= {"expand", "time_step_rank", "use_mamba_kernels", "mamba_norm_before_gate"}
        fields.read |= {"mamba_use_mlp", "mamba_expand", "rms_norm", "norm_before_gate"}
        if (act := fields.text("mamba_hidden_act", default="silu")) != "silu":
            raise WorkloadError(bad_value(fields.place, "mamba_hidden_act", act, "silu"))
        names = ("use_bias", "mamba_proj_bias", "projectors_bias")
        biases = [fields.flag(name, default=False) for name in names]
        heads = fields.count("mamba_num_heads", "mamba_n_heads", *_PURE_HEADS)
        return Mamba2(
            heads=heads,
            head_dim=self._state_width(hidden, heads),
            groups=fields.count("mamba_n_groups", "mamba_ngroups", "n_groups", default=1),
            state=fields.count("ssm_state_size", "mamba_d_state", "state_size"),
            convolution=fields.count("conv_kernel", "mamba_d_conv", default=4),
            chunk=fields.count("mamba_chunk_size", "chunk_size", default=128),
            convolution_bias=fields.flag(
                "use_conv_bias", fields.flag("mamba_conv_bias", default=True)
            ),
            bias=any(biases),
            normed=fields.flag("mamba_rms_norm", self.family.mixer != "parallel"),
        )

    def _state_width(self, hidden: int, heads: int) -> int:
        """Width of a head: said, or `auto` the state's width over its heads."""
        fields = self.fields
        names = ["mamba_head_dim", "mamba_d_head", "mamba_headdim"]
        if self.family.always_mixes and self.family.mixer == "mamba2":
            names.append("head_dim")
        inner = fields.some("mamba_d_ssm")
        if fields.raw(*names) not in (None, "auto"):
            return fields.count(*names)
        return (inner or fields.count("mamba_expand", default=2) * hidden) // heads

    def _mamba1(self, hidden: int) -> Mamba1:
        """Mamba in the words of JambaConfig or MambaConfig."""
        fields = self.fields
        fields.read |= {"use_mamba_kernels", "use_mambapy", "use_associative_scan", "expand"}
        inner = fields.count("mamba_expand", default=2) * hidden
        if self.family.always_mixes:
            inner = fields.count(
                "intermediate_size", default=fields.count("expand", default=2) * hidden
            )
        names = ("mamba_dt_rank", "time_step_rank")
        auto = fields.raw(*names) in (None, "auto")
        return Mamba1(
            heads=inner,
            state=fields.count("mamba_d_state", "state_size", default=16),
            rank=-(-hidden // 16) if auto else fields.count(*names),
            convolution=fields.count("mamba_d_conv", "conv_kernel", default=4),
            convolution_bias=fields.flag(
                "use_conv_bias", fields.flag("mamba_conv_bias", default=True)
            ),
            bias=fields.flag("use_bias", fields.flag("mamba_proj_bias", default=False)),
            normed=not self.family.always_mixes,
        )

    def _parallel(self, hidden: int) -> ParallelMixer:
        attention = self.grouped(hidden)
        return ParallelMixer(heads=attention.heads, attention=attention, mamba=self.mamba2(hidden))

    def _delta_net(self, hidden: int) -> GatedDeltaNet:
        """A gated delta net in the words of Qwen3NextConfig; OLMo leaves widths out."""
        fields = self.fields
        heads = fields.some(*HEADS)
        keys = fields.count("linear_num_key_heads", default=heads)
        width = fields.count("linear_key_head_dim", default=3 * hidden // (4 * keys) or None)
        return GatedDeltaNet(
            heads=fields.count("linear_num_value_heads", default=heads),
            key_heads=keys,
            key_dim=width,
            value_dim=fields.count("linear_value_head_dim", default=2 * width),
            convolution=fields.count("linear_conv_kernel_dim", default=4),
        )

    def _kimi(self, hidden: int) -> KimiDeltaAttention:
        """Kimi delta attention, in the words of KimiLinearConfig or BailingHybridConfig."""
        fields = self.fields
        own = fields.inside("linear_attn_config")
        fields.read |= {"layer_group_size", "linear_conv_kernel_dim", "short_conv_kernel_size"}
        width = own.some("head_dim") or fields.some("linear_head_dim")
        width = width or fields.count("head_dim", default=128)
        return KimiDeltaAttention(
            heads=own.some("num_heads") or fields.count("linear_num_heads", *HEADS),
            head_dim=width,
            convolution=own.some("short_conv_kernel_size")
            or fields.count("linear_conv_kernel_dim", "short_conv_kernel_size", default=4),
            gate_rank=None if self.family.full_gates else width,
        )

    def _lightning(self, hidden: int) -> LightningAttention:
        """Lightning attention, in the words of MiniMaxConfig or BailingMoeLinearV2Config."""
        fields = self.fields
        fields.read |= {"group_norm_size", "linear_silu", "layer_group_size", *KV_HEADS}
        heads = fields.count(*HEADS)
        return LightningAttention(
            heads=heads,
            head_dim=fields.count("head_dim", default=hidden // heads),
            block=fields.count("block_size", default=256),
            normed_heads=fields.flag("use_qk_norm", default=False),
            bias=fields.flag("use_qkv_bias", default=False),
        )

    def _blocks(self, hidden: int) -> BlockSparseAttention:
        """Attention to blocks, in the words of MiniMaxM3VLTextConfig or of what is published."""
        fields = self.fields
        own = fields.inside("sparse_attention_config")
        block = own.some("sparse_block_size") or fields.count("index_block_size")
        blocks = own.some("sparse_topk_blocks") or fields.count("index_topk_blocks")
        fields.read |= {"index_local_blocks", "index_head_dim", "index_n_heads"}
        attention = self.grouped(hidden)
        return BlockSparseAttention(
            heads=attention.heads,
            attention=attention,
            indexer=Indexer(
                heads=own.some("sparse_num_index_heads") or fields.count("index_n_heads"),
                dim=own.some("sparse_index_dim") or fields.count("index_head_dim"),
                top_k=blocks * block,
            ),
            block=block,
        )

    def _convolution(self, hidden: int) -> ShortConvolution:
        """A gated short convolution, in the words of Lfm2Config."""
        fields = self.fields
        fields.read |= {"conv_dim", "conv_dim_out", "conv_use_xavier_init"}
        return ShortConvolution(
            heads=hidden,
            length=fields.count("conv_L_cache", default=3),
            bias=fields.flag("conv_bias", default=False),
        )


_PURE_HEADS = ("num_heads",)
