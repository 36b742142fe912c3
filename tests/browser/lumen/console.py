"""The last hour of Lumen's deployment, and its processes."""

from datetime import datetime, timedelta
from math import sin

from shared.console.rules.bulk_actions import BulkAct, BulkAction, BulkFailure, BulkFilter, BulkState
from shared.console.rules.processes import RunningProcess
from shared.core.instants import ns
from shared.store import Store
from tests.browser.lumen.ids import next_id
from tests.services.api.client import Client

_PROCESSES = {"api": 3, "feedback-bus": 2, "feedback-answers": 1, "scheduler": 2, "worker": 6}
_PUSHES = ((0, 560_000), (23, 410_000), (46, 770_000))
"""The large ones: how many minutes ago each was at its highest, and how high that was."""
_LATE = {"5000": 0.5, "10000": 0.28, "25000": 0.15, "50000": 0.06, "100000": 0.01}
"""The share of what fired, by the ends of the buckets in microseconds."""
_USERS = (("ana@lumen.example", "viewer"), ("bea@lumen.example", "operator"), ("mario@lumen.example", "operator"))
_ACTIONS: tuple[tuple[BulkAct, BulkFilter, str, int], ...] = (
    (BulkAct.DELETE_SCHEDULES, BulkFilter(prefix="trial.ends.2025"), "these trials are over", 1_240),
    (BulkAct.STOP_JOBS, BulkFilter(template="weekend-offer"), "a wrong price", 3),
    (
        BulkAct.RETRY_LETTERS,
        BulkFilter(error="503 Service Unavailable: billing is being upgraded"),
        "it is back",
        2_310,
    ),
)
"""Act, filter, reason and count of each; the last one is running."""


async def add_hour(store: Store, now: datetime) -> None:
    """An hour of counts, minute by minute."""
    for ago in range(-1, 60):  # the minute to come too: the pictures may be taken in it
        sent = int(90_000 + 40_000 * sin(ago / 3) + sum(_bump(ago, *push) for push in _PUSHES))
        fired = int(5_200 + 1_400 * sin(ago / 7) + (2_600 if ago % 15 == 0 else 0))
        late = {end: int(fired * share) for end, share in _LATE.items()}
        counts: dict[str, int | dict[str, int]] = {
            "recipients": {"sent": sent, "skipped": sent // 250, "failed": 2 if ago % 9 == 0 else 0},
            "fired": {"http/fired": fired, "rabbitmq/fired": fired // 3},
            "lateness": late,
            "requests": 4_000,
        }
        await store.minutes.add(now - timedelta(minutes=ago), counts)


def _bump(ago: int, middle: int, height: int) -> float:
    return height * max(0.0, 1 - ((ago - middle) / 6) ** 2)


async def tell_of_processes(store: Store, now: datetime) -> None:
    """Each tells of itself, as it does every few seconds."""
    for role, count in _PROCESSES.items():
        for number in range(count):
            await store.processes.tell(
                RunningProcess(
                    id=f"{role}-{number}", roles=(role,), host=f"{role}-{number}", version="0.3.0", phase="running",
                    started_at=now - timedelta(days=3), seen_at=now, settings_digest="1", memory_bytes=180_000_000,
                )
            )  # fmt: skip


async def add_people(client: Client, app_id: str) -> str:
    """Those who work with Lumen, and the tokens of its services: the id of a user."""
    made = [await client.post("/users", {"email": email, "roles": {f"app/{app_id}": role}}) for email, role in _USERS]
    for name in ("billing", "warehouse"):
        made += [await client.post("/tokens", {"name": name, "roles": {f"app/{app_id}": "operator"}})]
    assert {reply.status for reply in made} == {201}
    return str(made[1].json["id"])


async def add_actions(store: Store, namespace: str, now: datetime) -> str:
    """Acts on many things at once: the id of the one that is under way."""
    ids = [next_id() for _ in _ACTIONS]
    for number, (act, filter, reason, matched) in enumerate(_ACTIONS):
        at, is_last = now - timedelta(minutes=3 + 55 * (len(_ACTIONS) - 1 - number)), number == len(_ACTIONS) - 1
        failures = tuple(BulkFailure(next_id(), "its schedule is deleted") for _ in range(2 if is_last else 0))
        made = BulkAction(
            id=ids[number], act=act, filter=filter, reason=reason, matched=matched, created_by="bea@lumen.example",
            created_at=at, created_ns=ns(at), namespace=namespace, leased_until=now + timedelta(minutes=5),
            state=BulkState.RUNNING if is_last else BulkState.DONE, open=is_last, failures=failures,
            done=1_496 if is_last else matched, failed=len(failures), changed_at=now,
            ended_at=None if is_last else at + timedelta(seconds=9),
        )  # fmt: skip
        await store.bulk_actions.add(made)
    return ids[-1]
