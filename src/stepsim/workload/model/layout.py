"""Which virtual stage of a pipeline holds which layers."""

import re
from collections.abc import Sequence
from itertools import groupby, product
from math import ceil

from stepsim.base.errors import PlanError, bad_value
from stepsim.base.structs import Noun

_LAYOUT = "E, t, m and L with *n, ( ) and |, e.g. 'Et*3|(tt|)*29m|L'"


class StageSlice(Noun):
    """What one virtual stage runs: `layers` layers, and which ends of the model."""

    layers: int
    embedding: bool = False
    prediction_layers: int = 0
    head: bool = False


Slices = tuple[StageSlice, ...]
"""Virtual stages in the model's order."""


class LayerLayout(Noun):
    """How layers are shared out: evenly, with ends counted as layers, or as `slices` say.

    `embedding_counts` and `head_counts` are Megatron-LM's `account_for_embedding_in_pipeline_split`
    and `account_for_loss_in_pipeline_split`. `slices` are the virtual stages in the model's order.
    An `equal` layout has as many layers in every stage, or as many with ends counted.
    """

    embedding_counts: bool = False
    head_counts: bool = False
    slices: Slices = ()
    equal: bool = False

    def resolve(self, layers: int, prediction_layers: int, stages: int) -> Slices:
        """What each of `stages` virtual stages runs, in the model's order.

        Even shares differ by one at most, longer ones first. Raises PlanError where the slices do
        not add up to the model, or ends that count as layers leave no even share.
        """
        if not self.slices:
            return counted_layout(self.even(layers, stages), prediction_layers).slices
        found = {
            "virtual stages (pp x chunks)": (len(self.slices), stages),
            "layers": (sum(each.layers for each in self.slices), layers),
            "embeddings, on the first": (int(self.slices[0].embedding), 1),
            "heads, on the last": (int(self.slices[-1].head), 1),
            "embeddings": (sum(each.embedding for each in self.slices), 1),
            "heads": (sum(each.head for each in self.slices), 1),
            "prediction layers": (
                sum(each.prediction_layers for each in self.slices),
                prediction_layers,
            ),
        }
        for name, (has, expected) in found.items():
            if has != expected:
                raise PlanError(f"layout has {has} {name}: expected {expected}")
        return self.slices

    def even(self, layers: int, stages: int) -> list[int]:
        """Layers of each virtual stage; raises PlanError where there is no even share."""
        if (other := self.counting_ends(layers, stages)) is not self:
            return other.even(layers, stages)
        if self.equal and layers % stages:
            raise PlanError(
                f"layers is {layers}: expected a multiple of the {stages} virtual stages (pp x "
                "chunks), two fewer (embedding and head count as layers), one fewer (the head "
                "counts as a layer), or a layout"
            )
        total = layers + self.embedding_counts + self.head_counts
        counted = self.embedding_counts or self.head_counts
        if counted and total % stages:
            raise PlanError(
                f"layout: {layers} layers and the ends that count as layers are {total}: expected "
                f"a multiple of pp x chunks, {stages}"
            )
        share, longer = divmod(total, stages)
        counts = [share + (stage < longer) for stage in range(stages)]
        counts[0] -= self.embedding_counts
        counts[-1] -= self.head_counts
        if min(counts) < 0 or (min(counts) == 0 and not counted):
            raise PlanError(_no_share(layers, stages))
        return counts

    def counting_ends(self, layers: int, stages: int) -> "LayerLayout":
        """The layout with ends counted as layers where that alone gives an equal share.

        An `equal` layout counts both ends, else the head, whose loss is the heavier one. An even
        layout does where there are too few layers for one in every stage. Others stay as they are.
        """
        even = self == _EVEN and layers < stages
        if not (even or (self.equal and layers % stages)):
            return self
        both, head = _NAMED["ends"], _NAMED["head"]
        return both if (layers + 2) % stages == 0 else head if (layers + 1) % stages == 0 else self

    def text(self) -> str | None:
        """What `named_layout` reads back; None for an equal layout, which is the default."""
        if self.slices:
            return layout_text(self.slices)
        return next((name for name, one in _NAMED.items() if one == self and not one.equal), None)


def _no_share(layers: int, stages: int) -> str:
    return (
        f"layout: {layers} layers over {stages} virtual stages (pp x chunks): expected at least "
        "one each"
    )


def counted_layout(counts: Sequence[int], prediction_layers: int = 0) -> LayerLayout:
    """A layout of so many layers per virtual stage, ends on the first and the last."""
    last = len(counts) - 1
    return LayerLayout(
        slices=tuple(
            StageSlice(
                layers=count,
                embedding=stage == 0,
                prediction_layers=prediction_layers if stage == last else 0,
                head=stage == last,
            )
            for stage, count in enumerate(counts)
        )
    )


