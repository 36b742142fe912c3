"""`carillon credentials`."""

from typing import Any

import click

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.names import find_app, pick
from services.cli.nouns import Noun
from services.cli.options import JsonText, SecretText
from services.cli.output import Fields, Json, TableColumn, count_things, group_digits, state_column
from services.cli.session import Session

credentials = Noun("credentials")

_setting_options = options.join(
    click.option("--rate", type=options.Number(0, min_open=True), metavar="N", help="Maximum messages a second."),
    click.option("--max-in-flight", type=options.Count(1), metavar="N", help="Maximum calls at the same time."),
    click.option("--order", type=click.Choice(["age", "shares"]), help="Order of jobs: oldest first, or by shares."),
    click.option("--on-unknown", type=click.Choice(["hold", "retry"]),
                 help="Hold or send again a message whose outcome is unknown."),
    click.option("--retry", type=JsonText(), metavar="JSON|@FILE",
                 help="Attempts and pauses: attempts, firstDelaySeconds, factor, capSeconds."),
    click.option("--test-content", type=JsonText(), metavar="JSON|@FILE", help="Content of test messages."),
    click.option("--share-with", "shared_with", multiple=True, metavar="APP", shell_complete=complete.apps,
                 help="App that may also use it; replaces those before (admins only)."),
)  # fmt: skip
_FIELD_OF = {
    "name": "name",
    "rate": "rate",
    "max_in_flight": "maxInFlight",
    "order": "order",
    "on_unknown": "onUnknown",
    "retry": "retry",
    "test_recipient": "testRecipient",
    "test_content": "testContent",
}
_BOUNDS = {
    "rate": "its rate",
    "maxInFlight": "its calls at a time",
    "provider": "the provider, which wants fewer calls",
    "clock": "the clock of a worker",
    "work": "the work there is",
}
_SECRET_HELP = "Secret, as a JSON object in a file (@-: stdin); shells and `ps` would show it here."

_credential = click.argument("credential_name", metavar="CREDENTIAL", shell_complete=complete.credentials)


@credentials.verb("list", of_app=True)
@options.limit
def list_credentials(session: Session, limit: int | None) -> None:
    """List the provider accounts that an app may use."""
    columns = (
        TableColumn("ID", lambda credential: credential["id"], "id"),
        TableColumn("NAME", lambda credential: credential["name"]),
        TableColumn("KIND", lambda credential: credential["kind"], "word"),
        state_column("STATUS", lambda credential: credential["status"]),
        TableColumn("RATE", lambda credential: f"{credential['rate']:g}/s", "word"),
        TableColumn("WHY", lambda credential: credential["why"]),
    )
    found = session.api.items("apps", find_app(session), "credentials", limit=limit)
    session.out.show_list(found, columns, id="id", limit=limit)


@credentials.verb("show", of_app=True)
@_credential
def show(session: Session, credential_name: str) -> None:
    """Show a provider account, its speed and its queue. Its secret is never shown."""
    app_id = find_app(session)
    credential = session.api.get("apps", app_id, "credentials", _find(session, app_id, credential_name)["id"])
    session.out.show(credential, lambda: _fields(session, credential), id="id")


@credentials.verb(
    "create",
    of_app=True,
    changes=True,
    examples=(
        "credentials create test --app shop --kind sandbox --test-recipient ana@example.com",
        "credentials create mail --kind smtp --fields @smtp.json --secret @key.json --test-recipient ana@example.com",
    ),
)
@click.argument("name")
@click.option("--kind", required=True, help="Kind of provider, such as http or smtp.")
@click.option("--fields", type=JsonText(), metavar="JSON|@FILE", help="Fields of its kind, such as host and from.")
@click.option("--secret", type=SecretText(), metavar="@FILE", help=_SECRET_HELP)
@click.option("--test-recipient", required=True, help="Address that test messages go to.")
@_setting_options
def create(session: Session, kind: str, fields: Any, secret: Any, **chosen: Any) -> None:
    """Create a provider account, if the provider takes a test message."""
    body = {"kind": kind, "fields": fields or {}, "secret": secret or {}, **_body(session, **chosen)}
    made = session.api.post("apps", find_app(session), "credentials", body=body, once=True)
    session.out.confirm(made, f"Created credential {made['name']}, {made['id']}.", id="id")


@credentials.verb("update", of_app=True, changes=True)
@_credential
@click.option("--name", help="New name.")
@click.option("--test-recipient", help="Address that test messages go to.")
@click.option("--unshare", is_flag=True, help="Stop sharing it with other apps (admins only).")
@_setting_options
def update(session: Session, credential_name: str, unshare: bool, **chosen: Any) -> None:
    """Change a provider account. Running jobs follow within two seconds."""
    body = _body(session, **chosen) | ({"sharedWith": []} if unshare else {})
    if not body:
        raise click.UsageError("nothing to change: give --name, --rate or another option")
    app_id = find_app(session)
    found = _find(session, app_id, credential_name)
    changed = session.api.put("apps", app_id, "credentials", found["id"], body=body)
    session.out.confirm(changed, f"Changed credential {changed['name']}.", id="id")


@credentials.verb("delete", of_app=True, destroys=True)
@_credential
def delete(session: Session, credential_name: str) -> None:
    """Delete a provider account, unless an open job uses it."""
    app_id = find_app(session)
    found = _find(session, app_id, credential_name)
    session.ask(f"This deletes credential {found['name']}; its secret is gone then.")
    session.api.delete("apps", app_id, "credentials", found["id"])
    session.out.confirm(found, f"Deleted credential {found['name']}.", id="id")


