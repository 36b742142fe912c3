"""Recipients: the normal form of each address, or the reason why it has none.

Two spellings of one address have one normal form. A phone number becomes E.164 (`+6591234567`), without a leading
`whatsapp:`. The library `phonenumbers` reads it as dialled in the default region. Only its length is checked,
because new prefixes come more often than new versions of the library. The domain of a mail address is in readable
form and lower case. A token of APNs, which is hexadecimal, is in lower case; other tokens and addresses stay as they
are. Blanks, zero-width characters and direction marks around an address are removed, and also inside a mail address,
except the joiners of other scripts.

**Repeats.** A person who occurs in an audience twice gets one message. The planner takes a hash of 64 bits of each
normal form (`hashes_of(ids, repeat_form(...))` in `shared.audience.rules.csv_cuts`; a writer of a file cannot
predict it) and stores in the cut which rows repeat an earlier one. The worker reads the rows of its cut again and
normalises by the same function, `read_address`, before it sends. So one recipient of the planner is one message, to
the address of that hash. The hash itself is never stored.
"""

import re
from collections.abc import Callable
from itertools import count
from typing import assert_never
from unicodedata import normalize

import phonenumbers
from msgspec import Struct
from phonenumbers import NumberParseException, PhoneNumber, PhoneNumberFormat, PhoneNumberType, ValidationResult

from shared.audience.rules.columns import ZERO_WIDTH, Normalize, strip_unseen, without_zero_width
from shared.core.errors import Invalid
from shared.core.mail import address_in_ascii, domain_in_ascii, normal_domain
from shared.messages.rules.answers import Channel

_PLUSES = "+\uff0b"
_SCHEME = re.compile(r"\A(?:tel|whatsapp):\s*", re.IGNORECASE)  # RFC 3966; Twilio
# The usual characters of numbers: the library would find one in any prose.
_DIALLED = re.compile(rf"\(?[{_PLUSES}]?[\d\s().\-/\u2010-\u2015\u2212]+")
_FLOAT = re.compile(r"([^.]*\d)\s*\.(0+)(\)?)")  # a spreadsheet read the number as an amount
_SEVERAL = re.compile(r"[^/]*\d\s*/\s*\d{1,2}")  # 1234567/8 is 1234567 and 1234568
_MOBILE = frozenset({PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE})
_NO_NUMBER = "it is no phone number"
_SEVERAL_NUMBERS = "it means several phone numbers: write one"
_NO_COUNTRY = "a number without + and a country code needs a defaultRegion, such as SG"
_UNKNOWN_COUNTRY = "no country has its country code"
_SHORT_NUMBER = "the phone number is too short"
_LONG_NUMBER = "the phone number is too long"
_NO_LENGTH = "no phone number of its country has this length"


class NoNumber(ValueError):
    """The text is no phone number. The message gives the reason, and shows nothing of the text."""


def check_region(region: str) -> str:
    """The region in upper case, for reading numbers; `""` is none."""
    known = region.upper()
    if region and (not region.isascii() or known not in phonenumbers.SUPPORTED_REGIONS):
        rule = "it must be a country's two letters, such as SG"
        raise Invalid(f"invalid defaultRegion: {rule}", field="defaultRegion", value=region)
    return known


def read_number(written: str, default_region: str) -> str:
    """The number in E.164, from a text with or without a scheme."""
    address = _SCHEME.sub("", without_zero_width(written))
    if whole := _FLOAT.fullmatch(address):
        if len(whole[2]) > 2:  # an amount, or a group of digits: ambiguous
            raise NoNumber(_NO_NUMBER)
        address = whole[1] + whole[3]
    if not _DIALLED.fullmatch(address):
        raise NoNumber(_NO_NUMBER)
    if _SEVERAL.fullmatch(address):
        raise NoNumber(_SEVERAL_NUMBERS)
    try:
        number = _parse_number(address, default_region)
    except NumberParseException as error:
        raise NoNumber(_describe_unreadable(error, address)) from None
    match phonenumbers.is_possible_number_with_reason(number):
        case ValidationResult.IS_POSSIBLE:
            return phonenumbers.format_number(number, PhoneNumberFormat.E164)
        case ValidationResult.TOO_SHORT | ValidationResult.IS_POSSIBLE_LOCAL_ONLY:
            raise NoNumber(_SHORT_NUMBER)
        case ValidationResult.TOO_LONG:
            raise NoNumber(_LONG_NUMBER)
        case _:
            raise NoNumber(_NO_LENGTH)


