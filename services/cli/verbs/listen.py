"""`carillon listen`."""

import time
from typing import TYPE_CHECKING

import click

from services.cli import options
from services.cli.exits import Exit, Failure
from services.cli.output.tables import Json
from services.cli.output.text import as_json, visible
from services.cli.session import Session
from services.cli.verb import Verb
from services.cli.watching import PERIOD_SECONDS

if TYPE_CHECKING:  # these bring httpx along, and `--help` does not need it
    from services.cli.copies import CopyTarget
    from services.cli.following import DeliveryFollower, FoundDelivery


@click.command("listen", cls=Verb)
@click.argument("key", metavar="KEY")
@click.option("--to", "url", required=True, metavar="URL",
              help="URL that copies are posted to, such as http://localhost:3000/events.")  # fmt: skip
@click.option("--since", type=options.SequenceOrPast(),
              help="Begin after this sequence or at this time: 17, 2h (ago), 2025-12-24 (default: now).")  # fmt: skip
@click.option("--secret-file", metavar="FILE",
              help="Sign copies with the secret in this file (`-`: stdin; default: no signature).")  # fmt: skip
@options.namespace
@click.pass_obj
def listen(session: Session, key: str, url: str, since: str | None, secret_file: str | None, namespace: str) -> None:
    """Post copies of a subscription's deliveries to a program on your machine, until Ctrl-C.

    The subscription does not change: Carillon calls its receiver as before, and only this command sees your program's
    answers. Copies have the headers of deliveries and `carillon-copy: true`. They are signed only with --secret-file.
    """
    from services.cli.copies import open_target
    from services.cli.following import DeliveryFollower

    secret = next(iter(options.read_lines(secret_file)), "") if secret_file else ""
    follower = DeliveryFollower(session, key, namespace, since or "")
    with open_target(url, secret) as target:
        _check(session, session.api.get("bus", "subscriptions", key, namespace=namespace))
        follower.begin()
        session.out.tell(f"Listening to {key}. Ctrl-C ends this.")
        while True:
            for found in follower.find_new():
                _copy(session, follower, target, found)
            time.sleep(PERIOD_SECONDS)


def _check(session: Session, subscription: Json) -> None:
    """Raise `Failure` for whoever may see no events; tell why none may come."""
    if subscription["redacted"]:
        raise Failure(Exit.NOT_ALLOWED, "You may not see the events of this subscription: that takes an operator.")
    if subscription["state"] != "active":
        session.out.tell(f"It is {subscription['state']}: nothing is delivered until it is resumed.")


def _copy(session: Session, follower: "DeliveryFollower", target: "CopyTarget", found: "FoundDelivery") -> None:
    delivery = follower.read(found)
    if isinstance(delivery, str):
        session.out.tell(f"{found.id} cannot be copied: {delivery}")
    else:
        answer = target.post(delivery)
        told = {"at": answer.at.isoformat(), "id": delivery.id, "sequence": delivery.sequence, "events": delivery.count}
        _write(session, told | {"status": answer.status, "ms": answer.ms, "error": answer.error})
    follower.pass_by(found)


def _write(session: Session, told: Json) -> None:
    if session.out.json:
        session.out.write(as_json(told))
    elif session.out.quiet:
        session.out.write(visible(told["id"]))
    else:
        events = f"{told['events']:,} event{'s' * (told['events'] != 1)}"
        answer = str(told["status"] or told["error"])
        words = (session.out.when(told["at"]), told["id"], events, answer, f"{told['ms']:,} ms")
        session.out.write(visible("  ".join(words)))
