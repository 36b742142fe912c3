"""The statements that read Marathon's tables, and the columns that they need.

Only constants of this module become part of a statement's text.
"""

# ruff: noqa: S608 - as the docstring says

from collections.abc import Sequence

MAX_JSON_BYTES = 2**20
"""The most JSON of one row: the limit of one request to Carillon's API."""

_NO_UUID = "00000000-0000-0000-0000-000000000000"
_ALL = ("id", "created_by", "created_at", "updated_at")
_JOB_JSON = ("context", "filters", "metadata", "feedbacks")
_JOB_TEXTS = ("service", "status", "past_time_strategy", "csv_path", "control_group_csv_path")
_JOB_NUMBERS = (
    "total_batches",
    "completed_batches",
    "total_tokens",
    "completed_tokens",
    "starts_at",
    "expires_at",
    "completed_at",
)

NEEDED: dict[str, frozenset[str]] = {
    "apps": frozenset({*_ALL, "name", "bundle_id"}),
    "users": frozenset({*_ALL, "email", "is_admin", "allowed_apps"}),
    "templates": frozenset({*_ALL, "app_id", "name", "locale", "body", "defaults"}),
    "jobs": frozenset(
        {*_ALL, "app_id", "job_group_id", "template_name", "localized", "control_group"}
        | {*_JOB_JSON, *_JOB_TEXTS, *_JOB_NUMBERS}
    ),
}
"""The tables, and the columns of each that the statements use."""

COLUMNS = """
SELECT c.relname::text AS relation, array_agg(a.attname::text) AS columns
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE c.relname = ANY($1::text[]) AND c.relkind IN ('r', 'p', 'v') AND pg_catalog.pg_table_is_visible(c.oid)
      AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.relname"""

COUNTS = "SELECT " + ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in NEEDED)

_COMMON = """id::text, coalesce(created_by, '') AS created_by,
       coalesce(created_at, 0)::bigint AS created_at, coalesce(updated_at, 0)::bigint AS updated_at"""


def _json(columns: Sequence[str]) -> str:
    """The columns as JSON text, each NULL if they are too large together."""
    texts = {column: f"coalesce({column}::text, '{{}}')" for column in columns}
    size = " + ".join(f"octet_length({text})" for text in texts.values())
    return ", ".join(
        f"CASE WHEN {size} <= {MAX_JSON_BYTES} THEN {text} END AS {column}" for column, text in texts.items()
    )


def _texts(columns: Sequence[str]) -> str:
    return ", ".join(f"coalesce({column}, '') AS {column}" for column in columns)


def _numbers(columns: Sequence[str]) -> str:
    return ", ".join(f"coalesce({column}, 0)::bigint AS {column}" for column in columns)


APPS = f"SELECT {_COMMON}, name, bundle_id FROM apps ORDER BY id"

USERS = f"SELECT {_COMMON}, email, is_admin, allowed_apps::text[] AS allowed_apps FROM users ORDER BY id"

TEMPLATES = f"""
SELECT {_COMMON}, app_id::text, name, locale, {_json(("body", "defaults"))}
FROM templates ORDER BY id"""

# As text, a share of type `real` is the number that was meant: 0.2, not 0.20000000298.
JOBS = f"""
SELECT {_COMMON}, app_id::text, coalesce(job_group_id::text, '{_NO_UUID}') AS job_group_id, template_name,
       coalesce(localized, false) AS localized, coalesce(control_group, 0)::text::float8 AS control_group,
       {_texts(_JOB_TEXTS)}, {_numbers(_JOB_NUMBERS)}, {_json(_JOB_JSON)}
FROM jobs ORDER BY id"""
