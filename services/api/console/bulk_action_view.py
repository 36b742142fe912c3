"""Bulk actions as the API takes and shows them."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from services.api.http.wire import Timestamp, hide
from shared.domain.clock.schedules import ScheduleState
from shared.domain.console.bulk_actions import BulkAct, BulkAction, BulkFilter, BulkState
from shared.domain.instants import format_instant, format_maybe
from shared.domain.jobs.jobs import JobStatus

# An empty text is refused: a filter that was meant must not match everything.
_Text = Annotated[str, Meta(min_length=1)] | UnsetType


class BulkFilterBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which things. Dead letters: of a `namespace` (`*` for all), a `key`, an `error`. Schedules: of a `namespace`,
    with keys that begin with `prefix`, in a `state`, with a `label` (`team:billing`; of several, joined by commas, all
    are needed); only those that fire are paused, and only paused ones resumed.
    Jobs: of the app with this id, in a `status`, with exactly these `template` names, made `by` somebody. Without a
    namespace, the caller's own. At least one of these is needed."""

    namespace: _Text = UNSET
    key: _Text = UNSET
    error: _Text = UNSET
    prefix: _Text = UNSET
    state: ScheduleState | UnsetType = UNSET
    label: _Text = UNSET
    app: _Text = UNSET
    status: JobStatus | UnsetType = UNSET
    template: _Text = UNSET
    by: _Text = UNSET


class BulkActionBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An act on all things that the filter matches, and its reason."""

    act: BulkAct
    filter: BulkFilterBody
    reason: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 1_000})]
    at_most: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="If more things match, nothing is done: 409 with the figure."),
    ] = None


class BulkFiguresView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a bulk action. `matched` ends at a million. For stopped jobs, `devicesNotReached` is the number of
    devices that would get nothing, as far as the jobs are planned; `unplanned` jobs are not. Both are `null` for other
    acts, and for over 500 jobs."""

    act: BulkAct
    filter: BulkFilterBody
    matched: int
    devices_not_reached: int | None
    unplanned: int | None


class BulkFailureView(Struct, frozen=True):
    """A thing that could not be acted on, and why."""

    id: str
    reason: str


class BulkActionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A bulk action. `matched` were there when it was made; `done`, `skipped` (there was nothing to do) and `failed`
    are what workers have told. They are a page short where a worker died in the middle of one. `failures` has at most
    100. `redacted` says that the filter's error and the failures' reasons are left out: the caller is a viewer."""

    id: str
    act: BulkAct
    filter: BulkFilterBody
    reason: str
    state: BulkState
    matched: int
    done: int
    skipped: int
    failed: int
    failures: list[BulkFailureView]
    failure: str
    created_by: str
    created_at: Timestamp
    changed_at: Timestamp | None
    ended_at: Timestamp | None
    cancelled_by: str
    redacted: bool = False


body_decoder = msgspec.json.Decoder(BulkActionBody)


def filter_of(body: BulkFilterBody) -> BulkFilter:
    """The filter that is meant."""
    return BulkFilter(**{name: value for name, value in asdict(body).items() if value is not UNSET})


def filter_view(filter: BulkFilter) -> BulkFilterBody:
    """The filter as it was asked for."""
    return msgspec.convert({name: value for name, value in asdict(filter).items() if value}, BulkFilterBody)


def bulk_action_view(action: BulkAction, *, personal: bool = True) -> BulkActionView:
    """A bulk action as it is shown, without personal data unless `personal`: an error may hold what a target got."""
    filter = action.filter if personal else replace(action.filter, error=hide(action.filter.error))
    return BulkActionView(
        id=action.id,
        act=action.act,
        filter=filter_view(filter),
        reason=action.reason,
        state=action.state,
        matched=action.matched,
        done=action.done,
        skipped=action.skipped,
        failed=action.failed,
        failures=[
            BulkFailureView(failure.id, failure.reason if personal else hide(failure.reason))
            for failure in action.failures
        ],
        failure=action.failure,
        created_by=action.created_by,
        created_at=format_instant(action.created_at),
        changed_at=format_maybe(action.changed_at),
        ended_at=format_maybe(action.ended_at),
        cancelled_by=action.cancelled_by,
        redacted=not personal,
    )