def _parse_number(address: str, default_region: str) -> PhoneNumber:
    """The number as dialled in the region. Digits that begin with the region's own country code and form a number with
    it are read with it, because many files leave out the plus."""
    number = phonenumbers.parse(address, default_region or None)
    digits = phonenumbers.normalize_digits_only(address)
    code = phonenumbers.country_code_for_region(default_region) if default_region else 0
    if any(plus in address for plus in _PLUSES) or not code or not digits.startswith(str(code)):
        return number
    if phonenumbers.national_significant_number(number) != digits:  # the library has read it with the code
        return number
    abroad = phonenumbers.parse(f"+{digits}")
    if phonenumbers.is_valid_number(abroad):
        only_here = phonenumbers.number_type(number) in _MOBILE and phonenumbers.number_type(abroad) not in _MOBILE
        return number if only_here else abroad
    return number if phonenumbers.is_valid_number(number) else abroad


def _describe_unreadable(error: NumberParseException, address: str) -> str:
    match error.error_type:
        case NumberParseException.INVALID_COUNTRY_CODE:
            return _UNKNOWN_COUNTRY if address[0] in _PLUSES else _NO_COUNTRY
        case NumberParseException.TOO_LONG:
            return _LONG_NUMBER
        case NumberParseException.TOO_SHORT_NSN | NumberParseException.TOO_SHORT_AFTER_IDD:
            return _SHORT_NUMBER
        case _:
            return _NO_NUMBER


ADDRESS_CHARACTERS = 1_024
_MAIL_CHARACTERS, _LOCAL_CHARACTERS = 254, 64  # RFC 5321
_MAIL_KINDS = frozenset({"smtp", "ses", "sendgrid"})
APNS_DEVICE = re.compile(r"[0-9A-Fa-f]{8,512}")
"""Tokens that APNs can be asked for, though it may know of none that is so short."""
_APNS_TOKEN = re.compile(r"(?:[0-9a-fA-F]{2}){32,100}")
# Neither quoted local parts nor literals: real addresses have none, and both serve to smuggle.
_LOCAL = re.compile(r"""[^\s\x00-\x1f\x7f"(),.:;<>@[\]\\]+(?:\.[^\s\x00-\x1f\x7f"(),.:;<>@[\]\\]+)*""")
_UNSEEN = {ord(character): None for character in ZERO_WIDTH if character not in "\u200c\u200d"}  # but for joiners
HIDDEN = "…"
"""The mark in place of hidden text."""


class Malformed(Struct, frozen=True):
    why: str


Address = str | Malformed
"""A normal form, or the reason why there is none."""
ReadAddress = Callable[[str], Address]
_BLANK = Malformed("it is blank")
_TOO_LONG = Malformed(f"it has more than {ADDRESS_CHARACTERS:,} characters")
_PLUS_AS_BLANK = re.compile(r"(?:whatsapp:)? \d|\s*[^\s<]+ [^<]*@")
_NOT_ASCII = Malformed("mail servers take no characters beyond ASCII before the @")
_NO_TOKEN = Malformed("a device's token is made of 8 to 512 hexadecimal digits")
_NO_MAIL = Malformed("a mail address has one @, with something before and after it")
_LONG_MAIL = Malformed(f"a mail address has at most {_MAIL_CHARACTERS} characters, {_LOCAL_CHARACTERS} before the @")
_BAD_LOCAL = Malformed("a character or dot before the @ is not allowed there; write the address alone, without a name")
_BAD_DOMAIN = Malformed("the part after the @ is not a domain; write the address alone, without a name")


def address_reader(channel: Channel, default_region: str = "", *, kind: str = "") -> ReadAddress:
    """A reader of this channel's addresses, which refuses those that providers of this `kind` cannot call.
    `default_region` comes from `check_region`."""

    def read(text: str) -> Address:
        return fit_kind(read_address(text, channel, default_region), kind)

    return read


