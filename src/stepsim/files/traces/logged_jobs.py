"""What a training log says of its job: model, plan, GPUs, as its framework prints them at start.

Sources of the forms: `_print_args` of megatron/training/arguments.py, a line of dots between each
argument and its value; the configuration as YAML that Megatron-Bridge prints; torchtitan's lines of
`ParallelDims.build_mesh`, of its trainer ("Trainer is initialized with"), of `apply_ac` and
`apply_fsdp` and of its memory monitor ("CUDA capacity"), and its configuration as JSON
(`--job.print_config`); the representation of `Config` that nanotron logs. Whatever a log does not
say is left open. Dense and mixture models of Megatron are read by the reader of its arguments.
"""

import json
import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepsim.base.errors import TraceError, WorkloadError
from stepsim.base.structs import Names, Noun, Values, replace, shipped
from stepsim.files.load import read_model
from stepsim.files.models.huggingface import architecture_of
from stepsim.files.models.megatron import model_of_arguments
from stepsim.files.models.recipes import recipe_of
from stepsim.files.models.torchtitan import sharding, torchtitan_model, torchtitan_parts
from stepsim.files.reading import names_of_files, read_text
from stepsim.files.traces.step_lines import plain_lines
from stepsim.workload.model.model import AskedOptions, Model

_ARGUMENT = re.compile(r"(?:^|\s)([a-z]\w*) \.{2,} (.*)$")
# A line of YAML: a section, a key in it or an item of its list; srun puts the rank before it.
_YAML_LINE = re.compile(r"(?:\d+: )?(  )?(?:([a-z]\w*):|- )\s*(.*)")
_NOTHING = ("None", "null", "[]", "")


def _words(table: str) -> Any:
    """What logs say of jobs, as `logged_jobs.toml` has it."""
    return shipped(__file__, "logged_jobs.toml", Values)[table]


def _said(framework: str, lines: list[str]) -> AskedOptions:
    """Options that lines of a framework say; of several the last one counts."""
    found: AskedOptions = {}
    for pattern, options in _words("lines")[framework].items():
        for told in filter(None, map(re.compile(pattern).search, lines)):
            found |= options
            found |= {name: int(value) for name, value in told.groupdict().items()}
    return found


class LoggedJob(Noun):
    """What a log says: the `model` with its plan, None where it says none, and further `options`.

    Options are those of a step, by name as people type them.
    """

    model: Model | None = None
    options: Mapping[str, object] = {}


def read_logged_job(path: Path, form: str) -> LoggedJob:
    """What the log of a framework, by the name of its form, says of its job.

    Raises TraceError for a file that cannot be read, and WorkloadError naming what it says wrong.
    """
    lines = plain_lines(read_text(path, TraceError, "log", "a log with a line per step"))
    match form:
        case "Megatron-LM" | "Megatron-Bridge" | "NeMo":
            return _megatron_job(path, lines, form)
        case "torchtitan":
            return _torchtitan_job(path, lines)
        case "nanotron":
            return _nanotron_job(path, "\n".join(lines))
        case _:
            return LoggedJob()


def _megatron_job(path: Path, lines: list[str], form: str) -> LoggedJob:
    listed = {match[1]: match[2] for match in map(_ARGUMENT.search, lines) if match}
    printed = listed or _yaml_values(lines)
    if padded := _first(_PADDED, lines):
        printed["padded_vocab_size"] = padded[1]
    recipe = recipe_of(path, _kept(printed), {})
    options = {} if recipe else _said("megatron", lines[::-1])
    options |= _device_option(lines)
    if form in _FRAMEWORKS or (recipe and not listed):
        options["framework"] = _FRAMEWORKS.get(form, "megatron-bridge")
    if recipe is None:
        return LoggedJob(options=options)
    found = model_of_arguments(path, recipe.arguments)
    ran = tuple(text for text in found.warnings if "refuses these arguments" not in text)
    return LoggedJob(model=replace(found, warnings=ran), options=options)


