"""`client.bulk_actions`: one act on all that a filter matches."""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from carillon.calls import CONFLICT, PAGE_SIZE, M, Resource, call, listing
from carillon.values import encode
from carillon.wire import Short

BulkAct = Literal[
    "dead-letter.retry",
    "dead-letter.discard",
    "schedule.pause",
    "schedule.resume",
    "schedule.delete",
    "job.pause",
    "job.resume",
    "job.stop",
]


class BulkFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which things; at least one field is needed. Dead letters: of a `namespace` (`*` for all), a `key`, an `error`.
    Schedules: of a `namespace`, whose keys begin with `prefix`, in a `state`, with a `label` (`team:billing`; of
    several, joined by commas, all are needed). Jobs: of the `app` with this id, in a `status`, with exactly these
    `template` names (joined by commas), made by the caller that `by` names."""

    namespace: str | None = None
    key: str | None = None
    error: str | None = None
    prefix: str | None = None
    state: str | None = None
    label: str | None = None
    app: str | None = None
    status: str | None = None
    template: str | None = None
    by: str | None = None


class BulkFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a bulk action. For stopped jobs, `devices_not_reached` is the number of devices that would get
    nothing, as far as the jobs are planned; `unplanned` jobs are not. Both are `None` for other acts, and if nothing
    was counted."""

    matched: int
    devices_not_reached: int | None = None
    unplanned: int | None = None
    act: str = ""
    filter: BulkFilter = BulkFilter()


class BulkFailure(Struct, frozen=True, kw_only=True):
    """A thing that could not be acted on, and why."""

    id: str
    reason: str


class BulkAction(Short, frozen=True, kw_only=True, rename="camel"):
    """A bulk action. `state` is `waiting`, `running`, `done`, `cancelled` or `failed`. `matched` things were there when
    it was made; of these, `done`, `skipped` (there was nothing to do) and `failed` count those that ended. `redacted`
    says that the filter's error and the reasons of failures are left out: the caller is a viewer."""

    id: str
    act: str
    filter: BulkFilter
    reason: str = ""
    state: str
    matched: int
    done: int
    failed: int
    skipped: int
    failures: tuple[BulkFailure, ...] = ()
    failure: str = ""
    created_by: str
    created_at: datetime
    changed_at: datetime | None = None
    ended_at: datetime | None = None
    cancelled_by: str = ""
    redacted: bool = False


class BulkActions(Resource[M]):
    """The bulk actions that the caller may see. All methods raise `CarillonError`."""

    @call
    async def dry_run(self, act: BulkAct, filter: BulkFilter) -> BulkFigures:
        """Figures of what an action would do; nothing is done. Raises `Invalid`, `Forbidden`."""
        content = encode({**_body(act, filter), "reason": "a dry run"})
        return await self._post(BulkFigures, "bulk-actions", query={"dryRun": "true"}, content=content)

    @call
    async def create(
        self, act: BulkAct, filter: BulkFilter, *, reason: str, at_most: int | None = None, idempotency_key: str = ""
    ) -> BulkAction:
        """Do something to all that a filter matches; workers do it from now on. `get` tells how far they are.

        Raises:
            Invalid: the filter names nothing, or what these things do not have.
            Forbidden: the caller may not do this to all that it may match.
            Conflict: more than `at_most` match, so nothing is done.
        """
        body = {**_body(act, filter), "reason": reason, **({} if at_most is None else {"atMost": at_most})}
        return await self._post(
            BulkAction, "bulk-actions", content=encode(body), idempotency_key=idempotency_key, reason=reason
        )

    @call
    async def get(self, action_id: str) -> BulkAction:
        """An action, and how far it is. Raises `NotFound`."""
        return await self._get(BulkAction, "bulk-actions", action_id)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[BulkAction]:
        """The actions, the newest first; read page by page."""
        return self._list(list[BulkAction], "bulk-actions", limit=limit, page_size=page_size)

    @call
    async def cancel(self, action_id: str, *, reason: str = "") -> BulkAction:
        """Leave what is not done yet; what is done stays done. Raises `NotFound`, `Conflict` where it is over."""
        answer = await self._call("POST", "bulk-actions", action_id, "cancel", reason=reason, done_before=CONFLICT)
        return await self._settle_move(
            BulkAction, "bulk-actions", action_id, answer=answer, is_moved=lambda action: action.state == "cancelled"
        )


def _body(act: BulkAct, filter: BulkFilter) -> Mapping[str, Any]:
    return {"act": act, "filter": filter}
