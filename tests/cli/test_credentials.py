"""`carillon credentials`, beside a real API."""

import json

import pytest

from tests.cli.conftest import Document, Program
from tests.services.api.conftest import House

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ONE = "/apps/{appId}/credentials/{credentialId}"


async def test_the_life_of_a_credential(cli: Program, house: House, document: Document) -> None:
    app = ("--app", await house.app())
    sandbox = ("--kind", "sandbox", "--test-recipient", "ana@example.com")
    made = await cli.done("credentials", "create", "play", *sandbox, *app, "--rate", "5", "--json")
    document.check("post", "/apps/{appId}/credentials", made.json, "201")
    listed = (await cli.done("credentials", "list", *app, "--json")).lines
    document.check("get", "/apps/{appId}/credentials", listed)
    shown = await cli.done("credentials", "show", "play", *app, "--json")
    document.check("get", ONE, shown.json)
    assert "5/s, at most 20 calls" in (await cli.done("credentials", "show", "play", *app)).out
    changed = await cli.done("credentials", "update", "play", *app, "--rate", "0.5", "--order", "shares", "--json")
    assert (changed.json["rate"], changed.json["order"], changed.json["testRecipient"]) == (
        0.5, "shares", "ana@example.com",
    )  # fmt: skip
    await cli.done("credentials", "test", "play", *app)
    suspended = await cli.done("credentials", "suspend", "play", *app, "--reason", "unpaid", "--json")
    assert (suspended.json["status"], suspended.json["why"]) == ("suspended", "unpaid")
    assert "unpaid" in (await cli.done("credentials", "list", *app, "--wide")).out
    assert (await cli.run("credentials", "suspend", "play", *app)).code == 5
    await cli.done("credentials", "activate", "play", *app)
    await cli.done("credentials", "secret", "play", "@-", *app, given="{}")
    await cli.done("credentials", "delete", "play", *app, "--yes")
    assert (await cli.run("credentials", "show", "play", *app)).code == 4


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


async def test_reencrypting_with_nothing_to_do_says_so(cli: Program) -> None:
    ended = await cli.done("credentials", "reencrypt", "--json")
    assert ended.json == {"reencrypted": 0, "remaining": 0, "unreadable": 0}
    assert "Older keys can go." in (await cli.done("credentials", "reencrypt")).out
