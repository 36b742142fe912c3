"""What a preview tells of a job is what its workers would do, with recipients that nobody is."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.audience.rules.audiences import TEXTS, Counted
from shared.audience.rules.devices import Devices
from shared.audience.rules.zones import REST, ZoneRules, offsets, zone_starts, zones
from shared.core.errors import Invalid
from shared.jobs.rules.groups import Notice, of_push
from shared.jobs.rules.jobs import Job, Plan
from shared.jobs.rules.templates import Template, valueless_tags
from shared.push.rules import preview
from shared.push.rules import preview as notices
from shared.push.rules.preview import Sample
from shared.push.rules.records import APNS, GCM, RecordRules
from shared.push.rules.rendering import Renderer

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 1_000_000_000
HOUR_NS = 3_600 * 1_000_000_000
ZONE_RULES = ZoneRules(offsets(), NOW_NS)
RULES = RecordRules()


def template(name: str, locale: str, body: Any = None, defaults: Any = None) -> Template:
    return Template(
        id=f"{name}/{locale}", app_id="a", name=name, locale=locale, body=body or {"alert": f"{name} {locale}"},
        defaults=defaults or {},
    )  # fmt: skip


def draft(*templates: Template, **changes: Any) -> Job:
    job = Job(
        id="00000000-0000-0000-0000-000000000000", app_id="a", app_name="game", service=APNS,
        template_names=tuple(dict.fromkeys(each.name for each in templates)), created_by="", group_id="",
        plan=Plan(templates=templates),
    )  # fmt: skip
    return replace(job, **changes)


def sampled(job: Job, counted: Counted | None = None, rules: RecordRules = RULES) -> list[Sample]:
    found = counted or Counted()
    return preview.samples(job, preview.uses(job, found.locales), found, rules, NOW)


def codes(found: Any) -> list[str]:
    return [notice.code for notice in found]


def about_templates(job: Job, counted: Counted | None = None, rules: RecordRules = RULES) -> list[Notice]:
    used = preview.uses(job, (counted or Counted()).locales)
    return list(notices.of_templates(job, used, sampled(job, counted, rules), rules.max_record_bytes))


locales = st.dictionaries(
    st.sampled_from(["en", "EN", "pt", "pt_BR", "pt_br", "", None, "xx"]), st.integers(1, 9), max_size=6
)


@given(locales, st.sets(st.sampled_from(["pt", "pt_BR", "pt_br", "EN"])))
def test_each_device_is_counted_for_the_template_that_the_workers_pick(
    found: dict[str | None, int], own: set[str]
) -> None:
    job = draft(template("like", "en"), *(template("like", locale) for locale in sorted(own)))
    rows = [(number, "u", "t", locale) for number, locale in enumerate(sorted(found, key=str), 1)]
    picked = Renderer(job).render(Devices.of(rows), now=NOW).receipt.locales if rows else {}

    used = preview.uses(job, found)

    assert sum(use.devices for use in used) == sum(found.values())
    assert {use.template.locale for use in used if use.devices} == picked.keys()
    hidden = {"pt_BR"} if "pt_br" in own else set()
    assert {use.template.locale for use in used} == {"en", *own} - hidden - {"EN"}
    assert [use.devices for use in used] == sorted((use.devices for use in used), reverse=True)


def test_of_several_names_each_has_a_sample_for_each_locale_that_is_its_own() -> None:
    job = draft(template("a", "en"), template("b", "en"), template("b", "pt"))
    shown = sampled(job, Counted(devices=5, locales={"pt": 3, "en": 2}))
    assert {(sample.template_name, sample.locale): sample.devices for sample in shown} == {
        ("a", "en"): 5, ("b", "pt"): 3, ("b", "en"): 2,
    }  # fmt: skip


def test_a_sample_is_the_record_for_a_made_up_recipient_as_long_as_the_longest() -> None:
    job = draft(template("like", "en", {"alert": "{{user}} likes it"}), context={"user": 'A"na'}, metadata={"c": 1})
    [sample] = sampled(job, Counted(longest_token=100, longest_user=40))
    record = json.loads(sample.record)
    assert record["Payload"] == {"aps": {"alert": 'A"na likes it'}, "m": {"c": 1}, "templateName": "like"}
    assert record["DeviceToken"].startswith("FAKE-")
    assert len(record["DeviceToken"]) == 100
    assert record["metadata"]["userId"].startswith("made-up")
    assert len(record["metadata"]["userId"]) == 40
    assert record["metadata"]["jobId"] == job.id
    assert sample.size == len(sample.record.encode())


def test_of_a_large_record_the_size_is_kept_alone() -> None:
    [sample] = sampled(draft(template("like", "en", {"alert": "x" * preview.SHOWN_BYTES})))
    assert sample.record == ""
    assert sample.size > preview.SHOWN_BYTES


def size_around(job: Job) -> int:
    """How much larger a record is than the text in its body."""
    [sample] = sampled(replace(job, plan=Plan(templates=(template("like", "en", {"alert": "x"}),))))
    return sample.size - 1


def test_a_record_is_shown_that_is_just_as_large_as_one_may_be() -> None:
    around = size_around(draft(template("like", "en")))
    for text, shown in [(preview.SHOWN_BYTES - around, True), (preview.SHOWN_BYTES - around + 1, False)]:
        [sample] = sampled(draft(template("like", "en", {"alert": "x" * text})))
        assert (sample.size, bool(sample.record)) == (around + text, shown)


def test_of_a_body_that_is_not_rendered_the_size_is_told_all_the_same() -> None:
    around = size_around(draft(template("like", "en")))
    [sample] = sampled(draft(template("like", "en", {"alert": "{{a}}" * 10_000}), context={"a": "x" * 50_000}))
    assert sample.size == around + 10_000 * 50_000


def test_of_many_samples_the_first_twenty_are_shown() -> None:
    shown = sampled(draft(*(template(f"n{number:02}", "en", {"alert": "x"}) for number in range(25))))
    assert [bool(sample.record) for sample in shown] == [True] * 20 + [False] * 5
    assert len({sample.size for sample in shown}) == 1


def test_devices_whose_name_has_no_template_get_none() -> None:
    job = draft(template("like", "pt"))
    assert [(use.template.locale, use.devices) for use in preview.uses(job, {"pt": 2, "fr": 5})] == [("pt", 2)]


def test_the_most_frequent_come_first_and_equal_ones_by_their_texts() -> None:
    found = {"b": 2, "a": 2, None: 2, "c": 3, "d": 1}
    assert preview.most(found, 4) == [("c", 3), (None, 2), ("a", 2), ("b", 2)]
    assert preview.most(found, 9)[-1] == ("d", 1)


def test_where_nothing_was_counted_a_token_is_as_long_as_the_services_are() -> None:
    job = draft(template("like", "en"), service=GCM)
    [sample] = sampled(job)
    assert len(json.loads(sample.record)["to"]) == 152


@pytest.mark.parametrize(
    ("body", "context", "tags"),
    [
        ({"alert": "{{a}} {{b}}"}, {"a": "x"}, ["b"]),
        ({"alert": {"{{k}}": ["{{l}}", {"x": "{{ m }}"}], "n": 5}}, {}, [" m ", "k", "l"]),
        ({"alert": "{{a}}{{b}}{{c}}"}, {"a": "", "b": 0, "c": False}, []),
        ({"alert": "{{a}}"}, {"a": None}, ["a"]),
        ({"alert": "{{d}}"}, {}, []),
        ({"alert": "{{d}}"}, {"d": None}, ["d"]),
    ],
)
def test_a_tag_that_nothing_fills_is_noticed(body: Any, context: Any, tags: list[str]) -> None:
    made = template("like", "en", body, {"d": "default"})
    assert valueless_tags(made, context) == tuple(tags)
    about = [notice for notice in about_templates(draft(made, context=context)) if notice.code == "tag-without-value"]
    assert bool(about) is bool(tags)
    assert all("{{" + tag + "}}" in about[0].message for tag in tags)


def test_what_cannot_be_rendered_or_is_too_large_is_noticed() -> None:
    job = draft(template("a", "en", {"alert": "{{o}}"}), template("b", "en", {"alert": "x" * 3_000}), context={"o": {}})
    rules = RecordRules(max_record_bytes=2_000)
    assert codes(about_templates(job, rules=rules)) == ["bad-context", "too-large"]
    broken, large = sampled(job, rules=rules)
    assert (broken.failure, broken.record, broken.size) == ("bad-context", "", 0)
    assert large.size > 3_000
    assert Renderer(job, rules).render(Devices.of([(1, "u", "t", "en")]), now=NOW).receipt.failed == 1


def test_of_two_templates_in_one_locale_one_is_never_picked() -> None:
    job = draft(template("like", "en"), template("like", "pt_BR"), template("like", "pt-br"))
    assert codes(about_templates(job)) == ["never-picked"]
    assert [sample.locale for sample in sampled(job)] == ["en", "pt-br"]
    assert codes(about_templates(draft(template("like", "en"), template("like", "pt_BR")))) == []


def test_devices_that_get_english_for_want_of_their_own_are_noticed() -> None:
    job = draft(template("a", "en"), template("a", "pt"), template("b", "en"))
    counted = Counted(exact=True, devices=10, locales={"en": 4, "PT": 3, None: 2, "fr": 1})
    about_a, about_b = notices.of_audience(job, counted)
    assert about_a.code == about_b.code == "english-used"
    assert "'a' has no template for the locales none, 'fr' (3 devices)" in about_a.message
    assert "'b' has no template for the locales 'PT', none, 'fr' (6 devices)" in about_b.message


def test_a_sentence_names_ten_and_tells_how_many_more_there_are() -> None:
    job = draft(template("a", "en"))
    for number, end in [(10, "'l9' (10 devices)"), (12, "'l9' and 2 more (12 devices)")]:
        [about] = notices.of_audience(job, Counted(devices=12, locales={f"l{n}": 1 for n in range(number)}))
        assert about.message == (
            "'a' has no template for the locales "
            + ", ".join(f"'l{n}'" for n in range(9))
            + f", {end}: English is used."
        )


def test_one_more_is_told_as_one() -> None:
    job = draft(template("a", "en"))
    [about] = notices.of_audience(job, Counted(devices=1, locales={"fr": 1}))
    assert "'fr' (1 device)" in about.message
    [about] = notices.of_audience(job, Counted(devices=11, locales={f"l{n}": 1 for n in range(11)}))
    assert "and 1 more (11 devices)" in about.message


def test_the_devices_of_zones_that_start_otherwise_are_told_and_a_start_at_this_moment_has_passed() -> None:
    job = draft(template("a", "en"), localized=True, starts_at=NOW_NS)
    group = zone_starts(NOW_NS, NOW_NS, "skip", published_sign=False)
    counted = Counted(devices=108, zones={"+0000": 7, "+0100": 1, "-0300": 100})
    [about] = of_push(job, group, counted, published_sign=False, now_ns=NOW_NS)
    assert (about.code, "(8 devices counted)" in about.message) == ("zone-skipped", True)
    [exact] = of_push(job, group, replace(counted, exact=True), published_sign=False, now_ns=NOW_NS)
    assert exact.message == "+0000, +0100 (8 devices counted): their start has passed, and they get nothing."


def test_zones_without_devices_are_not_worth_a_notice() -> None:
    job = draft(template("a", "en"), localized=True, starts_at=NOW_NS)
    group = zone_starts(NOW_NS, NOW_NS, "", published_sign=False)
    counted = Counted(exact=True, devices=100, zones={"-0300": 100})
    assert list(of_push(job, group, counted, published_sign=False, now_ns=NOW_NS)) == []


def test_a_file_over_which_the_job_would_fail_is_noticed() -> None:
    flaw = Invalid("the file is empty", field="csvPath")
    assert notices.of_flaw(flaw) == Notice("bad-file", "The job would fail: the file is empty.")
    ended = Invalid(f"{flaw.reason}.", field="csvPath")
    assert notices.of_flaw(ended) == notices.of_flaw(flaw)


def test_an_audience_of_nobody_is_noticed_only_where_it_is_certain() -> None:
    job = draft(template("a", "en"))
    assert codes(notices.of_audience(job, Counted(exact=True))) == ["nobody"]
    assert codes(notices.of_audience(job, Counted(exact=False))) == []
    slow = Counted(exact=True, devices=1, locales={"en": 1}, without_token=1, indexed=False)
    no_token, no_index = notices.of_audience(job, slow)
    assert (no_token.code, no_index.code) == ("no-token", "no-index")
    assert no_token.message == "1 device has no token and would be skipped."


def test_of_a_file_its_unknown_users_are_noticed_and_that_all_of_them_are() -> None:
    job = draft(template("a", "en"), csv_path="b/k")
    some = Counted(exact=True, devices=1, locales={"en": 1}, unknown=2, indexed=False)
    unknown, slow = notices.of_audience(job, some)
    assert (unknown.code, slow.code) == ("unknown-users", "no-index")
    assert unknown.message == "2 of the users in the file have no device and get nothing."
    assert "user_id" in slow.message
    [nobody] = notices.of_audience(job, Counted(exact=True, unknown=3))
    assert (nobody.code, "None of the 3 users" in nobody.message) == ("nobody", True)
    assert codes(notices.of_audience(job, Counted(exact=False, unknown=3))) == ["unknown-users"]


@settings(deadline=None)  # the first call reads the tz database
@given(st.dictionaries(st.sampled_from([None, "", "+0000", "-0000", "+0545", "UTC", "+0546"]), st.integers(1, 9)))
def test_the_devices_of_all_zones_are_the_audience(found: dict[str | None, int]) -> None:
    devices = sum(found.values())
    unlisted = 3
    by_zone = Counted(devices=devices + unlisted, zones=found).by_zone(ZONE_RULES)
    assert sum(by_zone.values()) == devices + unlisted
    assert by_zone.get("+0000", 0) == sum(found.get(text, 0) for text in ("+0000", "-0000", "UTC"))
    assert by_zone.get("+0545", 0) == found.get("+0545", 0) + found.get("+0546", 0)
    assert by_zone.keys() <= {*zones()}
    assert by_zone[REST] >= unlisted


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize(
    ("strategy", "ahead_hours", "expires_hours", "expected"),
    [
        ("", 15, 0, []),
        ("", 0, 0, ["zone-next-day"]),
        ("skip", 0, 0, ["zone-skipped"]),
        ("nextDay", -30, 0, ["zone-next-day", "zone-at-once"]),
        ("", 15, 20, ["zone-expired"]),
        ("", 15, 60, []),
    ],
)
def test_zones_that_start_otherwise_than_asked_for_are_noticed(
    sign: bool, strategy: str, ahead_hours: int, expires_hours: int, expected: list[str]
) -> None:
    starts_at = NOW_NS + ahead_hours * HOUR_NS
    expires_at = NOW_NS + expires_hours * HOUR_NS if expires_hours else 0
    job = draft(template("a", "en"), localized=True, starts_at=starts_at, expires_at=expires_at)
    group = zone_starts(starts_at, NOW_NS, strategy, published_sign=sign)
    counted = Counted(devices=7, zones={"+0000": 7})
    found = list(of_push(job, group, counted, published_sign=sign, now_ns=NOW_NS))
    assert codes(found) == expected
    assert all("devices counted" in notice.message for notice in found)
    of_a_file = list(of_push(job, group, None, published_sign=sign, now_ns=NOW_NS))
    assert codes(of_a_file) == expected
    assert not any("counted" in notice.message for notice in of_a_file)


def test_an_estimate_takes_the_rest_to_be_like_what_was_seen() -> None:
    assert Counted(exact=True, devices=7, scanned=10, total=10).estimate(7) == 7
    assert Counted(devices=7, scanned=10, total=100).estimate(7) == 70
    assert Counted(devices=7, scanned=10, total=3).estimate(7) == 7
    assert Counted().estimate(0) is None
    assert Counted(exact=True).estimate(0) == 0
    assert Counted(devices=1, scanned=3, total=10).estimate(1) == 3


def test_nothing_is_counted_at_first_and_an_index_is_taken_to_be_there() -> None:
    counted = Counted()
    assert counted == Counted(
        devices=0, users=0, without_token=0, scanned=0, total=0, exact=False, indexed=True, longest_token=0,
        longest_user=0, unknown=0, repeated=0,
    )  # fmt: skip
    assert counted.by_zone(ZONE_RULES) == {}


slices = st.builds(
    Counted, devices=st.integers(0, 9), users=st.integers(0, 9), without_token=st.integers(0, 9),
    zones=st.dictionaries(st.sampled_from(["+0000", "x", None]), st.integers(1, 9)),
    locales=st.dictionaries(st.sampled_from(["en", "pt", None]), st.integers(1, 9)), unknown=st.integers(0, 9),
    longest_token=st.integers(0, 9), longest_user=st.integers(0, 9),
)  # fmt: skip


@given(st.lists(slices, min_size=1))
def test_slices_of_a_file_add_up(found: list[Counted]) -> None:
    whole = Counted(total=100)
    for number, each in enumerate(found, 1):
        whole = whole.with_slice(each, repeated=2, upto=number)
    for name in ("devices", "users", "without_token", "unknown"):
        assert getattr(whole, name) == sum(getattr(each, name) for each in found)
    assert whole.zones == sum((Counter(each.zones) for each in found), Counter())
    assert whole.locales == sum((Counter(each.locales) for each in found), Counter())
    assert whole.longest_token == max(each.longest_token for each in found)
    assert whole.longest_user == max(each.longest_user for each in found)
    assert (whole.repeated, whole.scanned, whole.total, whole.exact) == (2 * len(found), len(found), 100, False)


def test_odd_texts_of_a_file_are_told_apart_up_to_a_bound() -> None:
    whole = Counted(total=10)
    for upto, texts in enumerate((range(900), range(500, 1400)), 1):
        found = Counted(devices=900, zones={str(text): 1 for text in texts})
        whole = whole.with_slice(found, repeated=0, upto=upto)
    assert len(whole.zones) == TEXTS
    assert {whole.zones[str(text)] for text in range(500, 900)} == {2}
    assert sum(whole.by_zone(ZONE_RULES).values()) == 1_800
