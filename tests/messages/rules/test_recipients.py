"""One address is one recipient, however it is written; what is none is told without being shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.columns import strip_unseen
from shared.audience.rules.csv_cuts import Cutter
from shared.audience.rules.csv_rows import RowReader
from shared.audience.rules.repeats import Repeats, hashes_of
from shared.core.errors import Invalid
from shared.messages.rules.answers import Channel
from shared.messages.rules.recipients import (
    Malformed,
    address_reader,
    check_region,
    mask,
    read_address,
    repeat_form,
    spellings_of,
)

SMS, MAIL, PUSH, OTHER = Channel.SMS, Channel.MAIL, Channel.PUSH, Channel.OTHER


def why(text: str, channel: Channel, region: str = "") -> str:
    read = read_address(text, channel, region)
    assert isinstance(read, Malformed), read
    return read.why


@pytest.mark.parametrize(
    "spelled",
    [
        *("91234567", "6591234567", "+6591234567", " +65 9123-4567 ", "(9123) 4567", "\uff0b65 9123.4567"),
        *("(+65) 9123 4567", "+(65) 9123 4567", "tel:+65-9123-4567", "TEL:91234567", "6591234567.0", "+6591234567.00"),
        *("whatsapp:+6591234567", "WhatsApp: +65 9123 4567", "whatsapp:91234567", "whatsapp:6591234567.0"),
        *("\ufeff91234567", "\u202a+65 9123 4567\u202c", "+65\u2066 9123\u2069 4567", "\u061c91234567"),
    ],
)
def test_spellings_of_a_number_of_singapore_are_one(spelled: str) -> None:
    assert read_address(spelled, SMS, "SG") == "+6591234567"


@pytest.mark.parametrize(
    ("spelled", "region", "reason"),
    [
        ("9123456", "SG", "too short"),
        ("+65912345678901234", "SG", "too long"),
        ("12345678901234567890", "SG", "too long"),
        ("", "SG", "blank"),
        (" \u200b ", "SG", "blank"),
        ("call 91234567", "SG", "no phone number"),
        ("91234567 ext. 5", "SG", "no phone number"),
        ("030 1234567/8", "DE", "several"),
        ("+49 30 1234567 / 68", "", "several"),
        ("1-800-FLOWERS", "US", "no phone number"),
        ("+", "SG", "no phone number"),
        ("+999123456", "SG", "country code"),
        ("+999123456", "", "no country has its country code"),
        ("91234567", "", "needs a defaultRegion"),
        ("whatsapp:+999123456", "", "no country has its country code"),
        ("whatsapp:whatsapp:+6591234567", "", "no phone number"),
        ("12whatsapp:34567", "SG", "no phone number"),
        ("+651", "SG", "too short"),
        ("001", "SG", "too short"),
        ("+65 12345678 9", "SG", "no phone number of its country has this length"),
        ("253-0000", "US", "too short"),
    ],
)
def test_what_is_no_number_is_told_without_it(spelled: str, region: str, reason: str) -> None:
    told = why(spelled, SMS, region)
    assert reason in told
    assert "234" not in told


def test_numbers_of_other_countries_need_no_region() -> None:
    assert read_address("+44 (0)20 7946 0958", SMS) == "+442079460958"
    assert read_address("020 7946 0958", SMS, "GB") == "+442079460958"
    assert read_address("0475/12 34 56", SMS, "BE") == read_address("0475/12/34/56", SMS, "BE") == "+32475123456"
    assert read_address("+1 650 253 0000", SMS, "SG") == "+16502530000"


@pytest.mark.parametrize(
    ("digits", "region", "number"),
    [
        ("4915123456789", "DE", "+4915123456789"),
        ("491701234567", "DE", "+491701234567"),
        ("015123456789", "DE", "+4915123456789"),
        ("00 49 151 23456789", "DE", "+4915123456789"),
        ("04930123456", "DE", "+494930123456"),  # dialled with the 0: a place whose area code begins with 49
        ("436641234567", "AT", "+436641234567"),
        ("6281234567890", "ID", "+6281234567890"),
        ("08123456789", "ID", "+628123456789"),
        ("9198765432", "IN", "+919198765432"),  # ten digits that begin with 91 are a number of their own
        ("919876543210", "IN", "+919876543210"),
        ("47123456", "NO", "+4747123456"),
        ("45123456", "DK", "+4545123456"),
        ("15551234567", "US", "+15551234567"),
    ],
)
def test_digits_with_the_country_code_are_read_with_it(digits: str, region: str, number: str) -> None:
    assert read_address(digits, SMS, region) == number


def test_a_fraction_is_no_digit_of_a_number() -> None:
    assert read_address("491701234567.0", SMS, "DE") == read_address("+491701234567.0", SMS) == "+491701234567"
    assert read_address("01.42.68.53.00", SMS, "FR") == "+33142685300"
    for written in ("49 170 1234567.0", "0170 1234567.0", "(491701234567.00)", "tel:491701234567.0", "491701234567 .0"):
        assert read_address(written, SMS, "DE") == "+491701234567"
    for written in ("4.91701E+11", "491701234567.000"):
        assert "no phone number" in why(written, SMS, "DE")
    assert "needs a defaultRegion" in why("491701234567.0", SMS)


@pytest.mark.parametrize("token", ["ab" * 32, "0F" * 32, "9c" * 100])
def test_a_token_of_apns_has_one_form(token: str) -> None:
    assert read_address(token.upper(), PUSH) == read_address(token.lower(), PUSH) == token.lower()
    assert read_address(token.upper()[:-1], PUSH) == token.upper()[:-1]


@pytest.mark.parametrize(
    ("domain", "normal"),
    [
        ("straße.de", "straße.de"), ("BÜCHER.de", "bücher.de"), ("XN--Bcher-KVA.de", "bücher.de"),
        ("bu\u0308cher.de", "bücher.de"), ("\uff45x\uff41mple.com", "example.com"), ("example。com", "example.com"),
        ("डेटामेल.भारत", "डेटामेल.भारत"), ("xn--c2bd4bq2d9bd.xn--h2brj9c", "डेटामेल.भारत"), ("ΣΊΣΥΦΟΣ.gr", "σίσυφοσ.gr"),
        ("r3---sn.Example", "r3---sn.example"),
    ],
)  # fmt: skip
def test_a_domain_has_one_form(domain: str, normal: str) -> None:
    assert read_address(f"ana@{domain}", MAIL) == f"ana@{normal}"


@pytest.mark.parametrize("domain", ["xn--a.de", "☃.net", "a\u200db.de", "xn--.de", f"{'ü' * 60}.de"])
def test_a_name_that_dns_does_not_take_is_no_domain(domain: str) -> None:
    assert DOMAIN in why(f"ana@{domain}", MAIL)


@pytest.mark.parametrize("kind", ["smtp", "ses", "sendgrid"])
def test_a_kind_reads_what_it_can_call(kind: str) -> None:
    read = address_reader(MAIL, kind=kind)
    assert read("ana@bücher.de") == "ana@bücher.de"
    assert isinstance(refused := read("jörg@example.com"), Malformed)
    assert "ASCII" in refused.why
    assert address_reader(MAIL, kind="sandbox")("jörg@example.com") == "jörg@example.com"


def test_apns_reads_hexadecimal_tokens() -> None:
    assert address_reader(PUSH, kind="apns")("AB" * 32) == "ab" * 32
    for token in ("not-hex!", "0123456", "a" * 513):
        assert isinstance(address_reader(PUSH, kind="apns")(token), Malformed)
    assert address_reader(PUSH, kind="fcm")("not-hex!") == "not-hex!"


def test_a_mail_address_loses_marks_of_direction_around_it() -> None:
    assert read_address("\u202aana@example.com\u202c", MAIL) == "ana@example.com"
    assert read_address("jo\u0308rg@example.com", MAIL) == "j\u00f6rg@example.com"


@pytest.mark.parametrize(
    ("spelled", "normal"),
    [
        (" Ann@Example.COM\u200b\n", "Ann@example.com"),
        ("a.b+c@x-y.example.org", "a.b+c@x-y.example.org"),
        ("o'hara/x=y@example.com", "o'hara/x=y@example.com"),
        ("é@BÜCHER.example", "é@bücher.example"),
        ("an\u200ba\u200d@\u202aexa\u00admple\u200e.com\u202c", "ana@example.com"),
        ("\u0928\u200d\u0924@example.com", "\u0928\u200d\u0924@example.com"),  # a joiner that is seen
        ("ana@\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.com", "ana@\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.com"),
        ("ana@xn--mgba3gch31f060k.com", "ana@\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.com"),
    ],
)
def test_a_mail_address_is_trimmed_and_its_domain_in_lower_case(spelled: str, normal: str) -> None:
    assert read_address(spelled, MAIL) == normal


ONE_AT, LENGTH, BEFORE, DOMAIN = "has one @", "at most 254", "before the @ is not", "is not a domain"


@pytest.mark.parametrize(
    ("reason", "spelled"),
    [
        (ONE_AT, ["ann", "ann@", "@example.com", "@", "a@b@example.com"]),
        (LENGTH, [f"{'a' * 64}@{'ü' * 53}.{'ü' * 53}.{'ü' * 53}.{'ü' * 10}.com"]),
        (LENGTH, [f"{'a' * 65}@x.com", f"{'a' * 64}@{'x.' * 93}comm", f"a@{'x.' * 130}com"]),
        (BEFORE, ["a b@example.com", ".a@x.com", "a.@x.com", "a..b@x.com", '"a b"@x.com', "a,b@x.com", "A <a@x.com>"]),
        (BEFORE, ["a\r\nBcc:b@x.com", "a\x00@x.com", "a:b@x.com"]),
        (DOMAIN, ["a@localhost", "a@-x.com", "a@x-.com", "a@x..com", "a@.com", "a@x.com.", "a@x_y.com"]),
        (DOMAIN, ["a@[127.0.0.1]", "a@127.0.0.1", "a@example.123", "a@x.com\r\nBcc: b"]),
        (DOMAIN, [f"a@{'x' * 64}.com", "a@x.com>", "a@x y.com"]),
    ],
)
def test_what_is_no_mail_address_is_told_without_it(reason: str, spelled: list[str]) -> None:
    for one in spelled:
        told = why(one, MAIL)
        assert reason in told, one
        assert one == "@" or one not in told


def test_the_longest_mail_addresses() -> None:
    for longest in (f"{'a' * 64}@{'x.' * 93}com", f"{'a' * 64}@{'x' * 63}.com"):
        assert read_address(longest, MAIL) == longest
        assert len(longest) in {254, 132}


def test_tokens_and_other_addresses_stay_as_they_are() -> None:
    assert read_address(" fcm:AbC_d-é ", PUSH) == "fcm:AbC_d-é"
    assert read_address("User 1", OTHER) == "User 1"
    assert "blank" in why("\t\u200b", OTHER)
    assert "characters" in why("x" * 1_025, PUSH)
    assert read_address("x" * 1_024, PUSH) == "x" * 1_024


@given(st.text(), st.sampled_from(Channel), st.sampled_from(["", "SG", "US"]))
def test_a_normal_form_is_its_own(text: str, channel: Channel, region: str) -> None:
    read = read_address(text, channel, region)
    if isinstance(read, Malformed):
        assert len(text) < 4 or text not in read.why
    else:
        assert read_address(read, channel, region) == read
        assert read == strip_unseen(read) != ""


def test_a_number_is_looked_for_by_its_digits_too() -> None:
    assert "+6591234567" in spellings_of("6591234567") & spellings_of("+65 9123 4567") & spellings_of("65 9123-4567")
    assert spellings_of("91234567") == {"91234567"}


def test_a_region_is_two_letters() -> None:
    assert (check_region("sg"), check_region("")) == ("SG", "")
    for unknown in ("XX", "SGP", "65", "ß"):
        with pytest.raises(Invalid) as refused:
            check_region(unknown)
        assert refused.value.field == "defaultRegion"


def test_repeats_are_found_by_the_form_that_is_sent_to() -> None:
    file = b"recipient\n91234567\n6591234567\n+6591234567\n9123456\n 9123456\n92345678\n"
    reader, cutter = RowReader(), Cutter(10, Repeats(), normalize=repeat_form(SMS, "SG"))
    cuts = [*cutter.add(reader.feed(file)), *cutter.add(reader.finish()), *cutter.finish()]
    assert [(cut.rows, cut.repeats, cut.repeated) for cut in cuts] == [(6, 3, bytes([0b0110_1000]))]


@given(st.lists(st.text(st.sampled_from("9123456 +65\u200b"), max_size=12), max_size=12))
def test_the_hashes_of_two_are_equal_if_their_addresses_are(texts: list[str]) -> None:
    hashes = hashes_of([text.encode() for text in texts], repeat_form(SMS, "SG")).tolist()
    for place, (one, text) in enumerate(zip(hashes, texts, strict=True)):
        for other_place, (other, another) in enumerate(zip(hashes, texts, strict=True)):
            address, others = read_address(text, SMS, "SG"), read_address(another, SMS, "SG")
            alike = strip_unseen(text) == strip_unseen(another) if isinstance(address, Malformed) else address == others
            are_blank_rows = place != other_place and not strip_unseen(text)
            assert (one == other) == (alike and not are_blank_rows)


@pytest.mark.parametrize(
    ("address", "masked"),
    [("ana@example.com", "a…@example.com"), ("+6591234567", "…67"), ("abcd", "…"), ("", "…"), ("@x", "…")],
)
def test_a_masked_address_cannot_be_written_to(address: str, masked: str) -> None:
    assert mask(address) == masked
