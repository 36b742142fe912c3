"""The options of `create` and `preview` for a schedule, and the body made of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from services.cli.options import Count, HeaderLine, Instant, JsonText, RawText, SecretWord, join, pairs

definition_options = join(
    click.option("--at", "instants", type=Instant(), multiple=True, help="Instant; may be given several times."),
    click.option("--cron", metavar="LINE", help="Cron line of five fields, or @daily and the like: '0 9 * * 1-5'."),
    click.option("--timezone", metavar="ZONE", help="Time zone of --cron, such as Europe/Paris (default: UTC)."),
    click.option("--every", type=Count(1), metavar="SECONDS", help="Seconds between two instants."),
    click.option("--http", "url", metavar="URL", help="Call this URL with POST."),
    click.option("--queue", metavar="NAME", help="Publish to this RabbitMQ queue."),
    click.option("--topic", metavar="NAME", help="Write to this Kafka topic."),
    click.option("--payload", type=RawText(), metavar="JSON|@FILE", help="Payload of the message."),
    click.option("--header", "headers", type=HeaderLine(), multiple=True, metavar="'NAME: VALUE'",
                 help="Header of the message; may be given several times."),
    click.option("--secret", type=SecretWord(), metavar="@FILE", help="Secret (whsec_…) that signs the HTTP call."),
    click.option("--retry-attempts", type=Count(1, 100), help="Attempts until a message becomes a dead letter."),
    pairs("--label", "labels", help="Label; may be given several times."),
    click.option("--body", type=JsonText(), metavar="JSON|@FILE",
                 help="Whole definition, as in the API; the options above override it."),
)  # fmt: skip


def schedule_body(
    *,
    instants: Sequence[datetime],
    cron: str | None,
    timezone: str | None,
    every: int | None,
    url: str | None,
    queue: str | None,
    topic: str | None,
    payload: Any,
    headers: Sequence[tuple[str, str]],
    secret: str | None,
    retry_attempts: int | None,
    labels: Sequence[tuple[str, str]],
    body: Any,
    needs_callback: bool = True,
) -> dict[str, Any]:
    """The body of a request. Unless it `needs_callback`, a missing callback is replaced by a placeholder."""
    if body is not None and not isinstance(body, dict):
        raise click.UsageError("--body must be a JSON object")
    places = {"url": ("http", url), "queue": ("rabbitmq", queue), "topic": ("kafka", topic)}
    named = {field: (kind, place) for field, (kind, place) in places.items() if place}
    if len(named) > 1:
        raise click.UsageError("use only one of --http, --queue and --topic")
    has_callback = bool(named or (body or {}).get("callback"))
    if needs_callback and not has_callback:
        raise click.UsageError("name a target: --http, --queue, --topic, or a callback in --body")
    _check_one_kind(instants=instants, cron=cron, every=every, body=body or {})
    chosen: dict[str, Any] = {
        "callback": None if has_callback else {"type": "http", "data": {"url": "https://example.com/"}},
        "schedules": [instant.isoformat() for instant in instants],
        "cron": cron,
        "timezone": timezone,
        "every": every,
        "labels": dict(labels),
        "retry": retry_attempts and {**((body or {}).get("retry") or {}), "attempts": retry_attempts},
    }
    for field, (kind, place) in named.items():
        data = {field: place} | ({} if payload is None and kind == "http" else {"payload": payload})
        chosen["callback"] = {"type": kind, "data": data}
    whole = {**(body or {}), **{name: value for name, value in chosen.items() if value}}
    more = {name: value for name, value in (("headers", dict(headers)), ("secret", secret)) if value}
    if more and isinstance(callback := whole["callback"], dict):
        whole["callback"] = {**callback, "data": {**(callback.get("data") or {}), **more}}
    return whole


def _check_one_kind(*, instants: Sequence[datetime], cron: str | None, every: int | None, body: dict[str, Any]) -> None:
    kinds = (instants or body.get("schedules"), cron or body.get("cron"), every or body.get("every"))
    if not any(kinds):
        raise click.UsageError("give --at, --cron or --every")
    if sum(map(bool, kinds)) > 1:
        raise click.UsageError("give only one of --at, --cron and --every")
