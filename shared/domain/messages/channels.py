"""The ways by which messages reach recipients; they decide how addresses are read."""

from enum import StrEnum


class Channel(StrEnum):
    """The kind of a provider's addresses."""

    MAIL = "mail"  # a mailbox: name@example.com
    SMS = "sms"  # a phone number in the form of E.164: +6591234567
    PUSH = "push"  # the token of a device
    OTHER = "other"  # the provider's own kind of address
