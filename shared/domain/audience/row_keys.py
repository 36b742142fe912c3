"""The keys of a table's rows: they tell the rows apart at every reading, and nothing else does."""

from shared.domain.audience.devices import Keys
from shared.domain.errors import Invalid


def check_unshared(table: str, keys: Keys) -> None:
    """Raise `Invalid` where rows share a key. Which of them is which could change with each row that comes or goes
    beside them: somebody would be written to twice, and somebody never. The keys ascend."""
    shared = keys[1:][keys[1:] == keys[:-1]]
    if len(shared):
        rule = "a job of messages needs one for each row, to tell whom it has written to"
        raise Invalid(f'several rows of table "{table}" have the seq_id {shared[0]}: {rule}', field="seq_id")
