"""Phone numbers: texts of users become E.164, such as +6591234567.

The library `phonenumbers` reads them as dialled in the default region. Only their length is checked, because new
prefixes come more often than new versions of the library.
"""

import re

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumber, PhoneNumberFormat, PhoneNumberType, ValidationResult

from shared.domain.audience.column_names import without_zero_width
from shared.domain.errors import Invalid

_PLUSES = "+\uff0b"
_SCHEME = re.compile(r"\A(?:tel|whatsapp):\s*", re.IGNORECASE)  # RFC 3966; Twilio
# The usual characters of numbers: the library would find one in any prose.
_DIALLED = re.compile(rf"\(?[{_PLUSES}]?[\d\s().\-/\u2010-\u2015\u2212]+")
_FLOAT = re.compile(r"([^.]*\d)\s*\.(0+)(\)?)")  # a spreadsheet read the number as an amount
_SEVERAL = re.compile(r"[^/]*\d\s*/\s*\d{1,2}")  # 1234567/8 is 1234567 and 1234568
_MOBILE = frozenset({PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE})

_NO_NUMBER = "it is no phone number"
_SEVERAL_NUMBERS = "it stands for several phone numbers: write one"
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
