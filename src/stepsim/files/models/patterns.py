"""Patterns of hybrid models: the one part that each layer is, in letters or by name."""

from collections.abc import Callable, Iterable, Mapping

from stepsim.base.structs import Noun, replace
from stepsim.workload.model.architecture import Attention, Layer, Mlp

PART_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Parts by their letter (NemotronHConfig of transformers, Megatron-LM's `--hybrid-*-pattern`)."""


class PartMakers(Noun):
    """What makes each part of a pattern: `mixing` those that mix tokens, `mlps` the others."""

    mixing: Mapping[str, Callable[[], Attention]]
    mlps: Mapping[str, Callable[[], Mlp]]

    def layers(self, parts: Iterable[str]) -> tuple[Layer, ...]:
        """A layer with a norm for each part; alike parts are one object."""
        made: dict[str, Layer] = {}
        listed = list(parts)
        for part in dict.fromkeys(listed):
            attention = self.mixing[part]() if part in self.mixing else None
            mlp = self.mlps[part]() if part in self.mlps else None
            made[part] = Layer(attention=attention, mlp=mlp, norms=1, single=True)
        return tuple(made[part] for part in listed)

    def predictions(self, parts: Iterable[str]) -> tuple[Layer, ...]:
        """Layers of a module that predicts a further token.

        Parts that mix tokens begin a layer, an MLP after one belongs to it: `*E` is one layer.
        """
        result: list[Layer] = []
        for layer in self.layers(parts):
            if layer.attention is None and result and result[-1].mlp is None:
                result[-1] = replace(result[-1], mlp=layer.mlp, norms=2, single=False)
            else:
                result.append(layer)
        return tuple(result)
