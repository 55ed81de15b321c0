"""Searches of the program that say whether it became fewer ideas; names do not move them.

Types are told by their fields and annotations, functions by what they take, give and do.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

DEGREES = {"tp", "pp", "dp", "cp", "ep", "expert_tp"}
TIMED = {"run", "core"}
"""Rooms that know when tasks run."""
RECORDED = {"measured", "runs", "recorded"}
READERS = {"traces", "runs"}
"""Folders of `files` that read recorded runs."""
OUTSIDE = {"base", "cli", "documents", "face", "files", "network", "show", "views", "workload"}
"""Rooms whose largest values are no times of a step."""
ALIKE = 0.7
FEWEST = 4
LOOPS = (ast.For, ast.comprehension)


@dataclass(frozen=True)
class Found:
    """A class or a function and the room it is in; of a class its annotated fields.

    Those that are `known` may not be None: an option that nobody gave is no plan yet.
    """

    room: str
    folder: str
    module: str
    node: ast.ClassDef | ast.FunctionDef
    fields: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()

    @property
    def takes(self) -> set[str]:
        """Names of all types in the annotations of a function's arguments."""
        if isinstance(self.node, ast.ClassDef):
            return set()
        arguments = self.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return {name for each in every if each.annotation for name in names(each.annotation)}

    @property
    def gives(self) -> set[str]:
        """Names of all types in what a function returns."""
        if isinstance(self.node, ast.ClassDef) or not self.node.returns:
            return set()
        return set(names(self.node.returns))


def names(annotation: ast.expr) -> Iterator[str]:
    """Names in an annotation, those in texts too."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)
        elif isinstance(node, ast.Constant) and node.value is None:
            yield "None"


def found_in(package: Path) -> tuple[list[Found], list[Found]]:
    """All classes and functions of a package."""
    classes, functions = [], []
    for file in sorted(package.rglob("*.py")):
        room, *folders = file.relative_to(package).parts
        folder = folders[0] if len(folders) > 1 else ""
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                kinds = {
                    each.target.id: set(names(each.annotation))
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
                fields = frozenset(name for name in kinds if "ClassVar" not in kinds[name])
                known = frozenset(name for name in fields if "None" not in kinds[name])
                classes.append(Found(room, folder, file.name, node, fields, known))
            elif isinstance(node, ast.FunctionDef):
                functions.append(Found(room, folder, file.name, node))
    return classes, functions


def calls(node: ast.AST) -> Counter[str]:
    """Last names of all that is called in a tree: `maximum` of `np.maximum.at` too."""
    found: Counter[str] = Counter()
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            found.update(names(each.func))
    return found


def is_way_to_a_time(function: ast.AST) -> bool:
    """Whether a function has a largest of several and adds to it, or runs events: as ends are made.

    `start = max(ready, free); end = start + duration` is one, and `np.maximum.at(ends, ...)`.
    """
    called = calls(function)
    if {"heappop", "Environment", "timeout"} & called.keys():
        return True
    largest = {"max", "maximum"}
    held = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and largest & set(calls(node.value)):
            held |= {name for target in node.targets for name in names(target)}
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = (node.left, node.right)
            for side in sides:
                direct = isinstance(side, ast.Call) and largest & set(names(side.func))
                if direct or (isinstance(side, ast.Name) and side.id in held):
                    return True
    return False


def counts(package: Path) -> dict[str, int]:
    """What is counted, by name; see `tests/house.toml`."""
    classes, functions = found_in(package)
    plans = {each.node.name for each in classes if len(each.known & DEGREES) >= 3}
    pricing = {
        each.module
        for each in functions
        if any(
            isinstance(node, ast.Attribute) and node.attr == "price_one"
            for node in ast.walk(each.node)
        )
    }
    timed = {each.node.name for each in classes if each.room in TIMED}
    read = {
        name
        for each in functions
        if each.room == "files" and each.folder in READERS and "Path" in each.takes
        for name in each.gives
    }
    recorded = {each.node.name for each in classes if each.room in RECORDED} & read
    large = [each.fields for each in classes if len(each.fields) >= FEWEST]
    return {
        "nouns_of_a_plan": len(plans),
        "enumerators_of_plans": len(
            {
                (each.room, each.module)
                for each in functions
                if plans & each.gives
                and {"Iterator", "Iterable", "list"} & each.gives
                and "tuple" not in each.gives
                and not (plans | {"PlanTable"}) & each.takes
            }
        ),
        "models_of_a_layer": len(pricing),
        "nouns_of_a_recorded_run": len(recorded),
        "ways_to_a_time": sum(
            is_way_to_a_time(each.node) for each in functions if each.room not in OUTSIDE
        ),
        "walks_of_a_timeline_outside": sum(
            bool(timed & each.takes)
            and any(isinstance(node, LOOPS) for node in ast.walk(each.node))
            for each in functions
            if each.room not in TIMED
        ),
        "twin_classes": sum(
            len(one & other) >= max(FEWEST, ALIKE * min(len(one), len(other)))
            for one, other in combinations(large, 2)
        ),
    }