def fit_kind(address: Address, kind: str) -> Address:
    """The address, or the reason why providers of this kind cannot call it."""
    if isinstance(address, Malformed):
        return address
    if kind in _MAIL_KINDS and not address.isascii() and address_in_ascii(address) is None:
        return _NOT_ASCII
    return _NO_TOKEN if kind == "apns" and not APNS_DEVICE.fullmatch(address) else address


def read_address(text: str, channel: Channel, default_region: str = "") -> Address:
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
        case Channel.PUSH:
            return address.lower() if _APNS_TOKEN.fullmatch(address) else address
        case Channel.OTHER:
            return address
        case _:
            assert_never(channel)


def spellings_of(written: str) -> set[str]:
    """All forms of an address that the ledger may contain, by any channel, and the text itself, which is stored for a
    malformed one. Digits may also be a number of any country."""
    spelled = [(written, channel) for channel in Channel] + [(f"+{written}", Channel.SMS)]
    forms = [form for text, channel in spelled if isinstance(form := read_address(text, channel), str)]
    by_whatsapp = [f"whatsapp:{form}" for form in forms if form.startswith("+")]  # as `Channel.OTHER` stores it
    return {written, *forms, *by_whatsapp}


def explain_search(found: bool, begun: int) -> str:
    """The sentences beside what a search for a recipient found, while `begun` jobs of messages have not ended; `""` if
    there is nothing to say."""
    if not begun:
        return "" if found else "No exact match: a search takes the whole address."
    jobs = "1 job of messages has begun and has not ended; its"
    if begun > 1:
        jobs = f"{begun:,} jobs of messages have begun and have not ended; their"
    return f"{'' if found else 'Nothing found. '}{jobs} waiting messages are not searched."


def check_plus(written: str, field: str) -> None:
    """Raise `Invalid` if a blank has replaced a plus, as in a URL. An empty answer would look as if the address were
    not barred."""
    if _PLUS_AS_BLANK.match(written):
        raise Invalid("a blank is no part of an address: in a URL, write + as %2B", field=field)


def repeat_form(channel: Channel, default_region: str = "") -> Normalize:
    """The form for finding repeats: the normal form, or the text itself, which equals no normal form. A blank repeats
    nothing."""
    read, blanks = address_reader(channel, default_region), count()

    def form(spelled: bytes) -> bytes:
        text = str(spelled, "utf-8")
        address = read(text)
        if address is _BLANK:
            return b"\0\0%d" % next(blanks)
        return b"\0" + strip_unseen(text).encode() if isinstance(address, Malformed) else address.encode()

    return form


def mask(address: str) -> str:
    """The address with too little left to write to: for logs, details and the audit."""
    local, at, domain = address.rpartition("@")
    if at and local:
        return f"{local[0]}{HIDDEN}@{domain}"
    return f"{HIDDEN}{address[-2:]}" if len(address) > 4 else HIDDEN


def _read_number(address: str, default_region: str) -> Address:
    try:
        return read_number(address, default_region)
    except NoNumber as error:
        return Malformed(str(error))


def _read_mail(address: str) -> Address:
    local, at, domain = address.translate(_UNSEEN).partition("@")
    if not (local and at and domain) or "@" in domain:
        return _NO_MAIL
    if len(address) > _MAIL_CHARACTERS or len(local) > _LOCAL_CHARACTERS:
        return _LONG_MAIL
    seen = without_zero_width(local)  # joiners are a part of names in other scripts
    local = seen if seen.isascii() else normalize("NFC", local)
    if not _LOCAL.fullmatch(local):
        return _BAD_LOCAL
    normal = normal_domain(domain)
    if normal is None or "." not in normal or "_" in normal or normal.rpartition(".")[2].isdecimal():
        return _BAD_DOMAIN
    if not normal.isascii() and len(local) + len(domain_in_ascii(normal) or "") >= _MAIL_CHARACTERS:
        return _LONG_MAIL
    return f"{local}@{normal}"
