"""Arguments and size of the job that a launch script starts.

Of all commands of a script the one that trains counts: the arguments of Megatron-LM that it has.
What the script leaves to its environment stays unknown, and is asked for where a step needs it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Names, Noun, shipped
from stepsim.files.shell import Command, read_script
from stepsim.files.shell.words import Environment, Unknown, Words, shown_word, unknown_in

_FLAG = re.compile(r"--[A-Za-z][\w-]*")
_LAUNCHERS = re.compile(
    r"(torchrun|srun|jsrun|mpirun|mpiexec|deepspeed|accelerate|torch\.distributed)"
)
_OVERRIDE = re.compile(r"\+{0,2}([a-z_]+\.[\w.]+|mixed_precision)=(.*)", re.DOTALL)
_OTHERWISE = re.compile(r"\b(pretrain_(bert|t5|ict|vision\w*)|posttrain_\w+|train_rlhf)\.py")
# What a person is to fill in, which a shell takes for files to read and to write.
_PLACEHOLDER = re.compile(r"(?<!<)<([A-Za-z][A-Za-z _./-]*[A-Za-z])>")
# The setting of a variable, or an override as Hydra has them.
_SETS = re.compile(r"^\s*(?:export\s+)?\w+=|\bmodel\.\w+=", re.MULTILINE)
_SIZE = re.compile("(?!0+$)[0-9]{1,9}")
_DIRECTIVE = r"^#SBATCH\s+(.*)$"
# Quotes and a list's brackets, but not the brackets of a pipeline's layout, `(tt|)*29`.
_QUOTES = re.compile(r"(\([EtmL|*,0-9]*\)\*[0-9]+)|[\"'()]")
Arguments = Mapping[str, str]
"""Arguments by name, a switch with an empty value; what nobody knows stands in one as a mark."""
# What ends a command, or goes on with it on the next line.
_ENDS = ("\\", "&&", "||", "|", ";", "&")


def _names(table: str) -> Mapping[str, Names]:
    """Names of arguments and commands by what they say, as `launchers.toml` lists them."""
    return shipped(__file__, "launchers.toml", dict[str, dict[str, Names]])[table]


class ScriptArguments(Noun):
    """The arguments of a command, as `values`, and what starts it.

    `launches` says that the text starts a job, `npus` how large it is, as far as that is known,
    `recipe` which file its commands name.
    """

    values: Arguments
    launches: bool
    npus: int | None
    recipe: str = ""


def script_arguments(
    path: Path, text: str, environment: Environment | None = None
) -> ScriptArguments:
    """What a script trains; raises WorkloadError naming the file and the line at fault.

    A text without variables is read as arguments alone, whatever a shell would make of their signs.
    """
    text = _PLACEHOLDER.sub(lambda each: each[1].replace(" ", "_"), text)
    lines = (line.partition("#")[0] for line in re.findall(_DIRECTIVE, text, re.MULTILINE))
    directives = " ".join(lines).replace("=", " ").split()
    slurm = _slurm(arguments_of(directives))
    if "$" in text or _SETS.search(text):
        commands, variables = read_script(path, text, {**slurm, **(environment or {})})
        command = _training(path, commands, variables)
    else:
        without_comments = re.sub(r"(^|\s)#.*$", r"\1", text, flags=re.MULTILINE)
        plain = _QUOTES.sub(lambda each: each[1] or " ", without_comments.replace("\\\n", " "))
        command, commands, variables = Command(tuple(plain.split()), 1), [], {}
    values = arguments_of(command.words)
    launches = bool(slurm) or _launches(command)
    if other := _OTHERWISE.search(" ".join(command.words)):
        raise WorkloadError(f"{path}: {other[0]} is no pre-training of a decoder: not modelled")
    npus = _npus(values, variables, slurm) if launches else None
    sizes = _names("words")["nodes"] + _names("words")["per_node"]
    for name in (*sizes, *(() if npus is None else ("world-size",))):
        values.pop(name, None)
    recipes = (shown_word(each) for other in (command, *commands) for each in other.words)
    return ScriptArguments(
        values=values,
        launches=launches,
        npus=npus,
        recipe=next((each for each in recipes if each.endswith((".toml", ".yaml", ".yml"))), ""),
    )


def _slurm(given: Arguments) -> Environment:
    """What Slurm sets for a script by what that asks of it."""
    found = {"SLURM_JOB_ID": "1"} if given else {}
    for variable, names in _names("slurm").items():
        texts = [re.findall("[0-9]+", given[name])[-1:] for name in names if name in given]
        if texts and texts[0]:
            found[variable] = texts[0][0]
    return found


def _training(path: Path, commands: Sequence[Command], variables: Mapping[str, Words]) -> Command:
    """The command that trains; raises WorkloadError where there are several that differ."""
    chosen = [each for each in commands if _trains(each)]
    distinct = {tuple(arguments_of(each.words).items()): each for each in chosen}
    if len(distinct) > 1:
        lines = ", ".join(str(each.line) for each in distinct.values())
        raise WorkloadError(f"{path}: lines {lines} train different jobs: keep one of them")
    for each in distinct.values():
        why = each.maybe or _hidden(each.words)
        if why is not None and len(chosen) == 1:
            raise WorkloadError(f"{path}: line {why.line}: {needed(why)}")
        return each
    words = [word for each in commands for word in each.words]
    hidden = _hidden(words)
    for name, held in variables.items():
        hold = any("--" in word for word in held)
        words += held if hold else [f"{name}={word}" for word in held]
    whole = Command(("", *words), 1)
    if hidden is not None and (_trains(whole) or _launches(whole)):
        raise WorkloadError(f"{path}: line {hidden.line}: {needed(hidden)}")
    return whole


def _launches(command: Command) -> bool:
    return any(map(_LAUNCHERS.search, command.words))


def _trains(command: Command) -> bool:
    name = Path(command.words[0]).name
    words, flags = _names("words"), arguments_of(command.words)
    return name not in words["silent"] and any(flag in flags for flag in words["trains"])


def _hidden(words: Sequence[str]) -> Unknown | None:
    """What nobody knows of the first word that may hold arguments beside; None without one."""
    found = (unknown for unknown in map(unknown_in, words) if unknown and unknown.flags)
    return next(found, None)


def needed(unknown: Unknown) -> str:
    """What to say of what is not known, and what would tell it."""
    if unknown.unset:
        return f"nothing sets ${unknown.name}: give --env {unknown.name}=VALUE"
    named = re.findall(r"\$\{?([A-Za-z_]\w*|[0-9])", unknown.name)
    named = named or re.findall(r"^(\w+) by ", unknown.name)
    given = f": give --env {named[0]}=VALUE" if named else ""
    return f"{unknown.name}: nobody can decide that{given}"


def arguments_of(words: Sequence[str]) -> dict[str, str]:
    """Arguments by name, a switch with an empty value; what nobody knows stands as a mark."""
    values: dict[str, str] = {}
    for word, after in pairwise([*_parts(words), ""]):
        if found := _OVERRIDE.fullmatch(word):
            values[found[1]] = found[2].strip("'\"")
        if not re.fullmatch(r"--[A-Za-z][\w-]*|-[nN]p?", word):
            continue
        name = word.lstrip("-").replace("_", "-")
        value = "" if after.startswith("--") or after in _ENDS else after
        is_list = value.startswith("([") and value.endswith(")")  # those of a layout stay
        values[name] = value[1:-1] if is_list else value
    return values


def _parts(words: Sequence[str]) -> Iterator[str]:
    """Words, `--name=value` as two, and arguments that stand in one word as several."""
    for word in words:
        for text in word.split() if word.lstrip().startswith("--") else [word]:
            name, equals, value = text.partition("=")
            yield from (name, value) if equals and _FLAG.fullmatch(name) else (text,)


def _npus(values: Arguments, variables: Mapping[str, Words], slurm: Environment) -> int | None:
    """NPUs of the job: nodes times those of each, else all of them."""
    words, world = _names("words"), variables.get("WORLD_SIZE", ())
    said = {**slurm, "WORLD_SIZE": world[0] if world else "", **values}
    nodes, each, total = (
        next((int(said[n]) for n in words[size] if _SIZE.fullmatch(said.get(n, ""))), None)
        for size in ("nodes", "per_node", "total")
    )
    if each and (nodes or not any(name in values for name in words["nodes"])):
        return each * (nodes or 1)
    return total
