"""The fast renderer against a slow one that builds every record as a dictionary, and what has no record at all."""

import json
import tracemalloc
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.audience.rules.devices import Device, Devices
from shared.jobs.rules.batches import Receipt
from shared.jobs.rules.jobs import Job, Plan
from shared.jobs.rules.templates import Template, Unrenderable, filled_body
from shared.push.rules.records import APNS, SERVICES, RecordRules, fitting_records, largest_record_bytes
from shared.push.rules.rendering import Renderer
from tests.push.rules import careful

NOW = datetime(2026, 3, 1, 12, 0, 0, 654321, tzinfo=UTC)
PUSH_TIME = 1_772_366_400

# Whatever PostgreSQL and JSON can hold, with a bias to what breaks naive code.
texts = st.text(
    st.one_of(
        st.sampled_from("{}\"\\'<>&%\n\r\t\x01\x1f\x7f\x85\u2028\ufeffé😀\U0010ffff"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=12,
)
plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{}"), max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
tag_names = st.sampled_from(["who", "what", " who ", "", 'a"b', "{", "tag\n"])
tagged = st.lists(plain | tag_names.map(lambda name: f"{{{{{name}}}}}"), max_size=4).map("".join)
bodies = st.dictionaries(
    tagged | st.sampled_from(["m", "templateName"]),
    st.recursive(
        scalars | tagged,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tagged, inner, max_size=3),
        max_leaves=8,
    ),
    min_size=1,
    max_size=4,
)
values = st.dictionaries(tag_names | texts, scalars | texts, max_size=5)
locales = st.sampled_from([None, "", "en", "EN", "pt", "PT", "pt_br", "pt_BR", "zh-Hans", "İ"]) | plain
rows = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | texts, st.none() | texts, locales),
    unique_by=lambda row: row[0],
    max_size=12,
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    names = draw(st.sampled_from([("like",), ("like", "love"), ("like", "love", "none"), ("none",)]))
    pairs = st.tuples(st.sampled_from(["like", "love"]), st.sampled_from(["en", "pt", "pt_br", "pt_BR"]))
    templates = tuple(
        a_template(name=name, locale=locale, body=draw(bodies), defaults=draw(values))
        for name, locale in draw(st.lists(pairs, unique=True, max_size=5))
    )
    return a_job(
        service=draw(st.sampled_from(sorted(SERVICES))),
        template_names=names,
        context=draw(values),
        metadata=draw(st.dictionaries(texts | st.just("dryRun"), json_values, max_size=3)),
        expires_at=draw(st.sampled_from([0, (PUSH_TIME + 77) * 10**9 + 123_456_789, 4_000_000_000 * 10**9])),
        plan=Plan(templates=templates),
    )


def a_template(**given: Any) -> Template:
    return Template(**({"id": "t", "app_id": "a", "name": "like", "locale": "en", "body": {"alert": "Hi"}} | given))


def a_job(**given: Any) -> Job:
    known: dict[str, Any] = {
        "id": "1c9a2f0e-5d3b-4c58-9d53-0f6d2f1f7c11",
        "app_id": "a",
        "app_name": "mygame",
        "service": APNS,
        "template_names": ("like",),
        "created_by": "someone@example.com",
        "group_id": "group",
        "plan": Plan(templates=(a_template(),)),
    }
    return Job(**(known | given))


def a_row(seq_id: int = 1, user: str | None = "u1", token: str | None = "T", locale: str | None = "en") -> Device:
    return seq_id, user, token, locale


# The oracle: one row at a time, by the words of the specification.


def oracle_text(text: str, values: dict[str, Any]) -> str:
    before, opened, rest = text.partition("{{")
    if not opened:
        return before
    name, _, after = rest.partition("}}")
    value = values.get(name)
    written = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return before + written + oracle_text(after, values)


