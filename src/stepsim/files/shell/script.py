"""What a launch script runs: its commands in order, with their words as far as they are known.

Assignments, defaults, arithmetic, arrays, tests, `case`, loops over known words, functions, `eval`
and files that are sourced are followed; nothing is executed. Of a branch that nobody can decide
both ways are read: what they set differently is unknown afterwards, and what runs in it is told.
Syntax trees are those of tree-sitter-bash.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from stepsim.base.errors import WorkloadError, errors_at
from stepsim.base.structs import Noun
from stepsim.files.reading import read_text
from stepsim.files.shell.words import (
    Environment,
    Unknown,
    Words,
    calculated,
    edited,
    is_known,
    is_unset,
    joined,
    line_of,
    marked_word,
    one_word,
    text_of,
    unknown_in,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_ROUNDS, _MOST_COMMANDS = 1000, 10_000
_BLANK = re.compile(r"(?:\s|\\\n)*")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SHELLS = ("bash", "sh", "/bin/bash")
_NOT_RUN = ("comment", "heredoc_body", "file_redirect", "command_substitution", "ERROR")


class Command(Noun, kw_only=False):
    """A command that a script runs: its words, its line, and what decides whether it runs."""

    words: Words
    line: int
    maybe: Unknown | None = None


def read_script(
    path: Path, text: str, environment: Environment
) -> tuple[list[Command], dict[str, Words]]:
    """A script's commands, and the words of its variables in the end.

    Raises WorkloadError naming the file and the line at fault.
    """
    held: dict[str, Words] = {name: (value,) for name, value in environment.items()}
    shell = _Shell(folder=path.parent, held=held, given=environment)
    with errors_at(path, WorkloadError):
        try:
            shell.read(text)
        except RecursionError:
            raise WorkloadError("it calls itself, or is nested too deeply") from None
    return shell.commands, shell.held


class _Shell(Struct):
    """The state of a shell at a place in a script.

    `held` are its variables by name, each a list of words: one, or those of an array. `given` are
    those that the caller names; they stand where a script sets what nobody knows.
    """

    folder: Path
    held: dict[str, Words]
    given: Environment
    positional: Words = ()
    functions: dict[str, "Node"] = {}
    commands: list[Command] = []
    maybe: Unknown | None = None
    ended: bool = False

    def read(self, text: str) -> None:
        """Run a text."""
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        tree = Parser(Language(tree_sitter_bash.language())).parse(text.encode())
        _check(tree.root_node)
        for node in _named(tree.root_node):
            self.run(node)

    def get(self, name: str, line: int) -> Words:
        """The words of a variable; one that nothing sets is unknown."""
        if name in ("@", "*"):
            return self.positional
        if name == "#":
            return (str(len(self.positional)),)
        if name.isdecimal() and 0 < int(name) <= len(self.positional):
            return (self.positional[int(name) - 1],)
        if name in self.held:
            return self.held[name]
        return (marked_word(Unknown(name, line, unset=True)),)

    def set(self, name: str, words: Words) -> None:
        """Let a variable have words."""
        if name in self.given and not is_known(words):
            words = (self.given[name],)
        self.held[name] = words

    # statements

    def run(self, node: "Node") -> bool | None:
        """Run a statement; whether it succeeds, None where nobody knows.

        A method that is called as a type of nodes runs these; others are groups of statements.
        """
        if self.ended or node.type in _NOT_RUN:
            return None
        found: bool | None = getattr(self, f"_{node.type}", self._group)(node)
        return found

    def _negated_command(self, node: "Node") -> bool | None:
        found = self.run(_last(node))
        return None if found is None else not found

    def _test_command(self, node: "Node") -> bool | None:
        return self.test(next(_named(node), None))

    def _group(self, node: "Node") -> bool | None:
        """A group of commands, a pipeline, one whose files are redirected, or several assignments.

        Each is run in turn.
        """
        opening = text_of(node.children[0]) if node.children else ""
        if node.type == "compound_statement" and opening == "((":
            number = self.number(next(_named(node)))
            return None if number is None else number != 0
        found: bool | None = True
        for each in _named(node):
            if not each.type.endswith("redirect"):
                found = self.run(each)
        return found

    def _variable_assignment(self, node: "Node") -> bool:
        name, operator = text_of(_field(node, "name")), text_of(node.children[1])
        value = node.child_by_field_name("value")
        before = self.held.get(name, ()) if operator == "+=" else ()
        if value is not None and value.type == "array":
            words = [*before, *(word for each in _named(value) for word in self.expand(each))]
        else:
            words = joined((before, [self.whole(value) if value else ""]))
        self.set(name.partition("[")[0], tuple(words))
        return True

    def _unset_command(self, node: "Node") -> bool:
        for each in _named(node):
            self.held.pop(text_of(each), None)
        return True

    def _list(self, node: "Node") -> bool | None:
        first, second = _first(node), _last(node)
        operator = next(text_of(each) for each in node.children if not each.is_named)
        found = self.run(first)
        wanted = operator == "&&"
        last = _last(first) if first.type == "list" else first
        usual = last.type == "command" and not text_of(last).startswith("test ")
        if found is None and wanted and usual:  # people expect a command of the system to succeed
            return self.run(second)
        if found is None:
            self._either([[second], []], Unknown(text_of(first), line_of(first)))
            return None
        return self.run(second) if found is wanted else found

    def _if_statement(self, node: "Node") -> None:
        """The branch whose condition holds; all from the first one that nobody can decide on."""
        clauses = [each for each in node.named_children if each.type == "elif_clause"]
        others = [each for each in node.named_children if each.type == "else_clause"]
        chosen: list[list[Node]] = []
        why: Unknown | None = None
        for condition, body in map(_arm, (node, *clauses)):
            known = [self.run(each) for each in condition][-1]
            if known is False:
                continue
            chosen.append(body)
            if known:
                break
            why = why or Unknown(" ".join(map(text_of, condition)), line_of(condition[0]))
        else:
            chosen.append([each for other in others for each in _named(other)])
        self._either(chosen, why)

    def _case_statement(self, node: "Node") -> None:
        value = _field(node, "value")
        word = self.whole(value)
        chosen: list[list[Node]] = []
        for item in (each for each in node.named_children if each.type == "case_item"):
            patterns = item.children_by_field_name("value")
            texts = [self.whole(each) for each in patterns]
            if unknown_in(word) or any(fnmatchcase(word, pattern) for pattern in texts):
                chosen.append([each for each in _named(item) if each not in patterns])
        why = Unknown(text_of(value), line_of(node)) if unknown_in(word) else None
        self._either([*chosen, []], why)

    def _either(self, bodies: Sequence[Sequence["Node"]], why: Unknown | None) -> None:
        """One of several ways on; all of them where nobody knows which, and why not."""
        if why is None:
            for node in bodies[0]:
                self.run(node)
            return
        before, ended, ends = dict(self.held), self.ended, []
        for body in bodies:
            self.held, self.ended = dict(before), ended
            outer, self.maybe = self.maybe, self.maybe or why
            for node in body:
                self.run(node)
            self.maybe = outer
            if not self.ended:
                ends.append(self.held)
        self.ended = ended
        self.held = _merged(ends or [before], why)
        for name in self.given.keys() & self.held.keys():
            self.set(name, self.held[name])

    def _for_statement(self, node: "Node") -> None:
        name = text_of(_field(node, "variable"))
        values = node.children_by_field_name("value")
        words = [word for each in values for word in self.expand(each)]
        for word in words[:_MOST_ROUNDS]:
            self.set(name, (word,))
            self._group(_field(node, "body"))

    def _while_statement(self, node: "Node") -> None:
        """A loop that ends at once does nothing; of another nobody knows the end."""
        body = [each for each in node.named_children if each.type == "do_group"]
        condition, ends = next(_named(node)), node.children[0].type == "until"
        if node.type != "while_statement" or self.run(condition) is not ends:
            self._either([body, []], Unknown(text_of(condition), line_of(node)))

    _c_style_for_statement = _while_statement

    def _function_definition(self, node: "Node") -> bool:
        self.functions[text_of(_field(node, "name"))] = _field(node, "body")
        return True

    def _command(self, node: "Node") -> bool | None:
        words: list[str] = []
        for each in _named(node):
            if each.type == "variable_assignment":
                self._variable_assignment(each)
            elif not each.type.endswith("redirect"):
                words += self.expand(each)
        return self._run_words(words, node) if words else True

    def _run_words(self, words: list[str], node: "Node") -> bool | None:
        """Run a command whose words are known; of one of the system nobody knows how it ends."""
        name, *rest = words
        if name in self.functions:
            outer, self.positional = self.positional, tuple(rest)
            found = self._group(self.functions[name])
            self.positional, self.ended = outer, False
            return found
        found = True
        match name:
            case "eval":
                self.read(" ".join(rest))
            case "source" | ".":
                found = self._source(rest)
            case "exit" | "return":
                self.ended = self.maybe is None or self.ended
            case "read":
                self._read_words(rest, node)
            case "test" | "[":
                found = self._tested(rest)
            case "true" | ":" | "false":
                found = name != "false"
            case "shift":
                self.positional = self.positional[_whole(rest[:1]) or 1 :]
            case _:
                self._keep(words, node)
                found = None
        return found

    def _keep(self, words: list[str], node: "Node") -> None:
        """Keep a command; what stands behind `bash -c` runs, started by what stands before it."""
        shells = (place for place, word in enumerate(words) if word in _SHELLS)
        start = next(shells, len(words))
        if "-c" in words[start:-1]:
            before, launcher = len(self.commands), words[:start]
            self.read(words[words.index("-c", start) + 1])
            self.commands[before:] = [
                Command((*launcher, *each.words), each.line, each.maybe)
                for each in self.commands[before:]
            ]
        elif len(self.commands) < _MOST_COMMANDS:
            self.commands.append(Command(tuple(words), line_of(node), self.maybe))

    def _source(self, texts: Sequence[str]) -> bool | None:
        """A file beside the script; of one that is not there nobody knows what it sets."""
        names = [text for path in texts[:1] for text in (path, Path(path).name)]
        found = next((self.folder / name for name in names if (self.folder / name).is_file()), None)
        if found is None:
            return None
        self.read(read_text(found, WorkloadError, "script", "a script"))
        return True

    def _read_words(self, texts: Sequence[str], node: "Node") -> None:
        """`read A B <<< "1 2"`, or from a text below."""
        names = [text for text in texts if not text.startswith("-") and text]
        given = next((e for e in node.named_children if e.type == "herestring_redirect"), None)
        words = [] if given is None else self.whole(_first(given)).split()
        for i, name in enumerate(names):
            part = words[i:] if i == len(names) - 1 else words[i : i + 1]
            unknown = marked_word(Unknown(name, line_of(node)))
            self.set(name, (unknown if given is None else " ".join(part),))

    # tests

    def test(self, node: "Node | None") -> bool | None:
        """Whether a condition holds; None where nobody knows."""
        if node is None:
            return False
        match node.type:
            case "binary_expression":
                operator, first, second = _sides(node)
                if operator in ("&&", "-a", "||", "-o"):
                    both = [self.test(first), self.test(second)]
                    ends = operator in ("||", "-o")
                    return ends if ends in both else None if None in both else not ends
                words = [self.whole(first), operator, self.whole(second)]
            case "unary_expression":
                operator, value = text_of(node.children[0]), _last(node)
                if operator == "!":
                    found = self.test(value)
                    return None if found is None else not found
                words = [operator, *self.expand(value, quoted=True)]
            case "parenthesized_expression":
                return self.test(_first(node))
            case _:
                words = self.expand(node, quoted=True)
        return self._tested(words)

    def _tested(self, words: Sequence[str]) -> bool | None:
        """What `test` says of words."""
        match [word for word in words if word not in ("[", "]", "[[", "]]")]:
            case [*sign, text] if sign in ([], ["-n"], ["-z"]):
                unset = is_unset([text])
                known, empty = unset or is_known([text]), unset or not text
                return empty == (sign == ["-z"]) if known else None
            case [first, operator, second] if is_known([first, second]):
                return _compared(first, operator, second)
        return None

    # words

    def expand(self, node: "Node", *, quoted: bool = False) -> list[str]:
        """The words that a node stands for; with `quoted` they do not fall apart at spaces."""
        text = text_of(node)
        match node.type:
            case "command_name":
                return self.expand(_first(node))
            case "string":
                found = joined(self._quoted(node))
            case "raw_string":
                found = [text[1:-1]]
            case "ansi_c_string":
                found = [text[2:-1]]
            case "concatenation":
                found = joined(self.expand(each, quoted=quoted) for each in node.named_children)
            case "simple_expansion" | "expansion":
                return self._held(node, quoted=quoted)
            case "arithmetic_expansion":
                number = self.number(next(_named(node), None))
                found = self._unknown(node) if number is None else [str(number)]
            case "command_substitution":
                found = self._output(node)
            case "brace_expression" | "process_substitution":
                found = self._unknown(node)
            case _:
                found = [re.sub(r"\\(.)", r"\1", text.replace("\\\n", ""))]
        return found or [""]

    def whole(self, node: "Node") -> str:
        """The words that a node stands for as one, with spaces between."""
        return one_word(self.expand(node, quoted=True), " ")

    def _quoted(self, node: "Node") -> Iterator[list[str]]:
        """The pieces between quotes, with blanks that the tree leaves out between expansions.

        `"${A[@]}"` is as many words as the array has.
        """
        text, end = node.text or b"", 1
        for each in node.named_children:
            place, own = each.start_byte - node.start_byte, text_of(each)
            lead = len(own) - len(_BLANK.sub("", own, 1))
            blank = "" if each.type == "string_content" else own[:lead]
            yield [(text[end:place].decode(errors="replace") + blank).replace("\\\n", "")]
            end = each.end_byte - node.start_byte
            if each.type == "string_content":
                yield [re.sub(r'\\(["\\$`\n])', lambda found: found[1].strip("\n"), own)]
            else:
                yield self.expand(each, quoted=True)
        yield [text[end:-1].decode(errors="replace")]

    def _held(self, node: "Node", *, quoted: bool) -> list[str]:
        """The words of a variable; without quotes they fall apart at spaces."""
        text = text_of(node)
        if node.type == "expansion":
            words = self._parameter(node)
        else:
            words = self.get(text_of(_last(node)), line_of(node))
        found = list(words if "@" in text or "*" in text else words[:1])
        return found or [""] if quoted else " ".join(found).split()

    def _unknown(self, node: "Node") -> list[str]:
        return [marked_word(Unknown(text_of(node), line_of(node)))]

    def _parameter(self, node: "Node") -> Sequence[str]:
        """`${X}`, `${X:-v}` and their kin."""
        if not node.named_children:
            return self._unknown(node)
        (held, *after), line = node.named_children, line_of(node)
        element = held.type == "subscript"
        name = text_of(_first(held) if element else held)
        words: Sequence[str] = self.get(name, line)
        if element and text_of(_last(held)) not in ("@", "*"):
            number = self.number(_last(held))
            if number is None or not -len(words) <= number < len(words):
                words = self._unknown(held)
            else:
                words = [words[number]]
        marks = [text_of(each) for each in node.children_by_field_name("operator")]
        if marks[:1] == ["#"] and len(node.children) == 4:
            array = element and "@" in text_of(held)
            size = len(words) if array else len(words[0]) if words else 0
            return [str(size)] if is_known(words) else self._unknown(node)
        if marks[:1] == ["!"]:
            return self.get(words[0], line) if is_known(words) else self._unknown(node)
        return self._changed(name, words, marks, after, node) if marks else words

    def _changed(
        self,
        name: str,
        words: Sequence[str],
        marks: Sequence[str],
        after: Sequence["Node"],
        node: "Node",
    ) -> Sequence[str]:
        """A variable with a default, an alternative, or a part of its text."""
        mark, unset = marks[0], is_unset(words)
        empty = unset or (":" in mark and not any(words))
        other = joined(self.expand(each, quoted=True) for each in after) or [""]
        match mark.lstrip(":"):
            case "-" | "=":
                if empty and mark.endswith("="):
                    self.set(name, tuple(other))
                return other if empty else words
            case "+":
                return [""] if empty else other
            case "?":
                return words
        if not is_known(words) or mark not in ("#", "##", "%", "%%", "/", "//"):
            return self._unknown(node)
        pattern, replacement = other[0], ""
        if mark in ("/", "//"):
            pattern, replacement, *_ = *map(self.whole, after), "", ""
        return [edited(word, mark, pattern, replacement) for word in words]

    def _output(self, node: "Node") -> list[str]:
        """What a command prints where that is sums or its own words; else nobody knows."""
        inside, words = list(_named(node)), list[str]()
        if len(inside) == 1 and inside[0].type == "command":
            words = [w for each in inside[0].named_children for w in self.expand(each)]
        match words if is_known(words) else []:
            case ["echo", *said]:
                return [" ".join(said)]
            case ["expr", first, operator, second]:
                found = calculated(operator, _whole([first]), _whole([second]))
                return self._unknown(node) if found is None else [str(found)]
        return self._unknown(node)

    def number(self, node: "Node | None") -> int | None:
        """A whole number of arithmetic; None where nobody knows it."""
        if node is None:
            return None
        match node.type:
            case "binary_expression":
                operator, *sides = _sides(node)
                return calculated(operator, *map(self.number, sides))
            case "parenthesized_expression":
                return self.number(_first(node))
            case "unary_expression":
                found = self.number(_last(node))
                sign = text_of(node.children[0])
                return None if found is None else -found if sign == "-" else found
            case "variable_name":
                return _whole(self.get(text_of(node), line_of(node))[:1])
            case _:
                return _whole(self.expand(node, quoted=True))


def _check(node: "Node") -> None:
    """Raise WorkloadError where something is no shell that may hold arguments."""
    if node.type == "ERROR" and "--" in text_of(node):
        raise WorkloadError(f"line {line_of(node)}: this is no shell: {text_of(node)[:60]!r}")
    for each in node.children if node.has_error else ():
        _check(each)


def _whole(words: Sequence[str]) -> int | None:
    known = len(words) == 1 and _NUMBER.fullmatch(words[0].strip())
    return int(words[0]) if known else None


def _compared(first: str, operator: str, second: str) -> bool | None:
    """What a test says of two texts."""
    if operator in ("=", "==", "!="):
        return fnmatchcase(first, second) == (operator != "!=")
    if operator == "=~":
        try:
            return re.search(second, first) is not None
        except re.error:
            return None
    numbers = {"-eq": "==", "-ne": "!=", "-gt": ">", "-ge": ">=", "-lt": "<", "-le": "<="}
    found = calculated(numbers.get(operator, ""), _whole([first]), _whole([second]))
    return None if found is None else bool(found)


def _merged(ends: Sequence[Mapping[str, Words]], why: Unknown) -> dict[str, Words]:
    """What is known after one of several ways, whichever it was."""
    found = dict(ends[0])
    for name in dict.fromkeys(chain.from_iterable(ends)):
        values = [each.get(name) for each in ends]
        if any(value != values[0] for value in values):
            flags = any("--" in word for value in values if value for word in value)
            found[name] = (marked_word(Unknown(f"{name} by {why.name}", why.line, flags)),)
    return found


def _named(node: "Node") -> Iterator["Node"]:
    return (each for each in node.named_children if each.type != "comment")


def _field(node: "Node", name: str) -> "Node":
    found = node.child_by_field_name(name)
    assert found is not None
    return found


def _sides(node: "Node") -> tuple[str, "Node", "Node"]:
    """The operator of an expression, and what stands on its sides."""
    operator = node.child_by_field_name("operator") or node.children[1]
    return text_of(operator), _first(node), _last(node)


def _first(node: "Node") -> "Node":
    return node.named_children[0]


def _last(node: "Node") -> "Node":
    return node.named_children[-1]


def _arm(node: "Node") -> tuple[list["Node"], list["Node"]]:
    """The condition and the commands of `if` or `elif`."""
    place = next(each.start_byte for each in node.children if text_of(each) == "then")
    inside = [e for e in _named(node) if e.type not in ("elif_clause", "else_clause")]
    condition = [each for each in inside if each.end_byte <= place]
    return condition, [each for each in inside if each.start_byte > place]
