"""Checks of an audience before a job is made, so that the job does not fail half-way."""

from collections.abc import Sequence

import structlog

from shared.audience import statements
from shared.audience.asking import Statement, Tables
from shared.audience.connections import Connections
from shared.audience.tables import USER, Table
from shared.domain.audience.audiences import Condition
from shared.domain.errors import Invalid

log = structlog.get_logger(__name__)


async def check(
    connections: Connections,
    tables: Tables,
    table: str,
    wanted: Sequence[Condition],
    walks: str,
    statement: Statement = statements.read,
) -> None:
    """Raise `Invalid` if the table is missing, lacks what `tables` need, or has no users that a file can name (field
    `app`), or if a filter has no column or an incomparable value (`filters.<key>`). The statement that will read the
    table is tried."""
    known = await tables.describe(table)
    if walks == USER:
        known.user_type()
    if not known.columns[walks].indexed:
        log.warning("push table lacks an index", table=table, column=walks)
    for condition in wanted:
        await _probe(connections, known, condition)
    await connections.fetch(statement(known, wanted), 0, 0, 1, *statements.arguments(wanted))


async def _probe(connections: Connections, table: Table, condition: Condition) -> None:
    column_type = "text" if condition.folded else table.type_of(condition)
    try:
        await connections.fetch(statements.probe(column_type), list(condition.values))
    except Invalid as error:
        reason = f'column "{condition.column}" ({column_type}) cannot be compared with this value'
        raise Invalid(reason, field=condition.field, value=",".join(condition.values)) from error