def oracle_body(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return oracle_text(value, values)
    if isinstance(value, list):
        return [oracle_body(inner, values) for inner in value]
    if isinstance(value, dict):
        return {oracle_text(key, values): oracle_body(inner, values) for key, inner in value.items()}
    return value


def oracle_record(job: Job, template: Template, row: Device) -> dict[str, Any]:
    body = oracle_body(template.body, template.defaults | job.context)
    m = {"m": job.metadata} if job.metadata else {}
    dry = job.metadata.get("dryRun")
    metadata = {
        "jobId": job.id,
        "muid": careful.message_id(job, row),
        "pushTime": PUSH_TIME,
        "pushType": "massive",
        "templateName": template.name,
        "userId": row[1] or "",
    }
    if isinstance(dry, bool):
        metadata["dryRun"] = dry
    if job.service is APNS:
        return {
            "DeviceToken": row[2],
            "Payload": {"aps": body, "templateName": template.name, **m},
            "push_expiry": job.expires_at // 1_000_000,
            "metadata": metadata,
        }
    expiry = {}
    if job.expires_at:
        remaining = (job.expires_at - PUSH_TIME * 10**9 - 654_321_000) // 10**9
        expiry = {"time_to_live": min(remaining, 2_419_200), "push_expiry": job.expires_at // 1_000_000}
    return {
        "to": row[2],
        "data": {**body, "templateName": template.name, **m},
        "dry_run": dry is True,
        "message_id": "",
        "metadata": metadata,
        **expiry,
    }


@given(job=jobs(), rows=rows)
def test_the_same_as_the_slow_way(job: Job, rows: list[Device]) -> None:
    expected, used, reasons = [], Counter[str](), Counter[str]()
    for row in rows:
        template = careful.template_of(job, row)
        if not row[2]:
            reasons["no-token"] += 1
        elif template is None:
            reasons["no-template"] += 1
        else:
            used[template.locale] += 1
            expected.append(oracle_record(job, template, row))

    rendered = Renderer(job).render(Devices.of(rows), now=NOW)

    written = [json.loads(record) for record in rendered.records]
    if job.metadata.get("dryRun") is True:
        key = "DeviceToken" if job.service is APNS else "to"
        assert all(record[key].startswith("FAKE-") for record in written)
        written = [record | {key: wanted[key]} for record, wanted in zip(written, expected, strict=True)]
    assert written == expected
    assert rendered.receipt == Receipt(
        sent=len(expected),
        failed=reasons["no-template"],
        skipped=reasons["no-token"],
        reasons={reason: count for reason, count in reasons.items() if count},
        locales=dict(used),
    )
    assert rendered.receipt.recipients == len(rows)


@given(job=jobs(), rows=rows, shared=st.lists(st.integers(0, 11), max_size=6))
def test_columns_give_the_bytes_that_care_gives(job: Job, rows: list[Device], shared: list[int]) -> None:
    """Also where devices share a seq_id."""
    company = [*rows, *((rows[place][0], "another", "of theirs", "pt") for place in shared if place < len(rows))]

    rendered = Renderer(job).render(Devices.of(company), now=NOW)

    served = [row for row in company if row[2] and careful.template_of(job, row) is not None]
    reachable = [row for row in company if row[2]]
    assert rendered.records == [careful.record(job, row, now=NOW, company=served) for row in served]
    assert rendered.receipt.sent + rendered.receipt.failed == len(reachable)


@given(job=jobs(), rows=rows, cut=st.integers(0, 12))
def test_a_record_depends_on_its_row_alone(job: Job, rows: list[Device], cut: int) -> None:
    """Same bytes from another worker, in other company, at another instant of the same second."""
    whole = Renderer(job).render(Devices.of(rows), now=NOW).records
    later = NOW + timedelta(microseconds=1)
    renderer = Renderer(job)
    parts = [renderer.render(Devices.of(part), now=later).records for part in (rows[cut:], rows[:cut])]
    assert parts[1] + parts[0] == whole


@given(value=texts, before=plain, after=plain)
def test_a_value_comes_out_as_it_went_in(value: str, before: str, after: str) -> None:
    template = a_template(body={"alert": before + "{{who}}" + after, "{{who}}!": 1})
    filled = filled_body(template, {"who": value})
    assert filled == {"alert": before + value + after, f"{value}!": 1}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{who}} and {{who}}", "Ana and Ana"),
        ("{{ who }}", "blank"),
        ("{{Who}}", ""),
        ("{{missing}}.", "."),
        ("{{null}}.", "."),
        ("{{}}", "empty"),
        ("{{{who}}}", "}"),
        ("{{a{{b}}", "odd"),
        ("{{who}}}}", "Ana}}"),
        ("{who} {", "{who} {"),
        ("{{tags}}", "{{who}}"),
        ("{{int}}/{{float}}/{{yes}}", "-3/0.5/true"),
    ],
)
def test_tags(text: str, filled: str) -> None:
    context = {"who": "Ana", " who ": "blank", "null": None, "": "empty", "a{{b": "odd", "tags": "{{who}}"}
    numbers = {"int": -3, "float": 0.5, "yes": True}
    template = a_template(body={"alert": {"deep": [text]}})
    assert filled_body(template, context | numbers) == {"alert": {"deep": [filled]}}


