"""How long the documents of a batch are: a list of lengths, or a law that they are drawn from.

A law is written as a call: `lognormal(mu=5, sigma=1, least=16, most=1024)`,
`pareto(shape=1.2, least=100, most=8192)`, `uniform(least=1, most=4096)`, `fixed(length=4096)`, or a
mixture of weighted ones, `0.9 lognormal(mu=6, sigma=1) + 0.1 fixed(length=32768)`.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta

from stepsim.base.arrays import Floats, Ints, ints
from stepsim.base.errors import PlanError, within
from stepsim.base.structs import Noun, Numbers, Values, noun_of

if TYPE_CHECKING:
    from numpy.random import Generator

LONGEST = 1 << 24
"""Most tokens of a document: thousands of sequences, into which packers cut it."""
_MOST_SIBLINGS = 1 << 20


class LengthLaw(Noun, forbid_unknown_fields=True):
    """A law of document lengths in tokens, from `least` to `most`: draws outside move to the edge.

    A subclass says how raw lengths are drawn. Raises PlanError for bounds that cannot be.
    """

    least: int = 1
    most: int = LONGEST

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most <= LONGEST:
            bounds = f"{self.least} to {self.most}"
            raise PlanError(f"lengths are {bounds}: expected 1 <= least <= most <= {LONGEST}")

    def draw(self, generator: "Generator", count: int) -> Ints:
        """Lengths of `count` documents, each drawn for itself."""
        raw = np.clip(self._raw(generator, count), self.least, self.most)
        return np.rint(raw).astype(np.int64)

    @abstractmethod
    def _raw(self, generator: "Generator", count: int) -> Floats:
        """Lengths before they are moved to the bounds and rounded."""


class Lognormal(LengthLaw):
    """Lengths whose logarithm is normal of mean `mu` and standard deviation `sigma`."""

    mu: Annotated[float, Meta(ge=-50, le=50)]
    sigma: Annotated[float, Meta(ge=0, le=20)]

    def _raw(self, generator: "Generator", count: int) -> Floats:
        return generator.lognormal(self.mu, self.sigma, count)


class Pareto(LengthLaw):
    """Lengths above `least` of which a share x**-shape is longer than x times `least`."""

    shape: Annotated[float, Meta(ge=0.2, le=1000)]

    def _raw(self, generator: "Generator", count: int) -> Floats:
        return self.least * (1.0 + generator.pareto(self.shape, count))


class Uniform(LengthLaw):
    """Every length from `least` to `most` is as likely."""

    most: int

    def _raw(self, generator: "Generator", count: int) -> Floats:
        return generator.integers(self.least, self.most, count, endpoint=True).astype(np.float64)


class Fixed(LengthLaw):
    """Every document has one length."""

    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        within("fixed: length", self.length, self.least, self.most)

    def _raw(self, generator: "Generator", count: int) -> Floats:
        return np.full(count, float(self.length))


class ListedLengths(Noun):
    """Lengths of documents that were counted; batches are drawn from them with equal chances."""

    lengths: Numbers

    def __post_init__(self) -> None:
        if not self.lengths:
            raise PlanError("lengths are empty: expected at least one document")
        if wrong := [length for length in self.lengths if not 1 <= length <= LONGEST]:
            raise PlanError(f"lengths: a document has {wrong[0]} tokens: expected 1 to {LONGEST}")

    @property
    def most(self) -> int:
        """The longest document, in tokens."""
        return max(self.lengths)

    def draw(self, generator: "Generator", count: int) -> Ints:
        """Lengths of `count` documents: whole rounds through the list, each in a new order."""
        rounds = -(-count // len(self.lengths))
        known = ints(self.lengths)
        return np.concatenate([generator.permutation(known) for _ in range(rounds)])[:count]


class Mixture(Noun):
    """Documents of several kinds: each is drawn from one law, chosen by weight."""

    weights: tuple[float, ...]
    laws: tuple[LengthLaw, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.laws) or not all(w > 0 for w in self.weights):
            raise PlanError(f"weights are {self.weights}: expected one above 0 for each law")

    @property
    def most(self) -> int:
        """The longest document that any of the laws allows, in tokens."""
        return max(law.most for law in self.laws)

    def draw(self, generator: "Generator", count: int) -> Ints:
        """Lengths of `count` documents, each drawn for itself."""
        share = np.array(self.weights) / sum(self.weights)
        kinds = generator.choice(len(share), count, p=share)
        lengths = np.zeros(count, np.int64)
        for kind, law in enumerate(self.laws):
            lengths[kinds == kind] = law.draw(generator, int((kinds == kind).sum()))
        return lengths


class SiblingLengths(Noun):
    """Documents in families of `count`, as samples of one prompt: a family has one typical length.

    A member's logarithm differs from its family's by a normal deviation `spread`; the families'
    own lengths are drawn from `law`. For example `count` 8 and `spread` 0.3.
    """

    law: LengthLaw | ListedLengths | Mixture
    count: int
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not (self.count in range(1, _MOST_SIBLINGS + 1) and 0 <= self.spread <= 20):
            shown = f"{self.count:.4g} with a spread of {self.spread:.4g}"
            allowed = f"a whole number from 1 to {_MOST_SIBLINGS}, a spread of 0 to 20"
            raise PlanError(f"siblings are {shown}: expected {allowed}")

    @property
    def most(self) -> int:
        """The longest document that the law of families allows, in tokens."""
        return self.law.most

    def draw(self, generator: "Generator", count: int) -> Ints:
        """Lengths of `count` documents, families one behind the other."""
        families = -(-count // self.count)
        typical = np.repeat(self.law.draw(generator, families), self.count)[:count]
        factor = np.exp(generator.normal(0.0, self.spread, count))
        return np.clip(np.rint(typical * factor), 1, self.most).astype(np.int64)


Lengths = LengthLaw | ListedLengths | Mixture | SiblingLengths
"""What the documents of a batch are drawn from."""

_LAWS: Mapping[str, type[LengthLaw]] = {
    "lognormal": Lognormal,
    "pareto": Pareto,
    "uniform": Uniform,
    "fixed": Fixed,
}
_CALL = re.compile(r"(?:(?P<weight>\d+\.?\d*|\.\d+)\s+)?(?P<name>[a-z]+)\((?P<values>[^()]*)\)")


def parse_lengths(text: str, numbers: Mapping[str, float] = {}) -> Lengths:
    """The law that a text writes, e.g. `lognormal(mu=5, sigma=1, least=16, most=1024)`.

    Laws joined by `+` are a mixture, each with its weight before it. `siblings=8` and `spread=0.3`
    in the first law make families. `numbers` stand in place of those that the text has. Raises
    PlanError naming what is wrong, and the laws there are.
    """
    read = []
    for part in map(str.strip, text.split("+")):
        match = _CALL.fullmatch(part)
        if match is None:
            raise PlanError(
                f"lengths are {part!r}: expected a file of lengths, or a law such as "
                "'lognormal(mu=5, sigma=1, least=16, most=1024)'"
            )
        read.append(match)
    weights = tuple(float(match["weight"] or 1.0) for match in read)
    values = [_values(match["name"], match["values"]) for match in read]
    if len(read) > 1 and numbers.keys() - {"siblings", "spread"}:
        raise PlanError(f"{', '.join(numbers)}: a mixture of lengths has no such number")
    values[0] |= {key: _whole(value) for key, value in numbers.items()}
    count, spread = values[0].pop("siblings", None), values[0].pop("spread", None)
    laws = [_law(match["name"], given) for match, given in zip(read, values, strict=True)]
    law = laws[0] if len(laws) == 1 else Mixture(weights=weights, laws=tuple(laws))
    if count is None and spread is not None:
        raise PlanError(f"spread is {spread:g}: expected beside siblings, e.g. siblings=8")
    if count is None:
        return law
    return SiblingLengths(law=law, count=count, spread=spread or 0.0)


def _values(name: str, text: str) -> Values:
    """Names and numbers of `mu=5, sigma=1`."""
    values: Values = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, _, number = (part.strip() for part in pair.partition("="))
        try:
            values[key] = _whole(float(number))
        except ValueError:
            raise PlanError(f"{name} has {pair!r}: expected a name, '=' and a number") from None
    return values


def _whole(value: float) -> float:
    """A number as a whole one, where it is one."""
    return int(value) if value.is_integer() else value


def _law(name: str, values: Mapping[str, Any]) -> LengthLaw:
    """The law of a name with its values; raises PlanError for others than it has."""
    if name not in _LAWS:
        raise PlanError(f"law of lengths is {name!r}: expected one of {', '.join(_LAWS)}")
    return noun_of(name, values, _LAWS[name], PlanError)
