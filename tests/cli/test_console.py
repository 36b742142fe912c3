"""The verbs of operators: what they draw of answers as the console's routes give them."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Program
from tests.cli.test_hostile import EVIL, answering, assert_harmless, http

AT = "2030-01-01T12:00:00.000Z"
QUEUE = {
    "name": "push.batch", "ready": 1_234, "unacked": 8, "consumers": 2, "dead": 3, "publishRate": 10.5,
    "deliverRate": 9.0,
}  # fmt: skip
PROCESS = {
    "id": "01a2067d-4597-7b47-9fed-eebfbbc1d068", "roles": ["worker"], "host": "node-1", "version": "0.2.0",
    "startedAt": AT, "seenAt": AT, "state": "silent", "phase": "serving", "settingsDigest": "d",
    "failingChecks": ["kafka"],
    "inHand": [{"what": "batch", "id": "b", "since": AT}], "inHandCount": 21,
    "lanes": {"idle": 1}, "loopLagSeconds": 0.1, "memoryBytes": 314_572_800, "clockSkewSeconds": 0.0,
    "feedbackLagRecords": 0,
}  # fmt: skip
SIGN = {
    "name": "BatchesStandStill", "severity": "page", "sentence": "Batches wait.",
    "seen": "a batch has waited for 6 minutes",
    "remedy": "carillon processes list", "since": AT,
}  # fmt: skip
MINUTE = {
    "at": AT, "recipients": {"sent": 700, "failed": 2}, "messages": {"accepted": 41, "refused": 3},
    "deliveries": {"success": 1},
    "fired": {"http/fired": 17, "rabbitmq/fired": 2, "http/failed": 90, "http/unanswered": 8}, "lateness": {},
    "retries": 90, "deadLetters": 1, "requests": 5, "serverErrors": 0, "feedback": 0,
}  # fmt: skip
OVERVIEW: dict[str, Any] = {
    "asOf": AT, "verdict": "well", "signs": [], "attention": [], "unknown": [],
    "jobs": {"open": {"running": 2, "paused": 0}, "paused": [], "running": [], "waiting": []},
    "deadLetters": 12, "queues": [QUEUE], "processes": [PROCESS], "partial": False,
    "minutes": [MINUTE, {"at": AT, "recipients": {}, "messages": {}, "deliveries": {}, "fired": {}}],
}  # fmt: skip
BULK: dict[str, Any] = {
    "id": "01a2067d-4597-7b47-9fed-eebfbbc1d068", "act": "job.stop", "filter": {"app": "a"}, "reason": "wrong",
    "state": "running", "matched": 10, "done": 4, "skipped": 0, "failed": 0, "failures": [], "failure": "",
    "createdBy": "ana@example.com", "createdAt": AT,
}  # fmt: skip
BATCH = {
    "ordinal": 7, "state": "failed", "zone": "+0100", "planned": 10_000, "sent": 0, "failed": 10_000, "skipped": 0,
    "heldOut": 0, "unknown": 0, "attempts": 3, "error": "not-taken", "reasons": {}, "changedAt": AT,
}  # fmt: skip


async def test_all_being_well_is_0_and_one_screen(bare: Program) -> None:
    async with answering(http(OVERVIEW)) as url:
        ended = await bare.done("status", "--utc", CARILLON_TARGET=url)
    assert ended.out.startswith("All is well.  As of 2030-01-01 12:00:00Z.\n")
    for words in (
        "2 running",
        "dead letters  12",
        "700 pushes, 41 messages, 19 scheduled calls, 1 delivery",
        "push.batch",
        "worker",
    ):
        assert words in ended.out
    assert ended.out.count("\n") < 24


async def test_a_minute_tells_pushes_messages_and_the_calls_that_arrived(bare: Program) -> None:
    async with answering(http([MINUTE])) as url:
        head, row, *_ = (await bare.done("minutes", "list", "--utc", CARILLON_TARGET=url)).out.splitlines()
    assert head.split() == [
        "FROM", "PUSHES", "MESSAGES", "CALLS", "DELIVERIES", "FAILED", "RETRIES", "DEAD", "REQUESTS", "5XX", "FEEDBACK",
    ]  # fmt: skip
    assert row.split()[-10:] == ["700", "41", "19", "1", "5", "90", "1", "5", "0", "0"]


@pytest.mark.parametrize("verdict", ["ailing", "unknown"])
async def test_what_is_not_well_is_9_with_what_to_type(bare: Program, verdict: str) -> None:
    unknown = [{"what": "queues", "reason": "the management API does not answer", "since": AT}]
    overview = OVERVIEW | {"verdict": verdict, "signs": [SIGN], "unknown": unknown}
    async with answering(http(overview)) as url:
        ended = await bare.run("status", CARILLON_TARGET=url)
        quiet = await bare.run("status", "-q", CARILLON_TARGET=url)
        as_json = await bare.run("status", "--json", CARILLON_TARGET=url)
    assert [each.code for each in (ended, quiet, as_json)] == [9, 9, 9]
    for words in (
        "BatchesStandStill",
        "a batch has waited for 6 minutes. Batches wait.",
        "carillon processes list",
        "does not answer",
    ):
        assert words in ended.out
    assert quiet.out == f"{verdict}\n"
    assert as_json.json == overview


@pytest.mark.parametrize(
    ("words", "answer", "shown"),
    [
        (("processes", "list"), [PROCESS], ("node-1", "silent", "300", "kafka")),
        (("queues", "list"), [QUEUE], ("push.batch", "1,234", "10.5")),
        (("bulk", "list"), [BULK], ("job.stop", "running", "ana@example.com")),
        (("jobs", "batches", BULK["id"], "--app", BULK["id"]), [BATCH], ("+0100", "10,000", "not-taken")),
    ],
)
async def test_a_list_is_drawn_and_printed(
    bare: Program, words: tuple[str, ...], answer: list[Any], shown: tuple[str, ...]
) -> None:
    async with answering(http(answer)) as url:
        drawn = await bare.done(*words, CARILLON_TARGET=url)
        printed = await bare.done(*words, "--json", CARILLON_TARGET=url)
    assert all(text in drawn.out for text in shown), drawn.out
    assert printed.lines == answer


async def test_a_bulk_action_is_watched_to_its_end(bare: Program) -> None:
    over = BULK | {"state": "done", "done": 9, "failed": 1, "failures": [{"id": "x", "reason": "gone"}]}
    async with answering(http([BULK]), http(BULK), http(over)) as url:
        ended = await bare.run("bulk", "watch", BULK["id"][:9], CARILLON_TARGET=url)
    first, last, *_ = ended.err.splitlines()
    assert "4 of 10" in first
    assert last.endswith("10 of 10  1 failed")
    assert "x: gone" in ended.out
    assert ended.code == 1


async def test_a_bulk_action_begins_once_its_figures_are_confirmed(bare: Program) -> None:
    figures = {"act": "job.stop", "filter": {}, "matched": 3, "devicesNotReached": 1_200_000, "unplanned": 0}
    words = ("bulk", "start", "job.stop", "--filter", "status=running")
    async with answering(http(figures), http(BULK, "202 Accepted")) as url:
        unasked = await bare.run(*words, "--reason", "wrong", CARILLON_TARGET=url)
        done = await bare.run(*words, "--reason", "wrong", "--yes", "-q", CARILLON_TARGET=url)
    assert unasked.code == 2
    assert "This does job.stop to 3 things; 1,200,000 devices will not be reached." in unasked.err
    assert (done.code, done.out) == (0, f"{BULK['id']}\n")
    assert (await bare.run(*words, "--yes", CARILLON_TARGET=url)).code == 2  # no reason


def body_of(request: bytes) -> Any:
    return json.loads(request.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(("given", "most"), [((), 3), (("--at-most", "7"), 7)])
async def test_no_more_is_done_than_was_told_unless_somebody_says_so(
    bare: Program, given: tuple[str, ...], most: int
) -> None:
    figures = {"matched": 3, "devicesNotReached": None, "unplanned": None}
    asked: list[bytes] = []
    words = ("bulk", "start", "schedule.pause", "--filter", "prefix=a", "--reason", "a test", "--yes")
    async with answering(http(figures), http(BULK, "202 Accepted"), asked=asked) as url:
        await bare.done(*words, *given, CARILLON_TARGET=url)
    _, started = asked
    assert body_of(started)["atMost"] == most


async def test_where_the_api_counts_no_further_somebody_says_how_many_it_may_be(bare: Program) -> None:
    figures = {"matched": 1_000_000, "devicesNotReached": None, "unplanned": None}
    asked: list[bytes] = []
    words = ("bulk", "start", "schedule.pause", "--filter", "prefix=a", "--reason", "a test", "--yes")
    async with answering(http(figures), http(BULK, "202 Accepted"), asked=asked) as url:
        ended = await bare.run(*words, CARILLON_TARGET=url)
        assert (ended.code, "--at-most" in ended.err, len(asked)) == (2, True, 1)
    async with answering(http(figures), http(BULK, "202 Accepted"), asked=asked) as url:
        await bare.done(*words, "--at-most", "5000000", CARILLON_TARGET=url)
    assert body_of(asked[-1])["atMost"] == 5_000_000


async def test_jobs_that_are_not_planned_are_told_before_they_are_stopped(bare: Program) -> None:
    figures = {"matched": 3, "devicesNotReached": 0, "unplanned": 2}
    words = ("bulk", "start", "job.stop", "--filter", "status=running", "--reason", "wrong")
    async with answering(http(figures)) as url:
        ended = await bare.run(*words, CARILLON_TARGET=url)
    assert "3 things; 2 of the jobs are not planned to their end." in ended.err


async def test_the_only_app_needs_no_name(bare: Program) -> None:
    app, asked = {"id": BULK["id"], "name": "game"}, list[bytes]()
    async with answering(http([app]), http([]), asked=asked) as url:
        await bare.done("templates", "list", CARILLON_TARGET=url)
    assert f"/apps/{app['id']}/templates" in asked[-1].decode()


async def test_after_a_rotation_the_old_secret_is_good_for_nothing(bare: Program) -> None:
    token, asked = {"id": BULK["id"], "name": "ci", "token": "carillon_x"}, list[bytes]()
    async with answering(http([token]), http(token), asked=asked) as url:
        await bare.done("tokens", "rotate", "ci", CARILLON_TARGET=url)
    assert body_of(asked[-1]) == {"overlapSeconds": 0}


async def test_what_is_drawn_of_them_is_harmless(bare: Program) -> None:
    evil = json.loads(
        json.dumps(OVERVIEW | {"signs": [SIGN], "verdict": "ailing"}).replace('"worker"', json.dumps(EVIL))
    )
    evil["signs"][0] |= {"sentence": EVIL, "remedy": EVIL, "seen": EVIL, "name": EVIL, "severity": EVIL}
    evil["unknown"] = [{"what": EVIL, "reason": EVIL, "since": AT}]
    async with answering(http(evil)) as url:
        for how in ((), ("--json",)):
            ended = await bare.run("status", *how, CARILLON_TARGET=url)
            assert_harmless(ended.out + ended.err)
            assert ended.code == 9
