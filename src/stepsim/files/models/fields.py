"""Keys of a configuration: each is read once, checked, and what nobody read is looked at last."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import shipped

_LARGEST = 1 << 40
MOST_LAYERS = 100_000
_SUSPECT = (
    "layer|expert|moe|head|dim|hidden|intermediate|window|mamba|ssm|conv|linear|sparse|index|lora|"
    "rank|chunk|hybrid|compress|adapter|mlp|attn|attention|cross|encoder|decoder|size|norm|bias|"
    "ffn|mult|parallel|state|block|mtp|predict"
)
_STRUCTURAL = (
    r"mamba_[dn]|ssm_state|linear_(num|key|value)|index_(topk|n_heads)|_rank$|hybrid|compress_ratio|"
    r"adapter|cross_|experts|moe_(layer|intermediate)|kv_shared|per_layer|hc_mult|^vocab|ngram"
)
_SHAPING = "bidirectional|altup|laurel"
"""Of these, keys that change what a layer is: a size that nobody reads is refused."""


def keys() -> Mapping[str, Sequence[str]]:
    """Keys of configurations by what they say."""
    return shipped(__file__, "keys.toml", dict[str, list[str]])


class Fields(Struct, kw_only=True):
    """The keys of a configuration; `place` names it in errors, `read` are the keys asked for.

    Keys that it leaves out have the value that `defaults` say, which are noted in `assumed`.
    """

    place: str
    values: Mapping[str, Any]
    read: set[str] = set()
    defaults: Mapping[str, Any] = {}
    assumed: dict[str, Any] = {}

    def has(self, *names: str) -> bool:
        """Whether one of these keys says something."""
        return self.raw(*names) is not None

    def raw(self, *names: str) -> Any:
        """The value of the first of these keys that has one, None if none has."""
        self.read.update(names)
        said = next((self.values[n] for n in names if self.values.get(n) is not None), None)
        silent = said is None and not any(n in self.values for n in names)
        left = next((n for n in names if n in self.defaults), None) if silent else None
        if left is not None:
            said = self.assumed[left] = self.defaults[left]
        return said

    def wrong(self, name: str, value: object, expected: str) -> WorkloadError:
        """The error of a key with a wrong value."""
        return WorkloadError(bad_value(self.place, name, value, expected))

    def name_of(self, *names: str) -> str:
        """The key that says it, as errors call it."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def count(
        self, *names: str, default: int | None = None, least: int = 1, most: int = _LARGEST
    ) -> int:
        """A whole number; raises WorkloadError where it is missing without a default, or wrong.

        It may be 0 where that is the default.
        """
        value = self.raw(*names)
        least = 0 if default == 0 else least
        expected = f"a whole number of at least {least}"
        if most < _LARGEST:
            expected = f"a whole number from {least} to {most}"
        if value is None:
            if default is not None:
                return default
            raise WorkloadError(f"{self.place}: {names[0]} is missing: expected {expected}")
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(self.name_of(*names), value, expected)
        return value

    def some(self, *names: str, least: int = 1) -> int | None:
        """A whole number, None where nothing is said."""
        return self.count(*names, least=least) if self.has(*names) else None

    def number(self, name: str, default: float) -> float:
        """A number above 0; raises WorkloadError for anything else."""
        value = self.raw(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not value > 0:
            raise self.wrong(name, value, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; raises WorkloadError for anything else."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, *names: str, default: str) -> str:
        """A text; raises WorkloadError for anything else."""
        value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(self.name_of(*names), value, "a text")
        return value

    def items(self, name: str) -> Sequence[Any] | None:
        """A list, None where there is none; raises WorkloadError for anything else."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def inside(self, name: str) -> "Fields":
        """The keys of a table, none where there is no such table; raises WorkloadError."""
        value = self.raw(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, value, "a table of keys")
        return Fields(place=f"{self.place}: {name}", values=value or {})

    def refuse_rest(self, *, every: bool = False) -> dict[str, Any]:
        """Keys that nobody read and that may change the work of a step a little, or `every` one.

        Raises WorkloadError for one that surely does.
        """
        passed = {}
        harmless = re.compile("|".join(keys()["harmless"]))
        for name, value in self.values.items():
            if name in self.read or not value or harmless.fullmatch(name):
                continue
            if every or isinstance(value, dict) or re.search(f"{_SUSPECT}|{_SHAPING}", name):
                passed[name] = value
                if _is_size(name, value):
                    expected = "it absent: what it changes is not modelled"
                    raise self.wrong(name, value, expected)
        return passed


def _is_size(name: str, value: Any) -> bool:
    """Whether a key says how large or how many: a switch, a share or a word does not."""
    if re.search(_SHAPING, name) or (isinstance(value, dict) and re.search(_SUSPECT, name)):
        return True
    counts = type(value) is int and value > 1
    return bool((counts or isinstance(value, list)) and re.search(_STRUCTURAL, name))
