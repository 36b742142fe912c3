"""`docs/doctor.md` lists every question of the doctor, in its own words."""

import re
import textwrap

from services.commands.doctor import SUBJECTS
from tests.stack.places import CHECKOUT

PAGE = (CHECKOUT / "docs" / "doctor.md").read_text("utf-8")


def questions() -> str:
    lists = []
    for subject in SUBJECTS:
        told = [f"- **{each.name}**: {' '.join((each.ask.__doc__ or '').split())}" for each in subject.questions]
        lines = [textwrap.fill(each, 150, subsequent_indent="  ", break_on_hyphens=False) for each in told]
        lists.append("\n".join([f"### {subject.name}", "", *lines]))
    return "\n\n".join(lists)


def test_the_page_has_every_question() -> None:
    found = re.search(r"<!-- questions -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == questions()


def test_25_questions_have_names_of_their_own() -> None:
    names = [(subject.name, question.name) for subject in SUBJECTS for question in subject.questions]
    assert len(set(names)) == len(names) == 25
