"""The owners of occurrences of messages: a credential is fed when one is due, or its single messages are sent.

credential/<id>
message/<id of the credential>
"""

CREDENTIAL = "credential"
SINGLES = "message"


def credential_owner(credential_id: str) -> str:
    """The owner of what a credential waits for."""
    return f"{CREDENTIAL}/{credential_id}"


def read_credential_owner(owner: str) -> str:
    """The id that `credential_owner` was given. Raises `ValueError` for anything else."""
    return _read(owner, CREDENTIAL)


def singles_owner(credential_id: str) -> str:
    """The owner of what the single messages of a credential wait for."""
    return f"{SINGLES}/{credential_id}"


def read_singles_owner(owner: str) -> str:
    """The id that `singles_owner` was given. Raises `ValueError` for anything else."""
    return _read(owner, SINGLES)


def _read(owner: str, kind: str) -> str:
    known, _, credential_id = owner.partition("/")
    if known != kind:
        raise ValueError(f"not the owner of a {kind}: {owner!r}")
    return credential_id
