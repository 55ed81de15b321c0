"""Megatron-LM's arguments out of what people keep them in: a command line, a script, a YAML file.

Every `--name value` of the text counts. A script's variables are replaced where the script sets
them; a YAML file may nest its keys, with or without dashes.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from stepsim.base.errors import WorkloadError

_COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
_SET = re.compile(
    r"^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;()\"']*)", re.MULTILINE
)
_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-=]([^}]*))?\}|\$(\w+)")
_FLAG = re.compile(r"--[A-Za-z][\w-]*")
_YAML = re.compile(r"^\s*(?:-\s+)?[\"']?(?:--)?([A-Za-z][\w-]*)[\"']?\s*:\s*(\S.*?)?\s*$")
_QUOTES = re.compile(r"(\([EtmL|*,0-9]*\)\*[0-9]+)|[\"'()]")
"""Quotes and a list's brackets, but not the brackets of a pipeline's layout, `(tt|)*29`."""
_DEEPEST = 8
_LONGEST = 1 << 20
_ENDS = ("\\", "&&", "||", "|", ";", "&")


def megatron_arguments(path: Path, text: str) -> Mapping[str, str]:
    """Arguments by name, with dashes; a switch has an empty value.

    A variable that the text does not set stays as it is written. Raises WorkloadError for a text
    that grows beyond a MiB when its variables are filled in.
    """
    text = _COMMENT.sub(r"\1", text)
    if path.suffix in (".yaml", ".yml"):
        return dict(_of_yaml(text))
    text = text.replace("\\\n", " ")
    variables = {name: value.strip("\"'") for name, value in _SET.findall(text)}
    for _ in range(_DEEPEST):
        if len(text) > _LONGEST:
            raise WorkloadError(f"{path}: with its variables filled in it is too long")
        text = _VARIABLE.sub(lambda found: _value(found, variables), text)
    return dict(_of_words(_QUOTES.sub(lambda found: found.group(1) or " ", text)))


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    """What a variable stands for; itself where nobody says."""
    name = found.group(1) or found.group(3)
    return variables.get(name) or found.group(2) or found.group(0)


def _of_words(text: str) -> Iterator[tuple[str, str]]:
    words = _split(text)
    for i, word in enumerate(words):
        if _FLAG.fullmatch(word):
            after = words[i + 1] if i + 1 < len(words) else ""
            value = "" if after.startswith("--") or after in _ENDS else after
            yield word[2:].replace("_", "-"), value


def _split(text: str) -> list[str]:
    """Words, `--name=value` as two."""
    words: list[str] = []
    for word in text.split():
        name, equals, value = word.partition("=")
        words += [name, value] if equals and name.startswith("--") else [word]
    return words


def _of_yaml(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = _YAML.match(line)
        if not found:
            continue
        name, value = found.group(1).replace("_", "-"), (found.group(2) or "").strip("\"'")
        if value.lower() in ("false", "null", "none", "~"):
            continue
        yield name, "" if value.lower() == "true" else value
