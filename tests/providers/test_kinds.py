"""The list of kinds."""

from shared.providers import ProviderRules, message_of
from shared.providers.kinds import kinds_of


def test_each_kind_stands_under_its_name() -> None:
    kinds = kinds_of(ProviderRules())
    assert {"http", "sandbox"} <= set(kinds)
    assert all(kind.name == name for name, kind in kinds.items())


def test_a_message_is_named_without_its_attempt() -> None:
    assert message_of("6650f3a1.00000007.00042~3") == "6650f3a1.00000007.00042"
    assert message_of("6650") == "6650"
