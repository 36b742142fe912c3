"""Routes that are new in 0.2: what the client sends and what it reads, against a peer that answers as the
API does. `test_every_route.py` holds both against each other.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from aiohttp import web

from carillon import AsyncCarillon, BulkFilter, Conflict, RabbitCallback, Template, Unavailable
from tests.client.test_attempts import Scripted, scripted

pytestmark = pytest.mark.usefixtures("each_client")

NOW = "2030-01-01T00:00:00.000Z"
AT = datetime(2030, 1, 1, tzinfo=UTC)
LETTER = {"id": "l", "namespace": "n", "key": "k", "due": NOW, "died_at": NOW, "attempts": 10, "error": "500"}
PROCESS = {
    "id": "p", "roles": ["worker"], "host": "h", "version": "0.2.0", "state": "silent", "startedAt": NOW, "seenAt": NOW,
    "phase": "running", "settingsDigest": "ab", "failingChecks": ["broker"], "lanes": {"busy": 2},
    "loopLagSeconds": 0.1,    "inHand": [{"what": "send", "id": "b", "since": NOW}], "memoryBytes": 10**8, "anew": True,
}  # fmt: skip
QUEUE = {"name": "push.send", "ready": 3, "unacked": 1, "consumers": 2, "publishRate": 1.5, "deliverRate": 1}
MINUTE = {
    "at": NOW, "seconds": 60, "recipients": {"sent": 5}, "messages": {"accepted": 3}, "fired": {"http/fired": 1},
    "lateness": {"1000": 2}, "retries": 0, "deadLetters": 1, "requests": 7, "serverErrors": 0, "feedback": 3,
}  # fmt: skip
ACTION = {
    "id": "a", "act": "job.stop", "filter": {"by": "x"}, "reason": "wrong", "state": "waiting", "matched": 3, "done": 0,
    "failed": 0, "skipped": 0, "createdBy": "x", "createdAt": NOW,
}  # fmt: skip


class Peer(Scripted):
    """Answers by the script, and keeps the bodies of what it was asked."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*(web.json_response(answer) for answer in answers))
        self.bodies: list[Any] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        content = await request.read()
        self.bodies.append(msgspec.json.decode(content) if content else None)
        return await super().answer(request)

    @property
    def paths(self) -> list[str]:
        return [f"{request.method} {request.path_qs}" for request in self.asked]


async def test_an_overview_is_read_whole() -> None:
    told = {
        "asOf": NOW, "verdict": "ailing",
        "signs": [{"name": "worker.gone", "severity": "page", "sentence": "s", "remedy": "r", "since": NOW}],
        "unknown": [{"what": "queues", "reason": "away"}],
        "jobs": {"open": {"running": 1}, "running": [], "waiting": []},
        "deadLetters": 1, "partial": False,
        "queues": [QUEUE], "processes": [PROCESS], "minutes": [MINUTE], "anew": [],
    }  # fmt: skip
    peer = Peer(told, {"asOf": NOW, "verdict": "unknown"})
    async with scripted(peer) as client:
        seen, bare = await client.overview(), await client.overview()
    assert (seen.as_of, seen.verdict, seen.signs[0].name) == (AT, "ailing", "worker.gone")
    assert [each.what for each in seen.unknown] == ["queues"]
    assert (seen.jobs.open, seen.dead_letters, seen.partial) == ({"running": 1}, 1, False)
    assert (seen.queues[0].publish_rate, seen.processes[0].in_hand[0].since) == (1.5, AT)
    assert (seen.minutes[0].recipients, bare.verdict, bare.signs) == ({"sent": 5}, "unknown", ())


async def test_what_runs_is_listed() -> None:
    peer = Peer([PROCESS], [MINUTE], [QUEUE], [{"name": "a.b", "value": "1", "default": "2", "kind": "rare"}])
    async with scripted(peer) as client:
        assert [each.failing_checks for each in await client.processes()] == [("broker",)]
        assert [each.dead_letters for each in await client.minutes(5)] == [1]
        assert [each.name async for each in client.queues.list()] == ["push.send"]
        assert [each.name for each in await client.settings()] == ["a.b"]
    assert peer.paths == ["GET /processes", "GET /minutes?minutes=5", "GET /queues", "GET /settings"]


async def test_the_inside_of_a_job_is_shown() -> None:
    batch = {"ordinal": 1, "state": "sent", "zone": "rest", "planned": 2, "sent": 2, "reasons": {}, "changedAt": NOW}
    sample = {"templateName": "like", "locale": "en", "devices": 1, "bytes": 9, "record": {}, "failure": ""}
    rate, figures = {"points": [{"at": NOW, "perSecond": 2.5}]}, {"jobs": 1, "devicesNotReached": 7}
    peer = Peer([batch], rate, {"samples": [sample], "maxRecordBytes": 9}, figures, figures, [])
    async with scripted(peer) as client:
        assert [each.planned async for each in client.jobs.batches("app", "job", state="sent")] == [2]
        assert [each.per_second for each in (await client.jobs.read_rate("app", "job")).points] == [2.5]
        assert [each.template_name for each in (await client.jobs.read_samples("app", "job")).samples] == ["like"]
        assert (await client.jobs.dry_run("app", "job", "stop")).devices_not_reached == 7
        assert (await client.groups.dry_run("app", "group", "stop")).jobs == 1
        assert [each async for each in client.jobs.list_all(app_id="app", status="running")] == []
    assert peer.paths == [
        "GET /apps/app/jobs/job/batches?state=sent&limit=100",
        "GET /apps/app/jobs/job/rate",
        "GET /apps/app/jobs/job/samples",
        "PUT /apps/app/jobs/job/stop?dryRun=true",
        "PUT /apps/app/groups/group/stop?dryRun=true",
        "GET /jobs?app=app&status=running&limit=100",
    ]