def test_context_goes_over_defaults_even_when_null() -> None:
    template = a_template(body={"alert": "{{a}}{{b}}{{c}}"}, defaults={"a": "1", "b": "2", "c": "3"})
    assert filled_body(template, {"b": "two", "c": None}) == {"alert": "1two"}


@pytest.mark.parametrize("value", [{}, [], {"a": 1}, ["x"]])
def test_an_object_or_array_in_a_text_is_bad_context(value: Any) -> None:
    with pytest.raises(Unrenderable, match="bad-context"):
        filled_body(a_template(body={"alert": "{{who}}"}), {"who": value})
    assert filled_body(a_template(), {"who": value}) == {"alert": "Hi"}


def test_a_template_that_cannot_be_filled_fails_its_own_recipients_only() -> None:
    templates = (
        a_template(),
        a_template(locale="pt", body={"alert": "{{who}}"}),
        a_template(locale="es", body={"alert": "{{who"}),
    )
    job = a_job(context={"who": []}, plan=Plan(templates=templates))
    rows = [a_row(seq_id, locale=locale) for seq_id, locale in enumerate(["pt", "en", "es", "PT", None])]
    rendered = Renderer(job).render(Devices.of(rows), now=NOW)
    assert [json.loads(record)["metadata"]["muid"][-1] for record in rendered.records] == ["1", "4"]
    assert rendered.receipt == Receipt(
        sent=2, failed=3, reasons={"bad-context": 2, "bad-template": 1}, locales={"en": 2}
    )


def test_too_large_records_fail_by_themselves() -> None:
    """The limit is in bytes, not in characters, and what is just as large as it may be goes out."""
    rows = [a_row(1), a_row(2, user="u" * 100), a_row(3, user="é"), a_row(4, user="u2")]
    limit = len(Renderer(a_job()).render(Devices.of([a_row(1)]), now=NOW).records[0])
    rendered = Renderer(a_job(), RecordRules(max_record_bytes=limit)).render(Devices.of(rows), now=NOW)
    assert [json.loads(record)["metadata"]["userId"] for record in rendered.records] == ["u1", "é", "u2"]
    assert rendered.receipt == Receipt(sent=3, failed=1, reasons={"too-large": 1}, locales={"en": 3})
    tighter = Renderer(a_job(), RecordRules(max_record_bytes=limit - 1)).render(Devices.of(rows), now=NOW)
    assert tighter.receipt == Receipt(failed=4, reasons={"too-large": 4})


def test_a_body_over_the_limit_is_never_multiplied() -> None:
    job = a_job(plan=Plan(templates=(a_template(body={"alert": "x" * 2000}),)))
    rendered = Renderer(job, RecordRules(max_record_bytes=1000)).render(Devices.of([a_row(1), a_row(2)]), now=NOW)
    assert rendered.receipt == Receipt(failed=2, reasons={"too-large": 2})


@pytest.mark.alone
def test_a_tag_that_stands_for_too_much_is_never_filled_in() -> None:
    """Nor are the batches counted by what nobody makes."""
    bomb = a_template(locale="pt", body={"alert": "{{a}}" * 13_000})
    job = a_job(context={"a": "x" * 65_536}, plan=Plan(templates=(a_template(), bomb)))
    renderer = Renderer(job)
    tracemalloc.start()
    try:
        rendered = renderer.render(Devices.of([a_row(1, locale="pt"), a_row(2)]), now=NOW)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rendered.receipt == Receipt(sent=1, failed=1, reasons={"too-large": 1}, locales={"en": 1})
    assert most < 8_000_000
    assert largest_record_bytes(job) > 13_000 * 65_536


