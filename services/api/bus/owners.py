"""Whose something is, as others see it: the namespace of a person is a mail address."""

from shared.domain.accounts.callers import Caller, user_namespace

PERSON = "user"
"""The word that stands for the namespace of another person."""

_USER = user_namespace("")


def show_owner(namespace: str, caller: Caller) -> str:
    """A namespace for this caller: a person's is told to that person and to admins."""
    is_told = caller.is_admin or caller.namespace == namespace or not namespace.startswith(_USER)
    return namespace if is_told else PERSON