def balanced_layout(
    layers: int, prediction_layers: int, pp: int, chunks: int, *, embedding: float, last: float
) -> LayerLayout:
    """The layout whose slowest rank has least to do, ends on the first and last virtual stage.

    `embedding` and `last` are what the ends cost in layers; prediction layers belong to the last.
    Longer virtual stages follow each other and come late, where 1F1B holds fewer microbatches. Of
    equally fast layouts the most even one is taken. Raises PlanError where a virtual stage between
    the ends would be empty.
    """
    stages = pp * chunks
    found = []
    for fewer in product(range(ceil(embedding) + 2), range(ceil(last) + 2)):
        # even shares of layers and ends, longer ones late but not last
        share, longer = divmod(layers + sum(fewer), stages)
        counts = [share + (stages - 1 - longer <= stage < stages - 1) for stage in range(stages)]
        counts[0] -= fewer[0]
        counts[-1] -= fewer[1]
        if min(counts[1:-1], default=1) < 1 or min(counts) < 0:
            continue
        ranks = [float(sum(counts[rank::pp])) for rank in range(pp)]
        ranks[0] += embedding
        ranks[-1] += last
        found.append((max(ranks), fewer, counts))
    if not found:
        raise PlanError(_no_share(layers, stages))
    return counted_layout(min(found)[2], prediction_layers)


def layout_by_cost(
    costs: Sequence[float], head: float, stages: int, prediction_layers: int = 0
) -> LayerLayout:
    """The layout of nanotron: a stage takes layers until the cost so far is above its share.

    `costs` are of the layers in the model's order, `head` is of the last matrix; both ends stay on
    the first and the last stage. With 28 layers of 1, a head of 3.6 and 4 stages a stage's share is
    7.9: 8, 8, 8 and 4 layers.
    """
    share = (sum(costs) + head) / stages
    counts, done, stage = [0] * stages, 0.0, 0
    for cost in costs:
        counts[stage] += 1
        done += cost
        stage += done > share * (stage + 1) and stage < stages - 1
    return counted_layout(counts, prediction_layers)


def layout_text(slices: Slices) -> str:
    """Megatron-LM's letters of a layout, which `parse_layout` reads; repeats are counted."""
    *others, last = (
        "E" * stage.embedding
        + "".join(
            f"{letter}*{count}" if count > 2 else letter * count
            for letter, count in (("t", stage.layers), ("m", stage.prediction_layers))
        )
        + "L" * stage.head
        for stage in slices
    )
    runs = [(letters, len(list(same))) for letters, same in groupby(others)]
    texts = [f"({letters}|)*{count}" if count > 1 else f"{letters}|" for letters, count in runs]
    return "".join(texts) + last


_NAMED = {
    "equal": LayerLayout(equal=True),
    "even": LayerLayout(),
    "ends": LayerLayout(embedding_counts=True, head_counts=True),
    "embedding": LayerLayout(embedding_counts=True),
    "head": LayerLayout(head_counts=True),
}


_EVEN = _NAMED["even"]


def even_or_ends(layers: int, stages: int) -> LayerLayout:
    """The layout of a run that says none: equal shares, also with ends counted, else even ones.

    Where there are too few layers for all, each has a stage of its own behind the embedding's, the
    head has the last, and stages before it are empty, as nanotron shares out its blocks.
    """
    if layers + 2 < stages:
        return counted_layout([0, *[1] * layers, *[0] * (stages - layers - 1)])
    equal = _NAMED["equal"].counting_ends(layers, stages)
    return _EVEN if equal.equal else equal


def named_layout(text: str, prediction_layers: int = 0) -> LayerLayout:
    """The layout of a text: a name, layers of every virtual stage, or Megatron-LM's letters.

    `equal` and `even` are shares without and with a rest; `ends`, `embedding` and `head` say what
    counts as a layer; layers are `10,12,10` or `10+12+10`. Raises PlanError.
    """
    if text in _NAMED:
        return _NAMED[text]
    if re.fullmatch(r"\d{1,6}([,+]\d{1,6})*", text):
        return counted_layout([int(n) for n in re.split("[,+]", text)], prediction_layers)
    return parse_layout(text)


def parse_layout(text: str) -> LayerLayout:
    """The layout of Megatron-LM's `pipeline_model_parallel_layout`; raises PlanError.

    `E` is the embedding, `t` a layer, `m` a prediction layer, `L` the loss; `|` ends a virtual
    stage, `x*n` and `(...)*n` repeat, commas mean nothing.
    """
    flat = text.replace(",", "").replace(" ", "")
    for pattern in (r"\(([^()]*)\)\*(\d+)", r"([EtmL|])\*(\d+)"):
        flat = re.sub(pattern, _times, flat)
    if not flat or set(flat) - set("EtmL|"):
        raise PlanError(bad_value("layout", "pipeline_model_parallel_layout", text, _LAYOUT))
    return LayerLayout(
        slices=tuple(
            StageSlice(
                layers=stage.count("t"),
                embedding="E" in stage,
                prediction_layers=stage.count("m"),
                head="L" in stage,
            )
            for stage in flat.split("|")
        )
    )


def _times(found: re.Match[str]) -> str:
    """A part so often as is said; `?`, which is no letter, where that is never or too often."""
    count = int(found[2])
    return found[1] * count if 1 <= count <= 4096 else "?"
