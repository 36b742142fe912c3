"""`carillon credentials`, beside a real API."""

import json

import pytest

from tests.cli.conftest import Program
from tests.services.api.conftest import House

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_a_secret_in_the_command_itself_is_refused(cli: Program) -> None:
    secret = json.dumps({"token": "hush-hush-hush"})
    ended = await cli.run("credentials", "secret", "any", secret, "--app", "game")
    assert ended.code == 2
    assert "@FILE or @-" in ended.err
    assert "hush" not in ended.err


async def test_what_the_provider_refuses_is_told(cli: Program, house: House) -> None:
    app = ("--app", await house.app())
    ended = await cli.run("credentials", "create", "no", "--kind", "sandbox", "--test-recipient", "a+bounce@b.c", *app)
    assert ended.code == 5
    assert "bounces" in ended.err


async def test_sharing_is_named_by_apps_and_ended(cli: Program, house: House) -> None:
    owner, user = ("--app", await house.app()), await house.app()
    sandbox = ("--kind", "sandbox", "--test-recipient", "ana")
    made = await cli.done("credentials", "create", "both", *sandbox, *owner, "--share-with", user, "--json")
    assert made.json["sharedWith"] == [user]
    assert "both" in (await cli.done("credentials", "list", "--app", user)).out
    assert (await cli.run("credentials", "update", "both", *owner)).code == 2
    assert (await cli.done("credentials", "update", "both", *owner, "--unshare", "--json")).json["sharedWith"] == []
