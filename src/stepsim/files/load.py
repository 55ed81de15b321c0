"""Workloads, models, topologies and measured collectives by file or by name.

Here is said how a model or a topology is recognised, and which module reads it; what is neither,
nor a file of another program, is a workload in SimAI's text, which has no mark. Modules that read
forms are imported when there is a file of the form. The numbers of a topology are typed as
`fabric.bandwidth=400 Gbps`.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from os.path import exists, isdir, isfile
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

import msgspec

from stepsim.base.errors import (
    TopologyError,
    WorkloadError,
    bad_value,
    errors_at,
    one_line,
    within,
)
from stepsim.base.structs import File, Values, replace
from stepsim.files.foreign import refuse_foreign
from stepsim.files.reading import (
    first_bytes,
    named_file,
    names_of_files,
    read_document,
    read_text,
    shipped_folder,
    shipped_once,
    toml_values,
    topology_names,
)
from stepsim.files.simai.text import read_simai_text
from stepsim.network.topology import NestedTopology, Topology
from stepsim.network.topology.dimension import (
    LAUNCH_LATENCY,
    LINK_FIELDS,
    OVERSUBSCRIPTION,
    split_link,
)
from stepsim.network.topology.nested import (
    changeable_link,
    with_leaves,
    with_node_size,
    with_values,
)
from stepsim.network.topology.network import MAX_NPUS
from stepsim.workload.model.model import Model, Unread
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.explain.report import ResultDocument
    from stepsim.files.models.recipes import ForeignRecipe
    from stepsim.files.shell.words import Environment
    from stepsim.network.topology.network import TopologyLike


def workload_of(path: File, *, strict: bool = False) -> Workload:
    """The workload in a file; raises WorkloadError, with `strict` for doubts about the file too."""
    if Path(path).suffix == ".toml" and Path(path).exists():
        raise WorkloadError(f"{path}: TOML is no workload: a topology is given by --topology (-t)")
    refuse_foreign(Path(path))
    return read_simai_text(Path(path), strict=strict)


def load_work(
    path: File, *, strict: bool = False, environment: Mapping[str, str] = {}
) -> Workload | Model:
    """A model by name or file, else a workload file; raises WorkloadError.

    A launch script has the variables of the `environment`.
    """
    if is_model(path):
        return read_model(path, environment)
    return workload_of(path, strict=strict)


def topology_of(
    topology: "TopologyLike",
    npus: int | None = None,
    *,
    numbers: Mapping[str, object] | None = None,
) -> Topology:
    """A topology as `stepsim.load_topology` takes it; raises TopologyError, and PlanError."""
    within("npus", npus, 1, MAX_NPUS)
    found: object = topology
    if isinstance(found, File):
        found = read_topology(named_file("topology", found, TopologyError))
    elif not isinstance(found, NestedTopology):
        from stepsim.files.topology.graph import topology_of_graph
        from stepsim.network.topology.listed import ListedTopology

        found = found if isinstance(found, ListedTopology) else topology_of_graph(found)
    found = with_numbers(found, numbers) if numbers else found
    return found if npus is None else found.fit(npus)


def load_result(path: File) -> "ResultDocument":
    """The result in a JSON file.

    Raises StepsimError naming the file, the place in it, the value and what is allowed.
    """
    from stepsim.explain.report import ResultDocument

    kinds = {"schema_version": ResultDocument}
    return read_document(Path(path), kinds, "a result of 'stepsim simulate --json'")


_BEGINNING_OF_MODELS = 1 << 16
_CONFIG = "config.json"
_BASE = "based_on"


# What a job of torchtitan has.
_IS_JOB = r"(?m)^\s*flavor\s*="
# What files that say their model have, by their suffix; scripts have any.
_SAYS_MODEL = {
    ".json": re.compile(rb'(?s)"architectures"|"model_type".*"hidden|"hidden.*"model_type"'),
    ".toml": re.compile(rf"{_IS_JOB}|architectures|{_BASE}".encode()),
    ".py": re.compile(rb"model_registry\("),
    "": re.compile(
        rb"(--num[-_]layers|--hidden[-_]size|--model[-_]name[-_]or[-_]path|\bmodel\.num_layers=|\A\s*--)"
    ),
}
_OF_MODELS = {"num-layers", "hidden-size", "hybrid-layer-pattern", "hybrid-override-pattern"}
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")


def is_model(path: File) -> bool:
    """Whether this is a model: a public one's name, or a file or folder that describes one.

    A public name is that model, whatever lies in the working folder; `./NAME` is the file. Names of
    repositories on huggingface.co count where there is no such folder.
    """
    name, path = str(path), Path(path)
    if is_model_at_sight(name):
        return True
    if not exists(path):
        return _is_bare(name) or _is_hub_id(name)
    if isdir(path):
        return False
    if path.suffix in _SCRIPTS:
        return True
    if path.suffix in (".yaml", ".yml"):
        from stepsim.files.models.recipes import is_recipe

        return is_recipe(path)
    says = _SAYS_MODEL.get(path.suffix, _SAYS_MODEL[""])
    found = says.search(first_bytes(path, _BEGINNING_OF_MODELS))
    return found is not None or path.name.endswith(_CONFIG)


def is_model_at_sight(path: File) -> bool:
    """Whether this is a model whatever it holds: a public name, or a folder with a config.json."""
    return is_public(str(path)) or exists(Path(path) / _CONFIG)


def _is_bare(name: str) -> bool:
    """Whether a text that is no file looks like a name, not like a file that is missing."""
    return Path(name).name == name and not Path(name).suffix[1:].isalpha()


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_HUB_MARKS = re.compile(r"-(hf|base|instruct|chat|it|pt|v0\.\d|bf16|fp8|nvfp4|\d{4}|\d+k)$")


def _is_hub_id(name: str) -> bool:
    """Whether a text that is no file looks like `owner/repository`, not like a missing file."""
    missing = exists(Path(name).parent) or Path(name).suffix[1:].isalpha()
    return _HUB_ID.fullmatch(name) is not None and not missing


def _of_hub(name: str) -> str:
    """What the public model of a repository on huggingface.co would be called.

    Words that say how weights were trained further or are stored change no shape: `-Instruct`,
    `-hf`.
    """
    model = name.split("/")[1].lower()
    while not is_public(model) and (shorter := _HUB_MARKS.sub("", model)) != model:
        model = shorter
    vendor, _, rest = model.partition("-")
    return rest if not is_public(model) and vendor in ("meta", "nvidia") else model


def read_model(path: File, environment: Mapping[str, str] = {}) -> Model:
    """A model by name or file: `config.json`, a TOML of the same keys, Megatron-LM's arguments.

    A launch script has the variables of the `environment`.

    A name may be that of a repository on huggingface.co whose configuration is shipped. A TOML file
    may say `based_on` a public model and change some keys. Raises WorkloadError naming the file,
    the key and what is allowed.
    """
    name, path = str(path), Path(path)
    known = is_public(name)
    if known or not exists(path):
        model = name if known or not _is_hub_id(name) else _of_hub(name)
        return _described(public_model(model, name), model.lower(), model.lower())
    path = path / _CONFIG if isdir(path) else path
    text = read_text(path, WorkloadError, "model", "a model's configuration")
    if path.suffix == ".json":
        return _described(_json(path, text), str(path), _name_of(path))
    if path.suffix == ".toml" and not re.search(_IS_JOB, text):
        return _described(_toml(path, text), str(path), _name_of(path))
    if path.suffix in (".toml", ".py"):
        return _of_job(path, text, environment)
    return _of_arguments(path, text, environment)


def _of_job(path: Path, text: str, environment: "Environment") -> Model:
    """The model and the plan of a job of torchtitan, in TOML or a registry of jobs in Python."""
    from stepsim.files.models.fields import Fields
    from stepsim.files.models.recipes import job_notes
    from stepsim.files.models.torchtitan import torchtitan_asked, torchtitan_job, torchtitan_model

    job = _toml(path, text) if path.suffix == ".toml" else torchtitan_job(path, text, environment)
    said = Fields(place=str(path), values=job).inside("model").values
    name = torchtitan_model(str(said.get("name")), str(said.get("flavor")))
    if not name:
        called = f"{said.get('name')} {said.get('flavor')}"
        raise WorkloadError(bad_value(str(path), "model", called, "a name and flavor that ships"))
    model = read_model(name)
    asked = torchtitan_asked(str(path), job, model.architecture.depth)
    return _asking(path, model, asked, job_notes(path, job))


def _asking(path: Path, model: Model, asked: Mapping[str, object], notes: Sequence[str]) -> Model:
    """The model with what a recipe asks and says; its size stays open where nothing says it."""
    unsized = Unread(f"{path}: nothing says on how many GPUs it runs: give --gpus")
    return replace(
        model,
        source=path.name,
        asked={"npus": unsized, **model.asked, **asked},
        warnings=(*model.warnings, *notes),
    )


def _of_arguments(path: Path, text: str, environment: "Environment") -> Model:
    """The model and the plan of a recipe, or of what a launch script starts."""
    from stepsim.files.models.megatron import model_of_arguments
    from stepsim.files.models.recipes import RECIPES, recipe_of, recipe_of_file
    from stepsim.files.models.scripts import script_arguments
    from stepsim.files.shell.words import shown_word

    if path.suffix in RECIPES:
        recipe = recipe_of_file(path, environment)
        if recipe is None:
            raise WorkloadError(f"{path}: no recipe that stepsim reads: expected a model's keys")
        return _of_recipe(path, recipe)
    script = script_arguments(path, text, environment)
    keys = {name.replace("-", "_"): shown_word(v) or "true" for name, v in script.values.items()}
    recipe = recipe_of(path, keys, environment)
    if recipe is None and not script.values.keys() & _OF_MODELS:
        beside = path.parent / script.recipe
        if not isfile(beside):
            named = f"{script.recipe} or " if script.recipe else ""
            raise WorkloadError(
                f"{path}: no command that trains a model is known in it: give {named}the script "
                "that it calls, or a model and this as its plan (--plan-file)"
            )
        return _on(read_model(beside, environment), script.npus)
    if recipe is None or (recipe.form.megatron and "num-layers" in script.values):
        model = model_of_arguments(path, script.values)
        if script.launches:
            model = _asking(path, model, {}, ())
    else:
        model = _of_recipe(path, recipe)
    return _on(model, script.npus)


def _on(model: Model, npus: object) -> Model:
    """The model on so many GPUs, where something says that."""
    return replace(model, asked={**model.asked, "npus": npus}) if npus else model


def _of_recipe(path: Path, recipe: "ForeignRecipe") -> Model:
    """The model that a recipe names or describes, with its plan."""
    from stepsim.files.models.megatron import model_of_arguments

    if recipe.form.megatron:
        model = model_of_arguments(path, recipe.arguments)
    elif recipe.model:
        parts = Path(recipe.model).parts[-2:]
        lies_here = exists(Path(recipe.model) / _CONFIG) or len(parts) < 2
        model = read_model(recipe.model if lies_here else "/".join(parts))
    else:
        raise WorkloadError(
            f"{path}: {recipe.form.name} names no model: give it one, e.g. "
            f"stepsim simulate {EXAMPLE} --gpus 8 --plan-file {path}"
        )
    return _asking(path, model, recipe.asked_of(model.architecture), recipe.notes)


def _described(values: Any, place: str, name: str) -> Model:
    from stepsim.files.models.huggingface import architecture_of

    said = values.get("name", name)
    if not isinstance(said, str) or not said:
        raise WorkloadError(bad_value(place, "name", said, "a text"))
    architecture, notes = architecture_of(values, place=place, name=one_line(said))
    return Model(source=architecture.name, architecture=architecture, warnings=tuple(notes))


def _name_of(path: Path) -> str:
    """The model's name: of the file, or of its folder where the file is called config.json."""
    stem = path.name.removesuffix(path.suffix).removesuffix(".config")
    return path.absolute().parent.name if path.name == _CONFIG else stem


