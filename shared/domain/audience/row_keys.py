"""The keys of a table's rows, which alone identify the rows at every reading."""

from shared.domain.audience.devices import Keys
from shared.domain.errors import Invalid


def check_unshared(table: str, keys: Keys) -> None:
    """Raise `Invalid` if rows share a key. Their order could change with other rows, so that one recipient would get
    two messages, and another none. The keys ascend."""
    shared = keys[1:][keys[1:] == keys[:-1]]
    if len(shared):
        rule = "a job of messages needs one for each row, to tell whom it has written to"
        raise Invalid(f'several rows of table "{table}" have the seq_id {shared[0]}: {rule}', field="seq_id")
