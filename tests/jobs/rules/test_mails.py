"""What each mail says, to whom it goes, and that nothing in a job can break out of its place."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.zones import REST
from shared.core.errors import Invalid
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.events import SEND, Event, EventState
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.rules.mails import SUBJECTS, Letter, Mailing, MailKind, arrival, letter_id, recipients, write_letter
from shared.push.rules.records import APNS, GCM

START = 1_798_815_600_000_000_000  # Fri, 01 Jan 2027 15:00:00 UTC
ANA, OPS = "ana@example.com", "ops@example.org"
MAILING = Mailing(domain="example.com", addressees=(OPS,), host="worker-7", platforms={"apns": "iOS", "gcm": "Android"})
TOTALS = Totals(batches=4, settled=2, planned=1_000, sent=400, failed=15, skipped=25, held_out=50)
LINE_ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]


def a_job(**changes: Any) -> Job:
    chosen: dict[str, Any] = {
        "id": "b0c1f6a2-7c0e-4e1b-9d11-0b6f5d1f2a33",
        "app_id": "a1",
        "app_name": "testapp",
        "service": APNS,
        "template_names": ("like", "other"),
        "created_by": ANA,
        "group_id": "g1",
    }
    return Job(**{**chosen, **changes})


STATES = {"unsent": 30, "sending": 0, "unknown": 0, "sent": 50, "delivered": 8, "read": 0, "failed": 10, "invalid": 2}


def a_message_job(**changes: Any) -> Job:
    return a_job(service="message", credential_id="c-7", table_kind="smtp", **changes)


def mail(kind: MailKind, job: Job, *, totals: Totals = TOTALS, mailing: Mailing = MAILING, **more: Any) -> Letter:
    letter = write_letter(kind, job, totals, at_ns=7, mailing=mailing, **more)
    assert letter is not None
    return letter


def facts(letter: Letter) -> dict[str, str]:
    """The lines `label: value` of a mail."""
    pairs = (line.partition(": ") for line in letter.text.splitlines() if ": " in line)
    return {label.strip(" :"): value.strip() for label, _, value in pairs}


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        (MailKind.CREATED, "New push job created"),
        (MailKind.SCHEDULED, "New push job scheduled"),
        (MailKind.PAUSED, "Push job entered paused state"),
        (MailKind.STOPPED, "Push job stopped"),
        (MailKind.TRIPPED, "Push job entered circuit break state"),
        (MailKind.COMPLETED, "Push job completed"),
    ],
)
def test_subjects_are_those_of_marathon(kind: MailKind, subject: str) -> None:
    assert mail(kind, a_job()).subject == subject
    of_messages = subject.replace("Push", "Message").replace("push", "message")
    assert mail(kind, a_message_job(), states=STATES).subject == of_messages


@pytest.mark.parametrize("kind", MailKind)
@pytest.mark.parametrize(("service", "platform"), [(APNS, "iOS"), (GCM, "Android")])
def test_every_mail_names_the_job(kind: MailKind, service: str, platform: str) -> None:
    told = facts(mail(kind, a_job(service=service)))
    assert told.items() >= {
        "App": "testapp",
        "Template": "like, other",
        "Platform": platform,
        "Job": a_job().id,
        "Created by": ANA,
    }.items()  # fmt: skip


def test_another_service_is_called_by_its_name() -> None:
    assert facts(mail(MailKind.CREATED, msgspec.structs.replace(a_job(), service="webpush")))["Platform"] == "webpush"


def test_a_job_that_starts_at_once() -> None:
    assert arrival(a_job()) is MailKind.CREATED
    letter = mail(MailKind.CREATED, a_job())
    assert facts(letter).items() >= {"Scheduled": "no", "Localized": "no"}.items()
    assert "To everybody" in letter.text
    assert {"Expires", "Control group", "Group", "Fault"}.isdisjoint(facts(letter))


def test_a_job_that_starts_later() -> None:
    job = a_job(starts_at=START, expires_at=START + 3_600 * 10**9, control_group=0.07)
    assert arrival(job) is MailKind.SCHEDULED
    told = facts(mail(MailKind.SCHEDULED, job))
    assert told["Scheduled"] == "yes, for Fri, 01 Jan 2027 15:00:00 UTC"
    assert told["Expires"] == "Fri, 01 Jan 2027 16:00:00 UTC"
    assert told["Control group"] == "7 % of the users get nothing"


@pytest.mark.parametrize(
    ("strategy", "late"), [("skip", "gets nothing"), ("nextDay", "a day later"), ("", "a day later")]
)
def test_a_localized_job_tells_its_strategy(strategy: str, late: str) -> None:
    job = a_job(localized=True, past_time_strategy=strategy, starts_at=START, zone="+0545")
    told = facts(mail(MailKind.SCHEDULED, job))
    assert told["Localized"].startswith("yes")
    assert late in told["Localized"]
    assert told["Group"] == "g1"
    assert told["Scheduled"] == "yes, for Fri, 01 Jan 2027 15:00:00 UTC in the zone +0545"
    rest = facts(mail(MailKind.SCHEDULED, a_job(localized=True, starts_at=START, zone=REST)))
    assert rest["Scheduled"].endswith("UTC for users without a known time zone")


def test_whom_a_new_job_is_for() -> None:
    assert (
        "To the users in the file bucket/users.csv." in mail(MailKind.CREATED, a_job(csv_path="bucket/users.csv")).text
    )
    text = mail(MailKind.CREATED, a_job(filters={"locale": "pt,en", "NOTregion": "BR"})).text
    assert 'keep:\n  {\n    "NOTregion": "BR",\n    "locale": "pt,en"\n  }\n' in text


def test_the_numbers() -> None:
    told = facts(mail(MailKind.PAUSED, a_job(), by="bob", reasons={"bad JSON": 5, "no template": 1_035}))
    assert told.items() >= {
        "Batches": "50.0 % (2 of 4)",
        "Recipients": "49.0 % (490 of 1,000)",
        "sent": "400",
        "held out": "50",
        "skipped": "25",
        "failed": "15",
        "bad JSON": "5",
        "no template": "1,035",
    }.items()  # fmt: skip


def test_what_happened_most_is_told_first() -> None:
    text = mail(MailKind.PAUSED, a_job(), reasons={"c": 1, "b": 2, "a": 1, "d": 1_000}).text
    told = text.partition("Skipped and failed, by reason:\n")[2].split("\n\n")[0]
    assert [line.split(":")[0].strip() for line in told.splitlines()] == ["d", "b", "a", "c"]


def test_the_kinds_of_mails_are_stored_with_the_same_words_in_every_release() -> None:
    assert [*MailKind] == ["created", "scheduled", "paused", "stopped", "circuitbreak", "completed"]


def test_the_reasons_of_a_closed_job_need_not_be_given() -> None:
    job = a_job(reasons={"bad JSON": 15})
    assert facts(mail(MailKind.COMPLETED, job))["bad JSON"] == "15"
    assert "by reason" not in mail(MailKind.COMPLETED, job, reasons={}).text


@pytest.mark.parametrize(("sent", "planned", "share"), [(0, 0, "-"), (1_999, 2_000, "99.9 %"), (1, 1, "100.0 %")])
def test_only_all_is_a_hundred_per_cent(sent: int, planned: int, share: str) -> None:
    told = facts(mail(MailKind.COMPLETED, a_job(), totals=Totals(planned=planned, sent=sent)))
    assert told["Recipients"].startswith(f"{share} (")


@pytest.mark.parametrize(("kind", "move"), [(MailKind.PAUSED, "paused"), (MailKind.STOPPED, "stopped")])
def test_who_acted(kind: MailKind, move: str) -> None:
    assert mail(kind, a_job(), by="bob@example.org").text.startswith(f"A push job of testapp was {move} by bob@")
    assert f"was {move} by Carillon" in mail(kind, a_job(failure="no such file")).text
    assert facts(mail(kind, a_job(failure="no such file")))["Fault"] == "no such file"


@pytest.mark.parametrize("kind", [MailKind.PAUSED, MailKind.TRIPPED])
def test_what_is_held_waits_for_ever_but_for_its_end(kind: MailKind) -> None:
    assert "however long that takes" in mail(kind, a_job()).text
    assert "It expires" not in mail(kind, a_job()).text
    assert "It expires at Fri, 01 Jan 2027 15:00:00 UTC" in mail(kind, a_job(expires_at=START)).text


def test_a_start_that_passes_while_paused() -> None:
    sentence = "it starts when it is resumed"
    assert sentence in mail(MailKind.PAUSED, a_job(starts_at=START, status=JobStatus.PAUSED)).text
    assert sentence not in mail(MailKind.PAUSED, a_job(status=JobStatus.PAUSED)).text


def test_a_stop_is_final() -> None:
    assert "cannot be resumed" in mail(MailKind.STOPPED, a_job()).text


def test_a_mail_about_a_new_message_job_tells_of_its_credential() -> None:
    assert mail(MailKind.CREATED, a_message_job(), states=STATES).text == (
        "A message job was created for testapp. It starts at once.\n"
        "\n"
        "App:            testapp\n"
        "Template:       like, other\n"
        "Credential:     c-7\n"
        "Provider:       smtp\n"
        f"Job:            {a_job().id}\n"
        "Created by:     ana@example.com\n"
        "Scheduled:      no\n"
        "\n"
        "To everybody in the table: it has neither filters nor a CSV file.\n"
    )
    scheduled = mail(MailKind.SCHEDULED, a_message_job(starts_at=START, csv_path="b/p.csv"), states=STATES).text
    assert scheduled.startswith("A message job was scheduled for testapp. It starts at Fri, 01 Jan 2027 15:00:00 UTC.")
    assert "To the recipients in the file b/p.csv." in scheduled
    dry = facts(mail(MailKind.CREATED, a_message_job(options={"dry_run": True}), states=STATES))
    assert dry["Dry run"] == "yes: no provider is called"


COUNTED = """Messages:       70.0 % (70 of 100)
  unsent:       30
  sent:         50
  delivered:    8
  failed:       10
  invalid:      2
