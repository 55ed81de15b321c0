"""Recipes of other programs: the model that they name, and what their keys ask of a step.

The forms and their keys are data, in `recipes.toml`. A recipe is a file, YAML or JSON, or the
arguments of a command. What a key says that nobody here knows stays open, and is asked for where a
step needs it.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import Any

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Names, Noun, replace, shipped
from stepsim.files.models.fields import Keys
from stepsim.files.reading import read_text, whole_number
from stepsim.files.shell.words import Environment, Unknown, marked_word
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.model import AskedOptions, Unread

_NOTHING = ("", "null", "none", "~")
# Values of keys that are no arguments of Megatron-LM, where all others are those of their name.
_OFF = ("false", "null", "none", "~")
_HOLE = re.compile(r"\$\{(?:oc\.env:|env:)?([\w.]+)(?:(?::?-|,)\s*([^{}]*))?\}")
_PRODUCT = re.compile(r"\$\{multiply:\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\}")
_WORD = re.compile(r"(\w+)(\*?=)(.*)", re.DOTALL)
_AUTO = "auto"
_DEGREES = ("tp", "cp", "pp", "ep")
# Options that stay open where a file leaves them to whoever runs it.
_OPEN = ("npus", "shard_ranks")
_MOST_KEYS, _LARGEST = 10_000, 10**9
# The value of a key that holds other keys.
_SECTION = "{}"
RECIPES = (".yaml", ".yml", ".json")
"""Suffixes of files that may be recipes."""


class RecipeForm(Noun, forbid_unknown_fields=True):
    """A form of recipes, as `recipes.toml` says it."""

    name: str
    source: str
    marks: Names
    like: str = ""
    model: Names = ()
    framework: str = ""
    megatron: bool = False
    names: dict[str, str] = {}
    usual: dict[str, str] = {}
    keys: dict[str, str | dict[str, str]] = {}
    refused: dict[str, str] = {}
    noted: dict[str, dict[str, str]] = {}
    assumed: dict[str, str] = {}


class ForeignRecipe:
    """What a recipe says: the `model` that it names, options as people type them, what to say.

    Of a model that it describes itself in Megatron-LM's words it has the `arguments`, in which what
    nobody knows stands as a mark. It is read as it is made, key by key: raises WorkloadError for
    what is not modelled.
    """

    def __init__(
        self, path: Path, form: RecipeForm, values: Mapping[str, str], known: Environment
    ) -> None:
        self.path, self.form, self.known = path, form, known
        usual = {key: value for key, value in form.usual.items() if not _has(values, key)}
        self.values = {**usual, **values}
        self.asked: AskedOptions = {"framework": form.framework} if form.framework else {}
        self.arguments: dict[str, str] = {}
        self.notes: list[str] = []
        for place, value in self.values.items():
            self._read(place, self._filled(value, 8))
        self.notes += [
            f"{path}: {note}" for option, note in form.assumed.items() if option not in self.asked
        ]
        self.model = self._model()
        self.asked = self._with_size()

    def asked_of(self, architecture: Architecture) -> AskedOptions:
        """The options of a step of a model, some of which its sizes decide.

        A loss that is fused with the last product (Liger's) makes as many parts of the logits as
        the vocabulary is wider than the model.
        """
        asked = dict(self.asked)
        layers, fused = asked.pop("stage_layers", None), asked.pop("fused_loss", None)
        pp, looped = asked.get("pp", 1), asked.get("schedule") == "interleaved"
        if looped and isinstance(layers, int) and isinstance(pp, int):
            asked["chunks"] = max(-(-architecture.depth // layers) // pp, 1)
        if fused:
            asked["loss_chunks"] = max(architecture.vocabulary // architecture.hidden, 1)
        return asked

    def _filled(self, value: str, depth: int) -> str:
        """A value with what others and the environment say in place of `${name}`."""

        def found(hole: re.Match[str]) -> str:
            name = hole[1].lstrip(".")  # of a section, as a key of the file is named anyway
            beside = (v for place, v in self.values.items() if hole[1] != name and _is(place, name))
            default = next(beside, hole[2] or hole[0])
            said = self.known.get(name, self.values.get(name, default))
            return said if said == hole[0] or not depth else self._filled(said, depth - 1)

        return _PRODUCT.sub(lambda two: str(int(two[1]) * int(two[2])), _HOLE.sub(found, value))

    def _read(self, place: str, value: str) -> None:
        word = value.lower()
        for key, pattern in self.form.refused.items():
            if _is(place, key) and word not in _NOTHING and _fits(pattern, value):
                said = place if value == _SECTION else f"{place} is {value}"
                raise WorkloadError(
                    f"{self.path}: {said}: only a full training by next tokens is "
                    "modelled: no adapters, frozen or quantized weights, rewards, other optimizers"
                )
        for key, notes in self.form.noted.items():
            if _is(place, key) and word not in (*_NOTHING, "false"):
                fits = (note for pattern, note in notes.items() if _fits(pattern, value))
                self.notes += [f"{place} is {value}: {note}" for note in islice(fits, 1)]
        if value == _SECTION:
            return
        found = [words for key, words in self.form.keys.items() if _is(place, key)]
        if found and word not in _NOTHING:
            self._say(place, value, found[-1])
        elif self.form.megatron and not found and word not in _OFF:
            name = place.rpartition(".")[2].replace("_", "-")
            self._argue(name, "" if word == "true" else value)

    def _argue(self, name: str, value: str) -> None:
        self.arguments[name] = _HOLE.sub(
            lambda hole: marked_word(Unknown(hole[1], 0, unset=True)), value
        )

    def _say(self, place: str, value: str, words: str | Mapping[str, str]) -> None:
        """Take what the words of a key make of its value."""
        if isinstance(words, Mapping):
            fits = (said for pattern, said in words.items() if _fits(pattern, value))
            said = next(fits, None)
            if said is None and value != _AUTO:
                self._leave_open(place, value, words)
        else:
            said = None if value == _AUTO else words
        for part, after in pairwise([*shlex.split(said or ""), "--"]):
            found = _WORD.fullmatch(part)
            if part.startswith("--"):
                self._argue(part[2:], "" if after.startswith("--") else after.replace("{}", value))
            elif found:
                self._set(place, found[1], found[2], found[3].replace("{}", value))

    def _leave_open(self, place: str, value: str, words: Mapping[str, str]) -> None:
        """Leave options open that a value would say if anybody knew it."""
        said = map(_WORD.fullmatch, " ".join(words.values()).split())
        for name in (each[1] for each in said if each):
            why = f"{self.path}: {place} is {value}: expected one of {', '.join(words)}"
            option = name.replace("_", "-")
            self.asked.setdefault(name, Unread(f"{why}, or --{option}"))

    def _set(self, place: str, name: str, sign: str, value: str) -> None:
        if _HOLE.search(value):
            self.asked[name] = Unread(f"{self.path}: {place} is {value}: give --env or --{name}")
        elif name == "file":
            self._beside(place, value)
        elif sign == "=":
            self.asked[name] = value
        else:
            before = self.asked.get(name, 1)
            factor = whole_number(str(self.path), place, value, WorkloadError, -_LARGEST, _LARGEST)
            if not isinstance(before, Unread):
                product = factor * int(before)
                self.asked[name] = product if factor > 0 else Unread(f"{self.path}: give --{name}")

    def _beside(self, place: str, value: str) -> None:
        """Take what a file says that the recipe names, or its name where there is none."""
        folders = [self.path.parent, *self.path.absolute().parents]
        here = [folder / name for folder in folders for name in (value, Path(value).name)]
        found = next((each for each in here if each.is_file()), None)
        name = Path(value).name.lower()
        stage = re.search(r"z(?:ero)?[-_]?([0-3])", name)
        if found is not None and (other := recipe_of_file(found, self.known)):
            said = {name: v for name, v in other.asked.items() if name not in ("npus", "framework")}
            self.asked = {**said, **self.asked}
            self.notes += other.notes
        elif stage:
            self.asked["zero"] = stage[1]
            offload = ", whose offload is not modelled" if "offload" in name else ""
            self.notes.append(
                f"{place} is {value}: no such file here: ZeRO stage {stage[1]} by its name{offload}"
            )
        else:
            self.asked["zero"] = Unread(
                f"{self.path}: {place} is {value}: no such file: give --zero"
            )

    def _with_size(self) -> AskedOptions:
        """What is asked, with the GPUs of all nodes, and one way to say the batch."""
        asked = dict(self.asked)
        nodes, each = asked.pop("nodes", 1), asked.pop("node_gpus", None)
        of_stage = asked.pop("stage_batch", None)
        if of_stage and str(asked.get("pp", 1)) != "1":
            asked["microbatch_size"] = of_stage
        sizes = [asked.pop("replicas", None), *(asked.get(name, 1) for name in _DEGREES)]
        if all(isinstance(size, int) for size in sizes):
            asked["npus"] = prod(sizes)
        if each is not None:
            asked["npus"] = int(each) * int(nodes)
        asked = {n: v for n, v in asked.items() if n not in _OPEN or not isinstance(v, Unread)}
        if asked.get("zero", 0) == 0:
            asked.pop("shard_ranks", None)
        if "global_batch" in asked:
            asked.pop("microbatches", None)
        if self.form.framework:
            asked = {"zero": 0, "tp": 1, "cp": 1, "pp": 1, "ep": 1, **asked}
        return asked

    def _model(self) -> str:
        """The model that it names, as others call it."""
        for key in self.form.model:
            for place, value in self.values.items():
                name = self._filled(value, 8) if _is(place, key) else ""
                if hole := _HOLE.search(name):
                    raise WorkloadError(
                        f"{self.path}: {place} is {name}: give --env {hole[1]}=NAME"
                    )
                if name in (*_NOTHING, "true"):
                    continue
                if name.lower() in self.form.names:
                    return self.form.names[name.lower()]
                for pattern, words in self.form.names.items():
                    name = re.sub(f"^{pattern}$", words, name)
                return name
        return ""


def recipe_forms() -> dict[str, RecipeForm]:
    """All forms by name, each with the keys of the one that it is like."""
    file = shipped(__file__, "recipes.toml", dict[str, tuple[RecipeForm, ...]])
    forms = {each.name: each for each in file["form"]}
    tables = ("usual", "keys", "refused", "noted", "assumed")
    for each in list(forms.values()):
        other = forms.get(each.like, each)
        forms[each.name] = replace(
            each,
            model=each.model or other.model,
            framework=each.framework or other.framework,
            **{name: {**getattr(other, name), **getattr(each, name)} for name in tables},
        )
    return forms


def is_recipe(path: Path) -> bool:
    """Whether a file is a recipe; one that cannot be read as YAML or JSON may be one."""
    try:
        return recipe_of_file(path, {}) is not None
    except WorkloadError:
        return True


def recipe_of_file(path: Path, environment: Environment) -> ForeignRecipe | None:
    """The recipe in a file; None for a file of another kind.

    Raises WorkloadError, for what is no YAML or JSON too.
    """
    text = read_text(path, WorkloadError, "recipe", "a recipe")
    import yaml

    try:
        plain = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        values = dict(islice(_flat("", plain), _MOST_KEYS + 1))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        what = "JSON" if path.suffix == ".json" else "YAML"
        raise WorkloadError(f"{path}: not valid {what}: {' '.join(str(error).split())}") from None
    if len(values) > _MOST_KEYS:
        raise WorkloadError(f"{path}: more than {_MOST_KEYS:,} keys: expected a recipe")
    return recipe_of(path, values, environment)


def _flat(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        yield place, _SECTION
        for key, inner in value.items():
            name = str(key).removeprefix("--").replace("-", "_")
            yield from _flat(f"{place}.{name}" if place else name, inner)
    elif isinstance(value, list):
        yield place, " ".join(map(_text, value))
    else:
        yield place, _text(value)


def _text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def recipe_of(
    path: Path, values: Mapping[str, str], environment: Environment
) -> ForeignRecipe | None:
    """The recipe that keys make, by their paths; None where they are of no form.

    `path` is the file that errors name, and that other files lie beside. Raises WorkloadError.
    """
    marked = (
        form
        for form in recipe_forms().values()
        if any(all(_has(values, key) for key in mark.split()) for mark in form.marks)
    )
    form = next(marked, None)
    return ForeignRecipe(path, form, values, environment) if form else None


def job_notes(path: Path, job: Keys) -> Names:
    """What to say of the keys of a job of torchtitan; raises WorkloadError for other trainings."""
    recipe = recipe_of(path, dict(_flat("", job)), {})
    return tuple(recipe.notes) if recipe else ()


def _has(values: Mapping[str, str], key: str) -> bool:
    return any(_is(place, key) for place in values)


def _is(place: str, key: str) -> bool:
    return place == key or place.endswith(f".{key}")


def _fits(pattern: str, value: str) -> bool:
    return re.fullmatch(pattern, value, re.IGNORECASE) is not None
