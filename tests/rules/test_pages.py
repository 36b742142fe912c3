"""Every page is plain: short lines of source, short sentences, no opener that hides the subject; a short README."""

import re
from itertools import pairwise

import pytest

from shared.bus.rules.notices import NoticeKind
from shared.console.rules import audit
from shared.messages.rules.jobs import _TYPES
from shared.runtime.configuration import list_settings
from shared.runtime.settings import Settings
from tests.stack.places import CHECKOUT

PAGES = (
    *("README.md", "CONTRIBUTING.md", "client/README.md", "tests/README.md"),
    *sorted(f"docs/{page.name}" for page in (CHECKOUT / "docs").glob("*.md")),
)
LONGEST_README, LONGEST_LINE, LONGEST_SENTENCE, LONGEST_COMMENTED = 90, 160, 30, 80
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
END_OF_SENTENCE = re.compile(r"(?<=[.:!?;])\s+|\n\s*(?:[-|#]|\d+\.|\n)|\|")
OPENERS = re.compile(r"^(?:[-*|] )?\**(?:What|Who|Where|Of)\b(?!.*\?)")


def read(page: str) -> str:
    return (CHECKOUT / page).read_text("utf-8")


def find_sentences(text: str) -> list[str]:
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", CODE.sub("", text))
    return [sentence.strip() for sentence in END_OF_SENTENCE.split(text) if sentence.strip()]


def find_backward_sentences(text: str) -> list[str]:
    return [sentence for sentence in find_sentences(text) if OPENERS.match(sentence)]


def test_the_readme_is_a_front_page() -> None:
    assert len(read("README.md").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("page", PAGES)
def test_no_line_is_long(page: str) -> None:
    assert [line for line in read(page).splitlines() if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_comment_in_code_is_above_its_line_or_near_its_end(page: str) -> None:
    """A narrow window would cut it off."""
    lines = [line for block in CODE.findall(read(page)) for line in block.splitlines()]
    behind = [line for line in lines if re.search(r"\S {2,}# ", line)]
    assert [line for line in behind if re.search(r"\S {3,}# ", line) or len(line) > LONGEST_COMMENTED] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_heading_has_a_blank_line_before_it(page: str) -> None:
    lines = CODE.sub("", read(page)).splitlines()
    pairs = [(before, line) for before, line in pairwise(lines) if re.match(r"#{2,} ", line)]
    joined = [line for before, line in pairs if before and not before.endswith("-->")]
    assert joined == []


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_long_or_opens_backwards(page: str) -> None:
    found = find_sentences(read(page))
    assert [sentence for sentence in found if len(sentence.split()) > LONGEST_SENTENCE] == []
    assert find_backward_sentences(read(page)) == []


def test_the_page_of_events_has_every_type() -> None:
    named = re.findall(r"`((?:job|message|schedule|subscription|events|log)\.[a-z]+)`", read("docs/events.md"))
    of_jobs = {*audit._TYPES.values(), *audit._WITH_REASON.values()}
    of_messages = {*_TYPES.values(), "message.sent"}
    assert set(named) == of_jobs | of_messages | {"schedule.dead", "schedule.skipped"} | set(NoticeKind)


def test_the_settings_are_described_plainly() -> None:
    told = [each.sentence for each in list_settings(Settings())]
    told += [str(type(section).__doc__) for section in Settings().sections().values()]
    assert [found for text in told for found in find_backward_sentences(text)] == []
