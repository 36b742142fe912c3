"""The words of the code, as far as a program can see them: a coroutine is named by a verb in the imperative, no
function by a participle alone, and no two classes of the product have one name. The sentences of docstrings open with
a subject that one can point at."""

import ast
import re
from collections import defaultdict

from tests.rules.code import CLIENT, SERVER, nodes

# Verbs, though they end like a participle.
VERBS = {"bring", "embed", "feed", "need", "ping", "ring", "seed", "speed", "string"}
# Participles, though they do not.
PARTICIPLES = {
    "begun", "brought", "built", "done", "drawn", "fallen", "forbidden", "found", "given", "gone", "held",
    "kept", "known", "left", "lost", "made", "meant", "met", "said", "seen", "sent", "shown", "spent", "swept",
    "taken", "told", "torn", "won", "written",
}  # fmt: skip
# What others call a method that they call.
GIVEN = {"closed", "__missing__"}
# What is neither a verb nor a participle says nothing of what is done.
NO_VERBS = {"again", "any", "apart", "before", "by", "in", "of", "once", "other", "rarely", "soon", "still", "upcoming"}

# The folders whose docstrings keep to the rule.
WORDED = ("client", "contrib", "services", "shared", "monitoring")
OPENER = re.compile(r"(?:^|[.!?:|]\W*\s|\n\s*\n\s*|\n\s*- )(What|Who|Whoever|Where|Of)\b")


def first_word(name: str) -> str:
    return name.strip("_").split("_", maxsplit=1)[0]


def is_participle(word: str) -> bool:
    return word not in VERBS and (word.endswith(("ed", "ing")) or word in PARTICIPLES)


def is_verb(name: str) -> bool:
    return not is_participle(first_word(name)) and first_word(name) not in NO_VERBS


def test_a_coroutine_is_a_verb_in_the_imperative() -> None:
    named = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in [*nodes(*SERVER), *nodes(*CLIENT)]
        if isinstance(node, ast.AsyncFunctionDef) and not is_verb(node.name)
    ]
    assert named == []


def test_no_function_is_named_by_a_participle_alone() -> None:
    named = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in nodes(*SERVER)
        if isinstance(node, ast.FunctionDef) and not is_property(node) and node.name not in GIVEN
        if (name := node.name.strip("_")) == first_word(name)
        if is_participle(name) or (node.name.startswith("_") and name in NO_VERBS)
    ]
    assert named == []


def is_property(node: ast.FunctionDef) -> bool:
    """A property is a value, and a participle may name one."""
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_no_two_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, node in nodes(*SERVER):
        if isinstance(node, ast.ClassDef):
            places[node.name].append(f"{path}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_sentence_of_a_docstring_opens_without_a_subject() -> None:
    opened = [
        f"{path}:{node.lineno} {found[1]}"
        for path, node in nodes(*WORDED)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for found in OPENER.finditer(node.value.value)
    ]
    assert opened == [], "open the sentence with a noun: the worker, the caller, the field"
