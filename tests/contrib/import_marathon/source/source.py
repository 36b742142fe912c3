"""A Marathon database as its published schema makes it, and rows for it."""

import json
import uuid
from typing import Any

import asyncpg

SCHEMA = """
CREATE TABLE apps (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text NOT NULL, bundle_id text NOT NULL,
    created_by text NOT NULL, created_at bigint, updated_at bigint);
CREATE UNIQUE INDEX uix_apps_bundle_id ON apps (bundle_id);
CREATE TABLE templates (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text NOT NULL, locale text NOT NULL,
    defaults jsonb NOT NULL DEFAULT '{}', body jsonb NOT NULL DEFAULT '{}', created_by text NOT NULL,
    app_id uuid NOT NULL CONSTRAINT templates_app_id_apps_id_foreign REFERENCES apps (id) ON DELETE CASCADE,
    created_at bigint, updated_at bigint);
CREATE UNIQUE INDEX name_locale_app ON templates (name, locale, app_id);
CREATE TABLE job_groups (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), app_id uuid NOT NULL REFERENCES apps (id) ON DELETE CASCADE);
CREATE TABLE jobs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), total_batches integer, completed_batches integer NOT NULL DEFAULT 0,
    total_users integer NOT NULL DEFAULT 0, total_tokens integer DEFAULT 0, completed_tokens integer NOT NULL DEFAULT 0,
    db_page_size integer NOT NULL DEFAULT 0, completed_at bigint, expires_at bigint, starts_at bigint,
    context jsonb NOT NULL DEFAULT '{}', filters jsonb NOT NULL DEFAULT '{}', metadata jsonb DEFAULT '{}',
    feedbacks jsonb DEFAULT '{}', service text, status text, past_time_strategy text,
    localized boolean NOT NULL DEFAULT false, csv_path text, control_group real, control_group_csv_path text,
    created_by text, app_id uuid NOT NULL REFERENCES apps (id) ON DELETE CASCADE,
    job_group_id uuid DEFAULT gen_random_uuid(), template_name text NOT NULL, created_at bigint, updated_at bigint);
CREATE TABLE users (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), email text NOT NULL, is_admin boolean NOT NULL, allowed_apps uuid[],
    created_by text NOT NULL, created_at bigint, updated_at bigint);
CREATE UNIQUE INDEX uix_users_email ON users (email);
CREATE TYPE events_status AS ENUM ('fail', 'running', 'success');
CREATE TABLE status (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text NOT NULL,
    job_id uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, created_at bigint, UNIQUE (name, job_id));
CREATE TABLE events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), state events_status NOT NULL, message text NOT NULL,
    status_id uuid NOT NULL REFERENCES status (id) ON DELETE CASCADE, created_at bigint);
"""

DAY_NS = 86_400 * 10**9
PAST = 1_700_000_000_000_000_000


class Source:
    """A Marathon database that a test writes to. What is JSON is given as a value."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.connection = connection

    async def app(self, name: str = "game", **columns: Any) -> str:
        """Its id."""
        common = {"name": name, "bundle_id": f"com.example.a{uuid.uuid4().hex}"}
        return await self._insert("apps", common | columns)

    async def template(self, app_id: str, name: str = "like", locale: str = "en", **columns: Any) -> str:
        """Its id."""
        common = {"app_id": app_id, "name": name, "locale": locale, "body": {"alert": "Hi {{name}}"}}
        return await self._insert("templates", common | columns)

    async def user(self, email: str, **columns: Any) -> str:
        """Its id."""
        return await self._insert("users", {"email": email, "is_admin": False} | columns)

    async def job(self, app_id: str, **columns: Any) -> str:
        """Its id; completed unless the columns say otherwise."""
        common = {"app_id": app_id, "template_name": "like", "service": "apns", "completed_at": PAST + 9}
        return await self._insert("jobs", common | columns)

    async def change(self, table: str, row_id: str, **columns: Any) -> None:
        """Change a row."""
        assignments = ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, 2))
        await self.connection.execute(
            f"UPDATE {table} SET {assignments} WHERE id = $1", uuid.UUID(row_id), *map(_value, columns.values())
        )

    async def _insert(self, table: str, columns: dict[str, Any]) -> str:
        columns = {"created_by": "ana@example.com", "created_at": PAST, "updated_at": PAST + 1} | columns
        places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) RETURNING id::text"
        made: str = await self.connection.fetchval(statement, *map(_value, columns.values()))
        return made


def _value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value
