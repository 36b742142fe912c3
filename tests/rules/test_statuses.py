"""Only rules compare statuses: a value says what its status means."""

import ast

from tests.rules.code import SERVER, nodes

STATUSES = {"JobStatus", "BatchStatus", "ScheduleState", "CredentialStatus"}


def names_a_status(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in STATUSES
        for each in ast.walk(node)
    )


def compares_statuses(node: ast.AST) -> bool:
    match node:
        case ast.Compare(comparators=comparators, left=left):
            return any(map(names_a_status, [left, *comparators]))
        case ast.MatchValue(value=value):
            return names_a_status(value)
        case _:
            return False


def test_only_rules_compare_statuses() -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, node in nodes(*SERVER)
        if "/rules/" not in path and compares_statuses(node)
    ]
    assert found == []


def test_comparisons_are_recognised() -> None:
    compared = "if job.status is JobStatus.RUNNING or batch.status in {BatchStatus.SENT}: move(to=JobStatus.RUNNING)"
    tree = ast.parse(compared)
    assert [compares_statuses(node) for node in ast.walk(tree)].count(True) == 2