async def test_a_template_is_rendered_by_its_name_or_as_it_is() -> None:
    told = {"locale": "en", "body": {"alert": "Ana"}, "bytes": 15, "fault": "", "field": "", "valuelessTags": []}
    peer = Peer(told, told | {"body": None, "fault": "too large", "field": "body"})
    template = Template(name="like", locale="en", body={"alert": "{{user}}"})
    async with scripted(peer) as client:
        assert (await client.templates.render("app", "like", locale="pt", context={"user": "Ana"})).body is not None
        assert (await client.templates.render("app", template)).fault == "too large"
    assert peer.paths == ["POST /apps/app/templates/render"] * 2
    assert peer.bodies[0] == {"name": "like", "locale": "pt", "context": {"user": "Ana"}}
    assert peer.bodies[1]["template"]["body"] == {"alert": "{{user}}"}


async def test_a_token_gets_another_secret_once() -> None:
    issued = {
        "id": "t", "name": "billing", "isAdmin": False, "allowedApps": [], "createdBy": "a", "createdAt": 1,
        "roles": {}, "token": "carillon_x", "namespace": "token:t", "expiresAt": NOW, "lastUsedAt": None,
        "previousUntil": NOW,
    }  # fmt: skip
    peer = Peer(issued)
    async with scripted(peer) as client:
        told = await client.tokens.rotate("t", overlap_seconds=60, expires_at=AT)
        with pytest.raises(Unavailable, match="after 1 of 5"):
            await client.tokens.rotate("t", overlap_seconds=60)
    assert (told.namespace, told.expires_at, told.previous_until, told.last_used_at) == ("token:t", AT, AT, None)
    assert peer.bodies == [{"overlapSeconds": 60, "expiresAt": "2030-01-01T00:00:00Z"}, {"overlapSeconds": 60}]


async def test_what_is_due_and_what_died_is_shown() -> None:
    due = {"as_of": NOW, "until": NOW, "instants": [{"namespace": "n", "key": "k", "due": NOW, "at": NOW}]}
    callback = {"type": "rabbitmq", "data": {"queue": "q", "payload": 1}}
    errors = [{"error": "500", "count": 2, "last_died_at": NOW}]
    peer = Peer(due, LETTER | {"callback": callback}, LETTER | {"callback": None}, errors)
    async with scripted(peer) as client:
        found = await client.schedules.find_due(within_seconds=60, namespace="*")
        assert [each.key for each in found.instants] == ["k"]
        assert (await client.dead_letters.get("l")).callback == RabbitCallback(queue="q", payload=1)
        assert (await client.dead_letters.get("l", namespace="*")).callback is None
        assert [each.count for each in await client.dead_letters.count_errors(key="k")] == [2]
    assert peer.paths == [
        "GET /schedules/due?namespace=%2A&within=60",
        "GET /dead-letters/l",
        "GET /dead-letters/l?namespace=%2A",
        "GET /dead-letters/errors?key=k",
    ]


async def test_a_bulk_action_is_tried_made_watched_and_cancelled() -> None:
    figures = {"act": "job.stop", "filter": {"by": "x"}, "matched": 3, "devicesNotReached": 10, "unplanned": 0}
    peer = Peer(figures, ACTION, ACTION | {"state": "running", "done": 1}, [ACTION], ACTION | {"state": "cancelled"})
    mine = BulkFilter(by="x")
    async with scripted(peer) as client:
        assert (await client.bulk_actions.dry_run("job.stop", mine)).devices_not_reached == 10
        made = await client.bulk_actions.create("job.stop", mine, reason="wrong", at_most=5)
        assert (made.matched, made.created_at, made.filter) == (3, AT, mine)
        assert (await client.bulk_actions.get("a")).done == 1
        assert [each.id async for each in client.bulk_actions.list()] == ["a"]
        assert (await client.bulk_actions.cancel("a")).state == "cancelled"
    assert peer.paths[0] == "POST /bulk-actions?dryRun=true"
    assert peer.bodies[:2] == [
        {"act": "job.stop", "filter": {"by": "x"}, "reason": "a dry run"},
        {"act": "job.stop", "filter": {"by": "x"}, "reason": "wrong", "atMost": 5},
    ]


async def cancel(client: AsyncCarillon) -> str:
    return (await client.bulk_actions.cancel("a")).state


async def test_what_a_lost_attempt_cancelled_is_cancelled() -> None:
    over = web.json_response({"reason": "this action is over"}, status=409)
    cancelled, done = (web.json_response(ACTION | {"state": state}) for state in ("cancelled", "done"))
    async with scripted(Scripted(web.Response(status=502), over, cancelled)) as client:
        assert await cancel(client) == "cancelled"
    over = web.json_response({"reason": "this action is over"}, status=409)
    async with scripted(Scripted(web.Response(status=502), over, done)) as client:
        with pytest.raises(Conflict, match="over"):
            await cancel(client)