@pytest.mark.alone
def test_what_is_too_large_for_what_stands_around_its_body_is_never_multiplied() -> None:
    renderer = Renderer(a_job(metadata={"m": "x" * 100_000}), RecordRules(max_record_bytes=10_000))
    rows = [a_row(seq_id) for seq_id in range(200)]
    tracemalloc.start()
    try:
        rendered = renderer.render(Devices.of(rows), now=NOW)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rendered.receipt == Receipt(failed=200, reasons={"too-large": 200})
    assert most < 2_000_000


def test_large_records_make_small_batches() -> None:
    small = a_job()
    large = a_job(
        plan=Plan(templates=(a_template(), a_template(locale="pt", body={"alert": "{{a}}" * 4}))),
        context={"a": "x" * 10**6},
    )
    assert fitting_records(small) > 10_000
    assert (
        fitting_records(large) * largest_record_bytes(large)
        <= 8_000_000
        < (fitting_records(large) + 1) * largest_record_bytes(large)
    )
    assert fitting_records(replace(large, context={"a": "x" * 10**7})) == 1, "there is no smaller batch"


def test_the_largest_record_is_that_of_the_largest_template_with_its_envelope() -> None:
    job = a_job(
        metadata={"m": "é" * 100},
        plan=Plan(templates=(a_template(), a_template(locale="pt", body={"alert": "x" * 300}))),
    )
    [record] = Renderer(job).render(Devices.of([a_row(locale="pt", token="t" * 152, user="u" * 36)]), now=NOW).records
    assert len(record) <= largest_record_bytes(job) < len(record) + 300
    unrenderable = replace(job, plan=Plan(templates=(a_template(body={"alert": "{{who}}"}),)), context={"who": []})
    assert 0 < largest_record_bytes(unrenderable) < largest_record_bytes(job)
    assert largest_record_bytes(a_job(plan=Plan())) > 0


@pytest.mark.alone
def test_a_renderer_keeps_only_so_much_of_what_it_has_filled_in() -> None:
    """A thousand names of a megabyte each are rendered a few at a time."""
    names = tuple(f"n{number}" for number in range(100))
    templates = tuple(a_template(name=name, body={"alert": "{{a}}" * 15}) for name in names)
    job = a_job(context={"a": "x" * 60_000}, template_names=names, plan=Plan(templates=templates))
    renderer = Renderer(job)
    tracemalloc.start()
    try:
        for seq_id in range(200):
            assert renderer.render(Devices.of([a_row(seq_id)]), now=NOW).receipt.sent == 1
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 40_000_000


@pytest.mark.parametrize("token", [None, ""])
@pytest.mark.parametrize("metadata", [{}, {"dryRun": True}])
def test_a_device_without_a_token_is_skipped(token: str | None, metadata: dict[str, Any]) -> None:
    rendered = Renderer(a_job(metadata=metadata)).render(Devices.of([a_row(1, token=token), a_row(2)]), now=NOW)
    assert rendered.receipt == Receipt(sent=1, skipped=1, reasons={"no-token": 1}, locales={"en": 1})


@pytest.mark.parametrize(
    ("locale", "used"),
    [
        ("pt_BR", "pt_br"), ("pt-br", "pt_br"), ("PT", "en"), ("ES", "ES"), ("es-419", "ES"), (" es ", "ES"),
        ("\ufeffpt-BR\u200e", "pt_br"),
        ("zh-Hant-TW", "zh-hant"), ("zh-Hans-CN", "zh"), ("zhx", "en"), (None, "en"), ("", "en"), ("-", "en"),
        ("iw_IL", "he"), ("IW", "he"), ("he", "he"), ("in", "en"), ("id-ID", "in_ID"), ("in-Latn-ID", "en"),
    ],
)  # fmt: skip
def test_locales(locale: str | None, used: str) -> None:
    """The same but for case, `_` and withdrawn codes, then what it begins with, then English."""
    stored = ("en", "pt_br", "ES", "zh", "zh-hant", "Zh_Hant", "iw", "he", "in_ID")
    templates = tuple(a_template(locale=locale) for locale in stored)
    rendered = Renderer(a_job(plan=Plan(templates=templates))).render(Devices.of([a_row(locale=locale)]), now=NOW)
    assert rendered.receipt.locales == {used: 1}


