"""Recipients: the address of each in its normal form, or why it is none.

Two spellings of one address have one normal form. A phone number is read by the library `phonenumbers`, as somebody in
the default region would dial it, and becomes E.164 (`+6591234567`); one counts by its length, as new prefixes come more
often than new versions of the library. A mail address has its domain in lower case. Tokens and all other addresses stay
as they are. Blanks and zero-width characters around an address are never a part of it.

**Repeats.** Whoever stands twice in an audience is written to once. The planner finds that out: it takes a hash of 64
bits of each normal form (`hashes_of(ids, repeat_form(...))` in `shared.domain.audience.repeats`, the landed one, which
no writer of a file can aim at) and writes into the cut which rows repeat one before them. The worker reads the rows of
its cut anew and normalises by the same function, `read_address`, before it sends: so what the planner took for one
recipient is one message, and its address is the one that the hash was made of. The hash itself is never written down.
"""

import re
from collections.abc import Callable
from typing import assert_never

import phonenumbers
from msgspec import Struct
from phonenumbers import NumberParseException, PhoneNumberFormat, ValidationResult

from shared.domain.audience.column_names import strip_unseen
from shared.domain.audience.user_ids import Normalize
from shared.domain.errors import Invalid
from shared.domain.messages.channels import Channel

ADDRESS_CHARACTERS = 1_024
_MAIL_CHARACTERS, _LOCAL_CHARACTERS = 254, 64  # RFC 5321

_PLUSES = "+\uff0b"
# How people write numbers. The library would find one in any prose.
_DIALLED = re.compile(rf"[{_PLUSES}]?[\d\s().\-/\u2010-\u2015\u2212]+")
# Neither quoted local parts nor literals: nobody has one, and both serve to smuggle.
_LOCAL = re.compile(r"""[^\s\x00-\x1f\x7f"(),.:;<>@[\]\\]+(?:\.[^\s\x00-\x1f\x7f"(),.:;<>@[\]\\]+)*""")
_LABEL = r"[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})+")

HIDDEN = "…"
"""What stands in the place of what is not shown."""


class Malformed(Struct, frozen=True):
    """An address that is none. `why` says what is wrong and shows nothing of it."""

    why: str


Address = str | Malformed
"""A normal form, or why there is none."""

ReadAddress = Callable[[str], Address]

_BLANK = Malformed("it is blank")
_TOO_LONG = Malformed(f"it has more than {ADDRESS_CHARACTERS:,} characters")
_NO_NUMBER = Malformed("it is no phone number")
_NO_COUNTRY = Malformed(
    "it does not begin with + and a country code, and no default region says which country it is of"
)
_UNKNOWN_COUNTRY = Malformed("no country has its country code")
_SHORT_NUMBER = Malformed("the phone number is too short")
_LONG_NUMBER = Malformed("the phone number is too long")
_NO_LENGTH = Malformed("no phone number of its country has this length")
_NO_MAIL = Malformed("it is no mail address: one @ is needed, with something before and behind it")
_LONG_MAIL = Malformed(f"a mail address has at most {_MAIL_CHARACTERS} characters, {_LOCAL_CHARACTERS} before the @")
_BAD_LOCAL = Malformed("there are characters before the @ that a mail address does not have there")
_BAD_DOMAIN = Malformed("what stands behind the @ is no domain")


def check_region(region: str) -> str:
    """The region in upper case, as numbers are read in; `""` stands for none. Raises `Invalid`."""
    known = region.upper()
    if region and (not region.isascii() or known not in phonenumbers.SUPPORTED_REGIONS):
        rule = "it must be a country's two letters, such as SG"
        raise Invalid(f"invalid defaultRegion: {rule}", field="defaultRegion", value=region)
    return known


def address_reader(channel: Channel, default_region: str = "") -> ReadAddress:
    """What reads the addresses of this channel; `default_region` is one that `check_region` gave."""

    def read(text: str) -> Address:
        return read_address(text, channel, default_region)

    return read


def read_address(text: str, channel: Channel, default_region: str = "") -> Address:
    """The normal form of an address, or why there is none."""
    address = strip_unseen(text)
    if not address:
        return _BLANK
    if len(address) > ADDRESS_CHARACTERS:
        return _TOO_LONG
    match channel:
        case Channel.SMS:
            return _read_number(address, default_region)
        case Channel.MAIL:
            return _read_mail(address)
        case Channel.PUSH | Channel.OTHER:
            return address
        case _:
            assert_never(channel)


def spellings_of(written: str) -> set[str]:
    """What an address may stand as in the ledger, by any channel, and as it was written: of malformed ones there is
    nothing else."""
    forms = (read_address(written, channel) for channel in Channel)
    return {written, *(form for form in forms if isinstance(form, str))}


def repeat_form(channel: Channel, default_region: str = "") -> Normalize:
    """What repeats are told by: the normal form; of what has none, the text itself, which is no other's normal form."""
    read = address_reader(channel, default_region)

    def form(spelled: bytes) -> bytes:
        text = str(spelled, "utf-8")
        address = read(text)
        return b"\0" + strip_unseen(text).encode() if isinstance(address, Malformed) else address.encode()

    return form


def mask(address: str) -> str:
    """The address with so little of it that it cannot be written to: for a log, a detail, the audit."""
    local, at, domain = address.rpartition("@")
    if at and local:
        return f"{local[0]}{HIDDEN}@{domain}"
    return f"{HIDDEN}{address[-2:]}" if len(address) > 4 else HIDDEN


def _read_number(address: str, default_region: str) -> Address:
    if not _DIALLED.fullmatch(address):
        return _NO_NUMBER
    try:
        number = phonenumbers.parse(address, default_region or None)
    except NumberParseException as error:
        return _describe_unreadable(error, address)
    match phonenumbers.is_possible_number_with_reason(number):
        case ValidationResult.IS_POSSIBLE:
            return phonenumbers.format_number(number, PhoneNumberFormat.E164)
        case ValidationResult.TOO_SHORT | ValidationResult.IS_POSSIBLE_LOCAL_ONLY:
            return _SHORT_NUMBER
        case ValidationResult.TOO_LONG:
            return _LONG_NUMBER
        case _:
            return _NO_LENGTH


def _describe_unreadable(error: NumberParseException, address: str) -> Malformed:
    match error.error_type:
        case NumberParseException.INVALID_COUNTRY_CODE:
            return _UNKNOWN_COUNTRY if address[0] in _PLUSES else _NO_COUNTRY
        case NumberParseException.TOO_LONG:
            return _LONG_NUMBER
        case NumberParseException.TOO_SHORT_NSN | NumberParseException.TOO_SHORT_AFTER_IDD:
            return _SHORT_NUMBER
        case _:
            return _NO_NUMBER


def _read_mail(address: str) -> Address:
    local, at, domain = address.partition("@")
    if not (local and at and domain) or "@" in domain:
        return _NO_MAIL
    if len(address) > _MAIL_CHARACTERS or len(local) > _LOCAL_CHARACTERS:
        return _LONG_MAIL
    if not _LOCAL.fullmatch(local):
        return _BAD_LOCAL
    if not _DOMAIN.fullmatch(domain):
        return _BAD_DOMAIN
    return f"{local}@{domain.lower()}"
