"""Rows of Marathon's tables. Ids are canonical UUIDs, times nanoseconds since the epoch, 0 if unset; JSON stays text,
or is `None` if the row's texts are too large."""

from msgspec import Struct


class Row(Struct, frozen=True, kw_only=True):
    """The columns of every table."""

    id: str
    created_by: str
    created_at: int
    updated_at: int


class AppRow(Row, frozen=True, kw_only=True):
    """A row of `apps`."""

    name: str
    bundle_id: str


class UserRow(Row, frozen=True, kw_only=True):
    """A row of `users`."""

    email: str
    is_admin: bool
    allowed_apps: tuple[str, ...] | None


class TemplateRow(Row, frozen=True, kw_only=True):
    """A row of `templates`."""

    app_id: str
    name: str
    locale: str
    body: str | None
    defaults: str | None


class JobRow(Row, frozen=True, kw_only=True):
    """A row of `jobs`. `status` is empty while a job waits or runs and after it has completed; only `completed_at`
    distinguishes these."""

    app_id: str
    job_group_id: str
    template_name: str
    service: str
    status: str
    localized: bool
    past_time_strategy: str
    csv_path: str
    control_group: float
    control_group_csv_path: str
    total_batches: int
    completed_batches: int
    total_tokens: int
    completed_tokens: int
    starts_at: int
    expires_at: int
    completed_at: int
    context: str | None
    filters: str | None
    metadata: str | None
    feedbacks: str | None