@credentials.verb("secret", of_app=True, changes=True)
@_credential
@click.argument("secret", type=SecretText(), metavar="@FILE")
@click.option("--fields", type=JsonText(), metavar="JSON|@FILE", help="All fields of its kind, if they change too.")
def replace_secret(session: Session, credential_name: str, secret: Any, fields: Any) -> None:
    """Replace the secret of an account after a test message. The provider must accept that message. `@-` reads
    stdin."""
    app_id = find_app(session)
    found = _find(session, app_id, credential_name)
    body = {"secret": secret} | ({} if fields is None else {"fields": fields})
    changed = session.api.put("apps", app_id, "credentials", found["id"], "secret", body=body, once=True)
    session.out.confirm(changed, f"Replaced the secret of credential {changed['name']}.", id="id")


@credentials.verb("test", of_app=True, changes=True)
@_credential
def send_test(session: Session, credential_name: str) -> None:
    """Send a test message to the test recipient of a provider account."""
    app_id = find_app(session)
    found = _find(session, app_id, credential_name)
    session.api.post("apps", app_id, "credentials", found["id"], "test", once=True)
    session.out.confirm(found, f"The provider took a test message by {found['name']}.", id="id")


@credentials.verb("suspend", of_app=True, changes=True)
@_credential
def suspend(session: Session, credential_name: str) -> None:
    """Suspend a provider account. Its jobs wait until it is activated."""
    _move(session, credential_name, "suspend", "Suspended")


@credentials.verb("activate", of_app=True, changes=True)
@_credential
def activate(session: Session, credential_name: str) -> None:
    """Activate a suspended or rejected provider account."""
    _move(session, credential_name, "activate", "Activated")


@credentials.verb("reencrypt", changes=True)
def reencrypt(session: Session) -> None:
    """Encrypt all secrets under the first key. Older keys can go then. Admins only."""
    done = session.api.post("credentials", "reencrypt")
    total, before = done["reencrypted"], done["remaining"] + 1
    while 0 < done["remaining"] < before:
        before = done["remaining"]
        done = session.api.post("credentials", "reencrypt")
        total += done["reencrypted"]
    told = {**done, "reencrypted": total}
    if done["remaining"] and not session.out.json:
        rest = f"Not encrypted: {count_things(done['remaining'], 'secret')}, whose keys this deployment does not have."
        advice = "Replace them by `carillon credentials secret`."
        raise Failure(Exit.FAILED, f"Encrypted {count_things(total, 'secret')} under the first key. {rest}", advice)
    told_all = f"Encrypted {count_things(total, 'secret')} under the first key. Older keys can go."
    session.out.confirm(told, told_all, id="")


def _move(session: Session, credential_name: str, move: str, told: str) -> None:
    app_id = find_app(session)
    found = _find(session, app_id, credential_name)
    moved = session.api.post("apps", app_id, "credentials", found["id"], move)
    session.out.confirm(moved, f"{told} credential {moved['name']}.", id="id")


def _find(session: Session, app_id: str, typed: str) -> Json:
    found = session.api.items("apps", app_id, "credentials")
    see = "`carillon credentials list` shows them."
    return pick(typed, found, what="credential", names=("id", "name"), see=see)


def _body(session: Session, *, shared_with: tuple[str, ...], **chosen: Any) -> dict[str, Any]:
    body = {_FIELD_OF[name]: value for name, value in chosen.items() if value is not None}
    return body | ({"sharedWith": [find_app(session, app) for app in shared_with]} if shared_with else {})


def _standing_fields(session: Session, credential: Json) -> Fields:
    queue, until = credential["queue"], credential["holdUntil"]
    sends = f"{credential['effectiveRate']:g}/s" if credential["limitedBy"] else "nothing"
    waits = f"{count_things(queue['messages'], 'message')} of {count_things(queue['jobs'], 'open job')}"
    bound = _BOUNDS.get(credential["limitedBy"], credential["limitedBy"])
    if credential["limitedBy"] == "work" and queue["held"] == queue["messages"] > 0:
        bound = "its jobs, which are on hold"
    held = f", {group_digits(queue['held'])} of them held" if queue["held"] else ""
    oldest = f", the oldest since {session.out.when(queue['oldestUnsent'])}" if queue["oldestUnsent"] else ""
    return [
        ("sends now", sends),
        ("bounded by", bound),
        ("pause until", until and session.out.when(until)),
        ("waiting", f"{waits}{held}{oldest}"),
    ]


def _fields(session: Session, credential: Json) -> Fields:
    return [
        ("id", credential["id"]),
        ("name", credential["name"]),
        ("kind", credential["kind"]),
        ("fields", credential["fields"]),
        ("secret", f"fingerprint {credential['fingerprint']}" if credential["fingerprint"] else "none"),
        ("status", f"{credential['status']} {credential['why']}".strip()),
        ("rate", f"{credential['rate']:g}/s, at most {credential['maxInFlight']} calls at a time"),
        *_standing_fields(session, credential),
        ("order", credential["order"]),
        ("on unknown", credential["onUnknown"]),
        ("retry", credential["retry"]),
        ("test goes to", credential["testRecipient"]),
        ("test says", credential["testContent"]),
        ("shared with", credential["sharedWith"]),
        ("made", f"{session.out.when(credential['createdAt'])} by {credential['createdBy']}"),
        ("changed", session.out.when(credential["updatedAt"])),
    ]
