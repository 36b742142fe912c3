"""The owners of occurrences of messages: a due one feeds a credential, or sends its single messages.

credential/<id>
message/<id of the credential>
"""

CREDENTIAL = "credential"
SINGLES = "message"


def credential_owner(credential_id: str) -> str:
    return f"{CREDENTIAL}/{credential_id}"


def read_credential_owner(owner: str) -> str:
    return _read(owner, CREDENTIAL)


def singles_owner(credential_id: str) -> str:
    return f"{SINGLES}/{credential_id}"


def read_singles_owner(owner: str) -> str:
    return _read(owner, SINGLES)


def _read(owner: str, kind: str) -> str:
    known, _, credential_id = owner.partition("/")
    if known != kind:
        raise ValueError(f"not the owner of a {kind}: {owner!r}")
    return credential_id
