"""The words of the code, as far as a program can see them: a coroutine is named by a verb in the imperative, and no two
classes of the product have one name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER = ("services", "shared")
CLIENT = ("client",)  # a distribution of its own, which calls things as the API does
# Verbs, though they end like a participle.
VERBS = {"bring", "embed", "feed", "need", "ping", "ring", "seed", "shed", "speed", "string"}
# Participles, though they do not.
PARTICIPLES = {
    "begun", "brought", "built", "done", "drawn", "fallen", "forbidden", "found", "given", "gone", "held",
    "kept", "known", "left", "lost", "made", "meant", "met", "said", "seen", "sent", "shown", "spent", "swept",
    "taken", "told", "torn", "won", "written",
}  # fmt: skip
# What is neither a verb nor a participle says nothing of what is done.
NO_VERBS = {"again", "any", "apart", "in", "of", "other", "rarely", "still", "upcoming"}


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


def is_verb(name: str) -> bool:
    first = name.strip("_").split("_", maxsplit=1)[0]
    if first in VERBS:
        return True
    return not first.endswith(("ed", "ing")) and first not in PARTICIPLES | NO_VERBS


def test_a_coroutine_is_a_verb_in_the_imperative() -> None:
    named = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees(*SERVER, *CLIENT)
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and not is_verb(node.name)
    ]
    assert named == []


def test_no_two_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees(*SERVER):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