_FRAMEWORKS = {"Megatron-Bridge": "megatron-bridge", "NeMo": "nemo-performance"}
# The padded vocabulary, which older logs print beside the arguments.
_PADDED = re.compile(r"> padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: (\d+)\)")


def _first(pattern: re.Pattern[str], lines: list[str]) -> re.Match[str] | None:
    """The first line that a pattern finds something in."""
    return next(filter(None, map(pattern.search, lines)), None)


def _yaml_values(lines: list[str]) -> dict[str, str]:
    """Values of a configuration as YAML, by their keys; lists as Python writes them."""
    sections: dict[str, dict[str, list[str]]] = {}
    section, key = "", ""
    for match in filter(None, map(_YAML_LINE.fullmatch, lines)):
        inside, name, value = match.groups()
        if name and not inside:
            section, key = name, ""
        elif name:
            key = name
            sections.setdefault(section, {})[key] = [value] if value else []
        elif inside and key:
            sections[section][key].append(value)
    found: dict[str, str] = {}
    last = _words("sections")
    others = [name for name in sections if name not in last]
    for name in (*others, *last):
        for key, items in sections.get(name, {}).items():
            if len(items) != 1 or items[0] not in (*_NOTHING, "false") or key not in found:
                found[key] = items[0] if len(items) == 1 else f"[{','.join(items)}]"
    return found


def _kept(printed: Mapping[str, str]) -> dict[str, str]:
    """The values that a job keeps, by keys as a configuration has them.

    What has no value is left out, and what layers are like that the job has none of.
    """
    values = {
        name: re.sub(r"^\['([^']*)'\]$", r"\1", value.strip().strip("'\""))
        for name, value in printed.items()
        if value.strip() not in _NOTHING
    }
    given = {name for name, value in values.items() if value.lower() != "false"}
    absent = [
        name
        for kind in ("others", "experts")
        if not given & {*_words(kind)}
        for name in _words(f"of_{kind}")
    ]
    if "bf16" not in given and "params_dtype" in given:
        values["bf16" if "bfloat16" in values["params_dtype"] else "fp16"] = "true"
    if values.get("use_flash_attn") == "False" and values.get("transformer_impl") == "local":
        values.setdefault("attention_backend", "unfused")
    if values.get("group_query_attention") == "False":
        values.pop("num_query_groups", None)
    pattern = "|".join(absent)
    return {name: value for name, value in values.items() if not re.fullmatch(pattern, name)}


_MESH = re.compile(r"Building device mesh with parallelism: (.*)$")
_OLD_MESH = re.compile(r"Building \d+-D device mesh with (\[[^\]]*\]), (\[[^\]]*\])")
_BUILT = re.compile(r"Building (\S+) (\S+) with |Model (\S+) (\S+) size: [\d,]+ total parameters")
_CAPACITY = re.compile(r"\b(?:CUDA|HIP|XPU|NPU) capacity: (.*?) with [\d.]+GiB memory")


def _torchtitan_job(path: Path, lines: list[str]) -> LoggedJob:
    options: AskedOptions = {"framework": "torch-fsdp-eager"}
    name = ""
    for line in lines:
        if built := _BUILT.search(line):
            name = torchtitan_model(built[1] or built[3], built[2] or built[4]) or name
        if mesh := _MESH.search(line) or _OLD_MESH.search(line):
            options |= dict(_degrees(mesh))
    options |= _said("torchtitan", lines) | _device_option(lines)
    configured = _torchtitan_config(lines)
    section = configured.get("model", {})
    name = name or torchtitan_model(str(section.get("name")), str(section.get("flavor")))
    if int(options.get("pp", 1)) > 1:
        options.pop("microbatch_size", None)
    if not name:
        return LoggedJob(options=options)
    model = read_model(name)
    asked, warnings = _asked_of_config(path, configured, model) if configured else ({}, ())
    model = replace(model, warnings=(*model.warnings, *warnings))
    return LoggedJob(model=model, options={**asked, **options})


