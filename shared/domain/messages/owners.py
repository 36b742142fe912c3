"""The owner of a credential's occurrences: it is fed when one is due.

credential/<id>
"""

CREDENTIAL = "credential"


def credential_owner(credential_id: str) -> str:
    """The owner of what a credential waits for."""
    return f"{CREDENTIAL}/{credential_id}"


def read_credential_owner(owner: str) -> str:
    """What `credential_owner` was given. Raises `ValueError` for anything else."""
    kind, _, credential_id = owner.partition("/")
    if kind != CREDENTIAL:
        raise ValueError(f"not the owner of a {CREDENTIAL}: {owner!r}")
    return credential_id
