"""How unevenly tokens reach experts: a law that loads are drawn from, or counts of a router.

A load is drawn, or counted, for each layer and each microbatch. An exchange between experts ends
when the fullest rank has its tokens, and the next one begins when that rank has computed them, so
what counts of a load is how many tokens the fullest rank of an expert group has over the mean.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun

_MOST = 100.0
_FORM = re.compile(r"(\w+):([\d.]+(?:e[+-]?\d+)?)(?::(\d{1,18}))?", re.ASCII)
_SKEW = "skew"
_LEAST = {_SKEW: 1.0, "power": 0.0, "dirichlet": 1e-3}  # the least number of each law
BALANCED = "balanced"
"""What people write for tokens that reach all experts evenly."""


class LoadLaw(StrEnum):
    """Laws of experts' shares of the tokens.

    `POWER` gives the r-th of them a share in proportion to r^-a, in an order drawn at random:
    `power:0` is even. `DIRICHLET` draws shares from the symmetric Dirichlet distribution with
    concentration a: the smaller, the more uneven; `dirichlet:1` makes all shares equally probable.
    """

    POWER = "power"
    DIRICHLET = "dirichlet"


class ExpertLaw(Noun):
    """A law with its number; equal seeds draw equal loads."""

    law: LoadLaw
    amount: float
    seed: int = 0

    def __str__(self) -> str:
        """As people write it, e.g. `power:1.2`, or `power:1.2:7` with a seed."""
        return f"{self.law}:{self.amount:g}" + (f":{self.seed}" if self.seed else "")

    def shares(self, random: "np.random.Generator", experts: int, top_k: int) -> Floats:
        """Share of the tokens' choices that each of so many experts has.

        A token chooses an expert once, so that none has more than 1 / `top_k`: what is above is
        shared out among the others in proportion.
        """
        if self.law is LoadLaw.DIRICHLET:
            found = np.asarray(random.dirichlet(np.full(experts, self.amount)))
        else:
            found = np.power(random.permutation(experts) + 1.0, -self.amount)
        return _limited(found / found.sum(), 1 / top_k)


class ExpertSkew(Noun, kw_only=False):
    """The busiest expert rank has so many times the mean load, in every layer and microbatch."""

    over_mean: float

    def __str__(self) -> str:
        """As people write it, e.g. `skew:1.5`."""
        return f"{_SKEW}:{self.over_mean:g}"


class ExpertCounts(Noun):
    """Tokens of every expert by layer and microbatch, as a router counted them.

    Layers are those of the model, from 0; after the last microbatch the first follows again. What
    is not counted is balanced.
    """

    source: str
    microbatches: int
    tokens: Mapping[tuple[int, int], tuple[float, ...]]

    def __str__(self) -> str:
        """Where the counts are from."""
        return self.source

    def __hash__(self) -> int:
        return hash((self.source, self.microbatches, tuple(self.tokens.items())))

    def of(self, layer: int, microbatch: int) -> tuple[float, ...] | None:
        """Tokens of every expert; None where nobody counted them."""
        return self.tokens.get((layer, microbatch % self.microbatches))


ExpertLoad = tuple[float, ...] | ExpertSkew | ExpertLaw | ExpertCounts
"""Tokens of every expert, or the busiest rank's, alike in all layers and microbatches; or a law; or
a router's counts."""


def parse_expert_law(text: str) -> ExpertLaw | ExpertSkew | None:
    """The law of a text such as `power:1.2`; None of `balanced`; raises PlanError for others."""
    if text.strip() == BALANCED:
        return None
    match = _FORM.fullmatch(text.strip())
    law, number, seed = match.groups() if match else ("", "0", None)
    if law not in _LEAST or (law == _SKEW and seed):
        laws = ", ".join(f"{each}:NUMBER" for each in _LEAST)
        raise PlanError(f"expert_load is {text!r}: expected {BALANCED}, {laws}, or a file")
    try:
        amount = float(number)
    except ValueError:
        amount = -1.0
    if not (least := _LEAST[law]) <= amount <= _MOST:
        raise PlanError(f"expert_load is {text!r}: expected a number from {least:g} to {_MOST:g}")
    if law == _SKEW:
        return ExpertSkew(amount)
    return ExpertLaw(law=LoadLaw(law), amount=amount, seed=int(seed or 0))


def is_expert_law(text: str) -> bool:
    """Whether a text is a law, or `balanced`, rather than the name of a file."""
    match = _FORM.fullmatch(text.strip())
    return text.strip() == BALANCED or (match is not None and match.group(1) in _LEAST)


def make_counts(source: str, rows: Mapping[tuple[int, int], Mapping[int, float]]) -> ExpertCounts:
    """Counts of (layer, microbatch) and expert; experts that are not there have no tokens.

    Raises PlanError where nothing is counted.
    """
    counted = {key: tokens for key, tokens in rows.items() if any(tokens.values())}
    if not counted:
        raise PlanError(f"{source}: no tokens are counted")
    experts = 1 + max(expert for tokens in rows.values() for expert in tokens)
    tokens = {
        key: tuple(found.get(expert, 0.0) for expert in range(experts))
        for key, found in sorted(counted.items())
    }
    microbatches = 1 + max(microbatch for _, microbatch in rows)
    return ExpertCounts(source=source, microbatches=microbatches, tokens=tokens)


def _limited(shares: Floats, most: float) -> Floats:
    """Shares of which none is above `most`: the others have the rest in proportion."""
    for _ in range(len(shares)):
        above = shares > most * (1 + 1e-12)
        if not above.any():
            break
        held = shares >= most * (1 - 1e-12)
        rest = 1 - most * held.sum()
        below = shares[~held].sum()
        shares = np.where(held, most, shares * (rest / below if below else 0.0))
    return shares