def test_names_share_the_users_and_have_their_own_locales() -> None:
    templates = (a_template(), a_template(name="love"), a_template(name="love", locale="pt"))
    job = a_job(template_names=("like", "love"), plan=Plan(templates=templates))
    rendered = Renderer(job).render(
        Devices.of([a_row(seq_id, f"u{seq_id}", locale="pt") for seq_id in range(1000)]), now=NOW
    )
    names = Counter(json.loads(record)["metadata"]["templateName"] for record in rendered.records)
    assert rendered.receipt.locales == {"en": names["like"], "pt": names["love"]}
    assert 450 < names["like"] < 550


def test_each_name_has_its_own_body_and_a_user_the_same_name_in_every_release() -> None:
    # A batch that is tried again by another release must not send another template.
    templates = tuple(a_template(name=name, body={"alert": name.upper()}) for name in "abc")
    job = a_job(template_names=("a", "b", "c"), plan=Plan(templates=templates))
    rows = [a_row(seq_id, f"u{seq_id % 12}") for seq_id in range(24)]  # two devices each
    rendered = Renderer(job).render(Devices.of(rows), now=NOW)
    sent = [json.loads(record) for record in rendered.records]
    assert "".join(record["metadata"]["templateName"] for record in sent) == "accccacbbacc" * 2
    assert "".join(record["Payload"]["aps"]["alert"] for record in sent) == "ACCCCACBBACC" * 2


def test_a_name_without_a_template_in_english_fails_its_own_recipients_only() -> None:
    job = a_job(plan=Plan(templates=(a_template(locale="pt"),)))
    rendered = Renderer(job).render(
        Devices.of([a_row(1, locale="pt"), a_row(2, locale="es"), a_row(3, locale=None)]), now=NOW
    )
    assert rendered.receipt == Receipt(sent=1, failed=2, reasons={"no-template": 2}, locales={"pt": 1})


def test_nobody() -> None:
    assert Renderer(a_job()).render(Devices.of([]), now=NOW).receipt == Receipt()


def test_golden_record() -> None:
    templates = (a_template(body={"a": "{{who}}"}),)
    job = a_job(metadata={"meta": "x"}, context={"who": 'A "quoted" name\n'}, plan=Plan(templates=templates))
    rendered = Renderer(job).render(Devices.of([a_row(77, user="é\\", token='t"')]), now=NOW)
    expected = (
        r"""{"DeviceToken":"t\"","Payload":{"aps":{"a":"A \"quoted\" name\n"},"m":{"meta":"x"},"templateName":"like"}"""
        r""","push_expiry":0,"metadata":{"jobId":"1c9a2f0e-5d3b-4c58-9d53-0f6d2f1f7c11","""
        r""""muid":"1cf6b1b2-6a88-8bcd-bcd3-00000000004d","pushTime":1772366400,"pushType":"massive","""
        r""""templateName":"like","userId":"é\\"}}"""
    )
    assert rendered.records == [expected.encode()]


def test_devices_that_share_a_seq_id_have_message_ids_of_their_own() -> None:
    job = a_job(plan=Plan(templates=(a_template(),)))
    rows: list[Device] = [
        (6, "u0", "tok0", "en"),
        (7, "u1", "tok1", "en"),
        (7, "u2", "tok2", "en"),
        (7, "u3", "tok2", "en"),
        (8, "u4", "tok4", "en"),
    ]

    def ids(order: list[Device]) -> dict[tuple[str, str], str]:
        made = [json.loads(record) for record in Renderer(job).render(Devices.of(order), now=NOW).records]
        return {(record["DeviceToken"], record["metadata"]["userId"]): record["metadata"]["muid"] for record in made}

    found = ids(rows)
    assert len({*found.values()}) == 5
    assert all(uuid.UUID(text).version == 8 for text in found.values())
    assert ids(rows[::-1]) == found, "these rows come in any order"
    alone = [careful.message_id(job, a_row(seq_id)) for seq_id in (6, 8)]
    assert [found["tok0", "u0"], found["tok4", "u4"]] == alone, "the ids of the others stay as they are"
    assert found["tok1", "u1"] == "4b13e024-31e1-8e57-a575-000000000007", "and so do these, in every release"