def _json(path: Path, text: str) -> Values:
    """Plain data; `Infinity` counts, which configurations have and JSON has not."""
    import json

    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise WorkloadError(f"{path}: not valid JSON: {reason}") from None
    if not isinstance(values, dict):
        raise WorkloadError(f"{path}: not a model's config.json: expected an object of keys")
    return values


def _toml(path: Path, text: str) -> Values:
    values = toml_values(path, text, WorkloadError)
    base = values.pop(_BASE, None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise WorkloadError(bad_value(str(path), _BASE, base, "the name of a public model"))
    return {"name": _name_of(path), **public_model(base), **values}


EXAMPLE = "llama-3.1-8b"
"""A public model, where one has to be named."""


def _public() -> Mapping[str, Mapping[str, Any]]:
    """Configurations of public models by their names: facts alone, in Hugging Face's words.

    Each is the config.json that its vendor publishes, where `source` names no other.
    """
    path = shipped_folder("models") / "public.json"
    text = read_text(path, WorkloadError, "public models", "JSON")
    return dict(msgspec.json.decode(text))


def public_names() -> list[str]:
    """Names of the public models."""
    return sorted(_public())


def is_public(name: str) -> bool:
    """Whether a public model has this name, in any case."""
    return _is_bare(name) and name.lower() in _public()


def beside(path: Path, name: str) -> Path:
    """What a file calls a workload: a public model's name, else a file beside it."""
    return Path(name) if is_public(name) else typed_path(os.path.join(path.parent, name))


def typed_path(text: str) -> Path:
    """The path that was typed; `./llama-3-8b` stays a file, where a `Path` drops the `./`."""
    path = Path(text)
    return path.absolute() if os.sep in text and is_public(str(path)) else path


def shipped_kinds(name: str) -> list[str]:
    """What ships under a name: model, topology, device or framework; empty for other texts."""
    if not _is_bare(name):
        return []
    kinds = ("topology", "device", "framework")
    known = [kind for kind in kinds if name.lower() in names_of_files(kind)]
    return ["model", *known] if is_public(name) else known


def shadowed(kind: str, name: object) -> list[str]:
    """What to say of a shipped name that a file in the working folder has too: which was taken.

    `kind` is one of `shipped_kinds`. Nothing is said of what is no such name.
    """
    if not isinstance(name, File):
        return []
    text = str(name)
    if not exists(text) or kind not in shipped_kinds(text):
        return []
    return [f"{text}: the shipped {kind} is taken; .{os.sep}{text} is the file of this name"]


def public_model(name: str, typed: str = "") -> Mapping[str, Any]:
    """The configuration of a public model; raises WorkloadError for a name that none has.

    The error has the name as it was `typed`.
    """
    found = _public().get(name.lower())
    if found is not None:
        return found
    close = get_close_matches(name.lower(), _public(), n=4)
    meant = f"did you mean {', '.join(close)}? " if close else ""
    raise WorkloadError(
        f"no model named {typed or name!r}: {meant}expected a workload file, a model's config.json "
        f"(with a recipe that names it as --plan-file), or a public model, e.g. {EXAMPLE}"
    )


def with_numbers(topology: Topology, numbers: Mapping[str, object]) -> Topology:
    """The topology with other numbers, as people type them: `{"fabric.bandwidth": "400 Gbps"}`.

    `node_size` is how many NPUs share a node. Raises TopologyError naming the number, or the links
    it would belong to.
    """
    values: dict[str, float] = {}
    for name, value in numbers.items():
        link, field = split_link(name)
        if name == "node_size":
            topology = with_node_size(topology, value)
            continue
        if link and name == f"{link}.{OVERSUBSCRIPTION.name}":
            topology, field = with_leaves(topology, link), OVERSUBSCRIPTION
        elif field:
            changeable_link(topology, link)
        elif name == LAUNCH_LATENCY.name:
            field = LAUNCH_LATENCY
        else:
            fields = ", ".join(f"LINKS.{e.name}" for e in (*LINK_FIELDS, OVERSUBSCRIPTION))
            raise TopologyError(
                f"{name!r} is no number of a topology: expected {fields} or {LAUNCH_LATENCY.name}"
            )
        with errors_at(name, TopologyError):
            values[name] = cast(float, field.quantity.read(value))
    return with_values(topology, values)


def infinite(names: Iterable[str]) -> list[str]:
    """What to say of bandwidths that were asked to be infinite, by their names."""
    return [f"{name} is infinite: what crosses these links takes its latency" for name in names]


def read_numbers(texts: Iterable[str]) -> dict[str, str]:
    """Names and values of texts `NAME=VALUE`; raises TopologyError for any other text."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name.strip() in found:
            why = "given twice" if equals else "no number of a network"
            raise TopologyError(f"{text!r} is {why}: expected NAME=VALUE, once per name")
        found[name.strip()] = value.strip()
    return found


_TOML = "stepsim.files.topology.toml:read_topology_toml"
_ASTRA_SIM = "stepsim.files.topology.astra_network:read_astra_network"
# What reads the files of topologies, by their suffix.
_TOPOLOGIES = {".toml": _TOML, ".yml": _ASTRA_SIM, ".yaml": _ASTRA_SIM}
_SIMAI = "stepsim.files.topology.simai_topology:read_simai_topology"
# SimAI's first line: five numbers and a word. Its files have any other suffix.
_SIMAI_BEGINS = re.compile(rb"\s*(\d+\s+){5}\S+\s*(\n|$)")
_BEGINNING_OF_TOPOLOGIES = 200


@shipped_once
def read_topology(path: Path) -> Topology:
    """Topology in a file of any form; raises TopologyError naming file and entry.

    What is of no other form is read as TOML.
    """
    found: Topology = resolve_name(_topology_reader(path) or _TOML)(path)
    return found


def is_topology(name_or_path: str) -> bool:
    """Whether this is a shipped topology's name, or a file of a topology's form."""
    return name_or_path in topology_names() or _topology_reader(Path(name_or_path)) is not None


def _topology_reader(path: Path) -> str | None:
    if path.suffix in _TOPOLOGIES:
        return _TOPOLOGIES[path.suffix]
    start = first_bytes(path, _BEGINNING_OF_TOPOLOGIES)
    return _SIMAI if _SIMAI_BEGINS.match(start) else None
