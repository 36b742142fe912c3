"""`docs/doctor.md` lists every question of the doctor, in its own words."""

import re
import textwrap

from services.commands.doctor.chosen import EXAMINATIONS
from tests.stack.places import CHECKOUT

PAGE = (CHECKOUT / "docs" / "doctor.md").read_text("utf-8")


def questions() -> str:
    lists = []
    for examination in EXAMINATIONS:
        told = [f"- **{question.name}**: {question.meaning}" for question in examination.questions]
        lines = [textwrap.fill(each, 150, subsequent_indent="  ", break_on_hyphens=False) for each in told]
        lists.append("\n".join([f"### {examination.of}", "", *lines]))
    return "\n\n".join(lists)


def test_the_page_has_every_question() -> None:
    found = re.search(r"<!-- questions -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == questions()


def test_every_question_has_a_name_of_its_own() -> None:
    for examination in EXAMINATIONS:
        names = [question.name for question in examination.questions]
        assert len(set(names)) == len(names)
    assert len({examination.of for examination in EXAMINATIONS}) == len(EXAMINATIONS)
