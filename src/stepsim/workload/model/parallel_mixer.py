"""Attention and a state beside each other: both read a layer's normed input (Falcon-H1).

Everything about the block: its operators, exchanges and what it keeps are those of its two parts,
of which one result is added to the other (`FalconH1DecoderLayer` of transformers).
"""

from collections.abc import Mapping

from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import GroupedAttention, Mixer, keys_and_values
from stepsim.workload.model.context import gathered_keys
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.operators import attention_operators, memory
from stepsim.workload.model.parts import Block, Held, Mixing
from stepsim.workload.plan import PlanTable


class ParallelMixer(Mixer):
    """Grouped attention beside Mamba-2; `heads` are those of attention."""

    attention: GroupedAttention
    mamba: Mamba2

    assumption = (
        f"run attention and state one after the other, and its state to {Mamba2.assumption}"
    )

    def parameters(self, hidden: int) -> int:
        """Those of both parts."""
        return self.attention.parameters(hidden) + self.mamba.parameters(hidden)

    def shared_out(self) -> Mapping[str, int]:
        """What tp must divide of either part."""
        return {"heads": self.heads, **self.mamba.shared_out()}

    @property
    def turned_heads(self) -> int:
        """Those of the state: keys and values of attention are gathered along cp."""
        return self.mamba.turned_heads

    def mixing(self, hidden: int, columns: PlanTable) -> Mixing:
        """Projections of both, core attention and scan, and both ways back, which are added.

        Keys and values are gathered along cp, their gradients scattered, beside what the state
        sends.
        """
        before, core, after = attention_operators(self.attention, hidden, columns)
        size = columns.shard_tokens * hidden
        added = memory("sum of attention and state", 6.0 * size, 2.0 * size)
        gather, scatter = gathered_keys(keys_and_values(self.attention, columns), columns)
        first, mix, last = self.mamba.mixing(hidden, columns)
        return (
            Block(first.name, (*before, *first.operators), (gather, *first.forward)),
            Block(mix.name, (*core, *mix.operators), mix.forward, (scatter, *mix.backward)),
            replace(last, operators=(*after, *last.operators, added)),
        )

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """What the state keeps; queries, keys, values and attention's result, twice.

        The state's first product makes its outputs, another queries, keys and values.
        """
        state, t = self.mamba.held(columns, element), columns.tokens
        own = t * self.heads * self.attention.head_dim / columns.tp
        made = own + t * keys_and_values(self.attention, columns)
        return Held(
            kept=state.kept + 2.0 * made + (2.0 + element) * own,
            outputs=[*state.outputs, made],
            result=state.result + own,
        )