def _degrees(mesh: re.Match[str]) -> Iterator[tuple[str, object]]:
    """Options of a step by the sizes of its mesh, in either form of the line."""
    if mesh.re is _MESH:
        pairs = re.findall(r"(\w+)=(\d{1,9})", mesh[1])
    else:
        names, numbers = re.findall(r"\w+", mesh[1]), re.findall(r"\d{1,9}", mesh[2])
        pairs = list(zip(names, numbers, strict=False))
    sizes = {name: int(size) for name, size in pairs}
    degrees = {name: sizes.get(name, 1) for name in ("tp", "cp", "pp", "ep")}
    yield from degrees.items()
    shards = sizes.get("dp_shard", sizes.get("dp", 1))
    yield from sharding(shards, sizes.get("dp_replicate", 1), degrees)
    if degrees["ep"] > 1:
        yield "expert_tp", sizes.get("etp", 1)


def _torchtitan_config(lines: list[str]) -> Values:
    """The sections of the configuration that a log prints; none where it prints none.

    It is printed as JSON, or in a line as Python represents it.
    """
    text, values = "\n".join(lines), None
    if found := re.search(r"Running with (?:args|configs?): (?=\{)", text):
        try:
            values = json.JSONDecoder().raw_decode(text, found.end())[0]
        except (ValueError, RecursionError):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                values = literal_eval(text[found.end() :].partition("\n")[0].strip())
    sections = values if isinstance(values, dict) else {}
    return {key: part for key, part in sections.items() if isinstance(part, dict)}


def _asked_of_config(path: Path, configured: Values, model: Model) -> tuple[AskedOptions, Names]:
    """What a configuration asks of a step, and a warning for each part that is not known here."""
    asked, warnings = AskedOptions(), list[str]()
    parts = torchtitan_parts(str(path), configured, model.architecture.depth)
    while True:
        try:
            asked |= dict(next(parts))
        except StopIteration:
            return asked, tuple(warnings)
        except WorkloadError as error:
            warnings.append(f"{error}: left out")


def _nanotron_job(path: Path, text: str) -> LoggedJob:
    said = _said("nanotron", [text])
    options: AskedOptions = {"framework": "nanotron"}
    if {"tp", "pp", "dp", "microbatch_size", "accumulation", "sequence"} <= said.keys():
        dp, accumulation = said.pop("dp"), said.pop("accumulation")
        options |= {"cp": 1, "zero": 0} | said
        options["npus"] = dp * options["cp"] * options["tp"] * options["pp"]
        options["global_batch"] = dp * options["microbatch_size"] * accumulation
        if options["tp"] > 1:
            options["sequence_parallel"] = "TensorParallelLinearMode.REDUCE_SCATTER" in text
    return LoggedJob(model=_llama(path, text), options=options)


def _llama(path: Path, text: str) -> Model | None:
    """The model of nanotron's `LlamaConfig`; None where none is printed, or it is another."""
    values = _said("llama", [text])
    if not {"hidden_size", "num_hidden_layers", "num_attention_heads"} <= values.keys():
        return None
    values |= {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu"}
    values["tie_word_embeddings"] = "tie_word_embeddings=True" in text
    architecture, notes = architecture_of(values, place=str(path), name=path.stem)
    return Model(source=path.name, architecture=architecture, warnings=tuple(notes))


def _device_option(lines: list[str]) -> AskedOptions:
    """The device that a log names by what its driver calls it; the longest name that fits."""
    told = _first(_CAPACITY, lines)
    words = re.sub(r"[^a-z0-9]+", "-", told[1].lower()) if told else ""
    known = [name for name in names_of_files("device") if re.search(rf"\b{name}\b", words)]
    return {"device": max(known, key=len)} if known else {}
