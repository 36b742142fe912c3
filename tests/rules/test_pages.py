"""Every page is plain: short lines of source, short sentences, no opener that hides the subject; a short README."""

import re

import pytest

from shared.domain.bus.notices import NoticeKind
from shared.domain.console import system_records
from shared.domain.messages import events as message_events
from tests.stack.places import CHECKOUT

PAGES = (
    *("README.md", "CONTRIBUTING.md", "client/README.md", "tests/README.md"),
    *sorted(f"docs/{page.name}" for page in (CHECKOUT / "docs").glob("*.md")),
)
LONGEST_README, LONGEST_LINE, LONGEST_SENTENCE = 90, 160, 30
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
END_OF_SENTENCE = re.compile(r"(?<=[.:!?;])\s+|\n\s*(?:[-|#]|\d+\.|\n)|\|")
OPENERS = re.compile(r"^(?:[-*|] )?\**(?:What|Who|Where|Of)\b(?!.*\?)")


def read(page: str) -> str:
    return (CHECKOUT / page).read_text("utf-8")


def sentences_of(page: str) -> list[str]:
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", CODE.sub("", read(page)))
    return [sentence.strip() for sentence in END_OF_SENTENCE.split(text) if sentence.strip()]


def test_the_readme_is_a_front_page() -> None:
    assert len(read("README.md").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("page", PAGES)
def test_no_line_is_long(page: str) -> None:
    assert [line for line in read(page).splitlines() if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_long_or_opens_backwards(page: str) -> None:
    found = sentences_of(page)
    assert [sentence for sentence in found if len(sentence.split()) > LONGEST_SENTENCE] == []
    assert [sentence for sentence in found if OPENERS.match(sentence)] == []


def test_the_page_of_events_has_every_type() -> None:
    named = re.findall(r"`((?:job|message|schedule|subscription|events|log)\.[a-z]+)`", read("docs/events.md"))
    of_jobs = {*system_records._TYPES.values(), *system_records._WITH_REASON.values()}
    of_messages = {*message_events._TYPES.values(), "message.sent"}
    assert set(named) == of_jobs | of_messages | {"schedule.dead"} | set(NoticeKind)