Failed and invalid, by reason:
  hard-bounce:  8
  malformed:    2
"""


@pytest.mark.parametrize("kind", [MailKind.PAUSED, MailKind.STOPPED, MailKind.TRIPPED, MailKind.COMPLETED])
def test_a_mail_about_a_message_job_counts_messages(kind: MailKind) -> None:
    reasons = {"malformed": 2, "hard-bounce": 8}
    letter = mail(kind, a_message_job(feedbacks={"ack": 1}), states=STATES, reasons=reasons)
    assert COUNTED in letter.text
    for of_pushes in ("push", "ack:", "Feedback", "Batches", "held out", "Platform", "Localized", "device"):
        assert of_pushes.casefold() not in letter.text.casefold()


@pytest.mark.parametrize("kind", [MailKind.STOPPED, MailKind.COMPLETED])
def test_a_mail_about_an_ended_message_job_says_how_to_send_the_rest(kind: MailKind) -> None:
    command = f"carillon jobs retry {a_job().id} --state failed --state unsent --app testapp\n"
    text = mail(kind, a_message_job(), states=STATES).text
    assert f"a retry sends the rest:\n  {command}" in text
    assert "cannot be resumed" not in text
    assert "unknown" not in text
    assert "--state unknown" in mail(kind, a_message_job(), states=STATES | {"unknown": 1}).text
    for job, states in ((a_message_job(), {"sent": 3}), (a_message_job(options={"dry_run": True}), STATES)):
        assert "retry" not in mail(kind, job, states=states).text


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (a_job(), "too many of its batches failed"),
        (a_message_job(), "too many of its messages bounced"),
        *(
            (make(events=(Event(SEND, EventState.FAIL, "no", 6), Event(SEND, EventState.FAIL, cause, 7))), cause)
            for make, cause in (
                (a_job, "3 of 4 batches failed"),
                (a_message_job, "12 of 80 answered messages bounced or were refused (haltOn)"),
                (a_message_job, "3 of 4 batches failed"),
            )
        ),
    ],
)
def test_a_mail_says_why_a_job_is_held(job: Job, says: str) -> None:
    states = STATES if job.credential_id else None
    text = mail(MailKind.TRIPPED, job, states=states).text
    noun = "message" if job.credential_id else "push"
    assert text.startswith(f"A {noun} job of testapp is held: {says}.\n")
    assert "Once it is resumed, only later failures count." in text
    assert "later failures" not in mail(MailKind.PAUSED, job, states=states).text


def test_feedback_is_told_of_all_recipients_acknowledged_first() -> None:
    job = a_job(feedbacks={"unregistered": 30, "ack": 20, "bad-device-token": 40}, control_group_csv_path="b/held.csv")
    letter = mail(MailKind.COMPLETED, job)
    order = [letter.text.index(key) for key in ("ack:", "bad-device-token:", "unregistered:")]
    assert order == sorted(order)
    assert facts(letter).items() >= {
        "ack": "2.0 % (20)",
        "unregistered": "3.0 % (30)",
        "Held-out users": "b/held.csv",
        "Written by": "worker-7",
    }.items()  # fmt: skip
    assert facts(mail(MailKind.COMPLETED, a_job()))["ack"] == "0.0 % (0)"


def test_who_gets_it() -> None:
    assert recipients(ANA, MAILING) == (ANA, OPS)
    assert recipients(OPS, MAILING) == (OPS,)
    assert recipients("ci-token", MAILING) == (OPS,)
    assert len(recipients("Ops@Example.org", MAILING)) == 1


@pytest.mark.parametrize("kind", MailKind)
def test_the_blacklist_keeps_the_creator_out_and_nobody_else(kind: MailKind) -> None:
    blacklist = Mailing(domain="example.com", addressees=(OPS,), blacklist=("bot@", "@example.com"))
    assert mail(kind, a_job(), mailing=blacklist).to == (OPS,)
    assert mail(kind, a_job(created_by="eva@example.net"), mailing=blacklist).to == ("eva@example.net", OPS)
    nobody = Mailing(domain="example.com", blacklist=(ANA,))
    assert write_letter(kind, a_job(), TOTALS, at_ns=7, mailing=nobody) is None
    assert recipients(ANA, Mailing(domain="example.com", blacklist=("",))) == (ANA,)


def test_the_id_tells_one_move_from_another_and_is_the_same_again() -> None:
    ids = [letter_id(job, kind, at, "d") for job in ("j1", "j2") for kind in MailKind for at in (1, 2)]
    assert len(set(ids)) == len(ids)
    assert mail(MailKind.PAUSED, a_job()).id == f"{a_job().id}.paused.7@example.com"


anything = st.text(max_size=40) | st.sampled_from(LINE_ENDS).map(lambda end: f"a{end}Bcc: eve@example.com{end}{end}b")


@given(st.sampled_from(MailKind), st.data())
def test_nothing_in_a_job_breaks_out_of_its_place(kind: MailKind, data: st.DataObject) -> None:
    told = data.draw(anything)
    job = a_job(
        events=(Event(SEND, EventState.FAIL, told, 7),),
        template_names=(data.draw(anything), data.draw(anything)),
        created_by=data.draw(anything),
        csv_path=data.draw(anything),
        filters=data.draw(st.dictionaries(anything, anything, max_size=3)),
        failure=data.draw(anything),
        feedbacks=data.draw(st.dictionaries(anything, st.integers(0, 10**9), max_size=3)),
        zone=data.draw(anything),
        starts_at=START,
    )
    letter = mail(kind, job, by=data.draw(anything), reasons=data.draw(st.dictionaries(anything, st.integers(0, 9))))
    assert letter.subject.casefold() == SUBJECTS[kind].format("push").casefold()
    assert letter.to[-1] == OPS
    assert not any(line.startswith("Bcc") for line in letter.text.splitlines())


def test_a_long_filter_makes_no_long_mail() -> None:
    filters = {f"f{number}": "x" * 65_536 for number in range(64)}
    assert len(mail(MailKind.CREATED, a_job(filters=filters, csv_path="")).text) < 80_000


LETTER = {"id": "a@example.com", "to": (ANA,), "subject": "s", "text": "t\n"}


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("place", ["before", "within", "after"])
def test_no_line_can_end_in_a_head(end: str, place: str) -> None:
    def broken(text: str) -> str:
        half = len(text) // 2
        return {"before": end + text, "within": text[:half] + end + text[half:], "after": text + end}[place]

    for field, value in [("id", broken("a@example.com")), ("subject", broken("subject")), ("to", (ANA, broken(OPS)))]:
        with pytest.raises(Invalid) as caught:
            Letter(**{**LETTER, field: value})  # type: ignore[arg-type]
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "<a@example.com>"),
        ("id", "a"),
        ("to", ()),
        ("to", ("",)),
        ("to", ("ana",)),
        ("to", ("Ana <ana@example.com>",)),
        ("to", ("ana@example.com,eve@example.com",)),
        ("to", ("ana@example.com\0",)),
        ("to", ("\ud800@example.com",)),
        ("subject", ""),
        ("subject", "\ud800"),
        ("text", ""),
        ("text", "a\0b"),
        ("text", "one line is fine\na\0b\n"),
        ("text", "a\rb"),
        ("text", "\ud800"),
    ],
)
def test_what_is_no_letter(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        Letter(**{**LETTER, field: value})
    assert caught.value.field == field


def test_no_repr_shows_an_address_or_the_text() -> None:
    shown = repr(mail(MailKind.PAUSED, a_job()))
    assert ANA not in shown
    assert "testapp" not in shown
