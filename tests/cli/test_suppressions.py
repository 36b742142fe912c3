"""`carillon suppressions`, beside a real API."""

import json

import pytest

from tests.cli.conftest import Program
from tests.services.api.conftest import House

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_which_of_several_is_meant_must_be_said(cli: Program, house: House) -> None:
    app = ("--app", await house.app())
    for channel, name in (("mail", "news"), ("mail", ""), ("other", "news")):
        await cli.done("suppressions", "add", "ana@example.com", "--channel", channel, "--list", name, *app)
    remove = ("suppressions", "remove", "ana@example.com", *app, "--yes")
    assert (await cli.run(*remove)).code == 2
    assert (await cli.run(*remove, "--channel", "mail")).code == 2
    await cli.done(*remove, "--channel", "mail", "--list", "")
    left = (await cli.done("suppressions", "list", *app, "--json")).lines
    assert {(each["channel"], each["list"]) for each in left} == {("mail", "news"), ("other", "news")}


async def test_a_wish_that_stays_behind_a_bar_is_told(cli: Program, house: House) -> None:
    app = ("--app", await house.app())
    for cause in ("unsubscribe", "bounce"):
        await cli.done("suppressions", "add", "ana@example.com", "--channel", "mail", "--cause", cause, *app)
    assert "bounce, unsubscribe" in (await cli.done("suppressions", "list", *app, "--wide")).out
    removed = await cli.done("suppressions", "remove", "ana@example.com", *app, "--yes")
    assert "unsubscribed too" in removed.out


async def test_lines_and_documents_are_imported_and_may_be_again(cli: Program, house: House) -> None:
    app = ("--app", await house.app())
    lines = "ana@example.com\n\n bo@EXAMPLE.com \n"
    given = ("suppressions", "import", "-", *app, "--channel", "mail", "--json")
    assert (await cli.done(*given, given=lines)).json == {"created": 2, "there": 0, "refused": 0}
    assert (await cli.done(*given, given=lines)).json == {"created": 0, "there": 2, "refused": 0}
    documents = "\n".join(
        json.dumps({"channel": "sms", "address": f"9123456{number}", "defaultRegion": "SG"}) for number in range(3)
    )
    told = await cli.done("suppressions", "import", "-", *app, "--cause", "unsubscribe", "--json", given=documents)
    assert told.json["created"] == 3
    causes = [each["cause"] for each in (await cli.done("suppressions", "list", *app, "--json")).lines]
    assert sorted(causes) == ["hand", "hand", "unsubscribe", "unsubscribe", "unsubscribe"]


async def test_what_is_refused_is_told_by_its_line_and_without_the_address(cli: Program, house: House) -> None:
    app = ("--app", await house.app())
    ended = await cli.run("suppressions", "import", "-", *app, "--channel", "mail", given="ana@example.com\nnobody\n")
    assert ended.code == 5
    assert "2: address: malformed address" in ended.err and "Refused: 1. The other addresses are blocked." in ended.err
    assert "nobody" not in ended.err
    plain = await cli.run("suppressions", "import", "-", *app, given="ana@example.com\n")
    assert (plain.code, "If each line is an address, give --channel." in plain.err) == (2, True)
    assert "Newly blocked: 1. Blocked before: 0." in ended.out
