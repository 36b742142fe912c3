"""The console's pages: what runs, who did what, and the settings."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from services.api.console.pages import overview
from services.api.http.pages.pictures import Piece
from shared.audience.rules.audiences import KeyRange, PushTable
from shared.clock.rules.outcomes import DeadLetter
from shared.console.rules.audit import ActedOn, Actor, AuditRecord
from shared.core.instants import EPOCH, ns
from shared.jobs.rules.batches import Batch, BatchStatus, Receipt
from shared.jobs.rules.jobs import JobStatus, Plan
from shared.runtime.server_settings import BrokerSettings
from tests.jobs.made import a_job
from tests.services.api.client import ADMIN, PROXY
from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import Browser, tags_of, text_of
from tests.services.api.http.pages.test_sessions import signed_in
from tests.waiting import until

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def admin(house: House) -> Browser:
    return Browser(house.admin.app, headers={"x-forwarded-email": ADMIN}, peer=PROXY)


async def test_a_newcomer_sees_first_steps_until_there_is_an_app(house: House, admin: Browser) -> None:
    assert (await house.admin.get("/apps")).json == [], "this is the first test of this module"
    words = text_of(await admin.get(""))
    assert ("First steps" in words, "Pushes a minute" in words) == (True, False)
    await house.app()
    words = text_of(await admin.get("?again=1"))
    assert ("First steps" in words, "Pushes a minute" in words) == (False, True)


async def test_what_runs_and_waits_is_shown(house: House, admin: Browser) -> None:
    page = text_of(await admin.get("/processes"))
    assert "No process is running" in page
    queue = (await house.admin.get("/queues")).json[0]["name"]
    assert queue in page


async def test_queues_link_to_the_brokers_own_page_where_a_setting_says_its_address(
    house: House, admin: Browser
) -> None:
    queue = (await house.admin.get("/queues")).json[0]["name"]
    plain = [each.get("href") or "" for each in tags_of(await admin.get("/processes"), "a")]
    assert [link for link in plain if queue in link] == []
    broker = BrokerSettings(
        url="amqp://guest:secret@rabbit/a%2Fb", management_public_url="https://queues.example.com/rabbit/"
    )
    linking = Browser(house.build(broker), headers={"x-forwarded-email": ADMIN}, peer=PROXY)
    links = [each.get("href") for each in tags_of(await linking.get("/processes"), "a")]
    assert f"https://queues.example.com/rabbit/#/queues/a%2Fb/{queue}" in links


async def test_the_overview_tells_how_fast_a_job_goes(house: House, admin: Browser) -> None:
    now = await house.store.now()
    job = a_job(app_id=await house.app(), template_names=("fast",), plan=Plan(source=PushTable(highest=2_000), end=2))
    await house.store.jobs.add(job)
    span: dict[str, Any] = {"range": KeyRange(0, 1_000), "size": 1_000, "taken_at": now, "changed_at": now}
    sent = Batch(job_id=job.key, ordinal=0, status=BatchStatus.SENT, receipt=Receipt(sent=1_000), **span)
    await house.store.batches.add_page(
        [sent, Batch(job_id=job.key, ordinal=1, range=KeyRange(1_000, 2_000), size=1_000)]
    )
    await house.store.batches.add_end(job.key, 2)

    async def find_row() -> re.Match[str] | None:  # the API shares what it read for a second
        return re.search(r"fast</a>.*?</tr>", (await admin.get("")).body.decode(), re.DOTALL)

    row: re.Match[str] = await until(find_row, "the row of the job")
    rate = re.search(r'data-label="Per second" class="number">([^<]*)<', row[0])
    assert rate is not None
    assert rate[1][0] in "123456789"


async def test_a_delay_that_all_callbacks_had_is_a_sentence(admin: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "lateness", lambda _: [Piece("up to 1 ms", 12, "good")])
    assert "12 fired, up to 1 ms late." in text_of(await admin.get(""))


async def test_paused_jobs_are_counted(house: House) -> None:
    app_id = await house.app()
    for _ in range(2):
        await house.store.jobs.add(a_job(app_id=app_id, status=JobStatus.PAUSED))
    page = await Browser(house.build(), headers={"x-forwarded-email": ADMIN}, peer=PROXY).get("")
    figure = re.search(r'<a href="/ui/jobs\?status=paused">(\d+) paused</a>', page.body.decode())
    assert figure is not None
    assert int(figure[1]) >= 2


async def test_a_localized_push_that_waits_is_one_row(house: House) -> None:
    app_id = await house.app()
    zones = [f"+{hours:02}00" for hours in range(14, -1, -1)] + [f"-{hours:02}00" for hours in range(1, 13)]
    for at, zone in enumerate(zones, start=1):
        await house.store.jobs.add(
            a_job(app_id=app_id, group_id="all-zones", zone=zone, status=JobStatus.SCHEDULED, starts_at=at)
        )
    await house.store.jobs.add(
        a_job(app_id=app_id, template_names=("other",), status=JobStatus.SCHEDULED, starts_at=at + 1)
    )
    for is_admin, roles in ((True, {}), (False, {f"app/{app_id}": "viewer"})):
        browser, _ = await signed_in(house, house.build(), isAdmin=is_admin, roles=roles)
        page = await browser.get("")
        links = [each.get("href") or "" for each in tags_of(page, "a")]
        assert links.count(f"/ui/groups/{app_id}/all-zones") == 1
        assert "localized push, next UTC+14:00" in text_of(page)
        assert ">other</a>" in page.body.decode()


async def test_what_is_wrong_leads_to_what_mends_it(house: House) -> None:
    app_id, now = await house.app(), await house.store.now()
    await house.store.jobs.add(a_job(app_id=app_id, status=JobStatus.TRIPPED))
    failed = a_job(app_id=app_id, template_names=("broken",), created_at=ns(now), status=JobStatus.STOPPED)
    await house.store.closed_jobs.add([replace(failed, open=False, failure="no such table")])
    letter = DeadLetter(
        id="f" * 32, death="f" * 32,
        namespace="token:shop", key="order.17", schedule_id="s", generation="g", due=now, died_at=now,
        attempts=3, error="HTTP 503",
    )  # fmt: skip
    await house.store.dead_letters.add([letter])
    fresh = house.build()  # what others counted a second ago is another deployment's
    page = await Browser(fresh, headers={"x-forwarded-email": ADMIN}, peer=PROXY).get("")
    links = [each.get("href") for each in tags_of(page, "a")]
    assert "Start the process that is missing" in text_of(page)
    assert {"/ui/processes", "/ui/jobs?status=circuitbreak"} <= set(links)
    assert re.search(r'Devices failed, last hour</dt><dd><a href="/ui/jobs">0</a>', page.body.decode())
    assert f"/ui/dead-letters/{letter.id}?namespace=token%3Ashop" in links
    assert f"/ui/jobs/{app_id}/{failed.id}" in links
    partial, _ = await signed_in(house, fresh, isAdmin=False, roles={f"app/{app_id}": "viewer"})
    page = await partial.get("")
    links = [each.get("href") for each in tags_of(page, "a")]
    assert "Start the process that is missing" in text_of(page)
    assert ("/ui/processes" in links, "/ui/jobs?status=circuitbreak" in links) == (False, True)


async def test_who_sees_no_app_is_told_so(house: House) -> None:
    nobody, _ = await signed_in(house, isAdmin=False)
    for path in ("", "/jobs"):
        page = text_of(await nobody.get(path))
        assert ("you see no app yet" in page, "There are no jobs yet" in page) == (True, False)
    assert "tokens create NAME --admin" in text_of(await Browser(house.admin.app).get("/sign-in"))


async def test_a_record_tells_what_it_changed(house: House, admin: Browser) -> None:
    wanted = {"name": "audited-by-page", "bundleId": "com.example.before"}
    app_id = (await house.admin.post("/apps", wanted)).json["id"]
    await house.admin.put(f"/apps/{app_id}", wanted | {"bundleId": "com.example.after"})
    page = await admin.get(f"/audit?on={app_id}")
    text = page.body.decode()
    assert page.status == 200
    assert "<del>com.example.before</del> <ins>com.example.after</ins>" in text
    assert text.index("app.update") < text.index("app.create")
    assert "app.create" in text_of(await admin.get(f"/audit?app={app_id}&act=app.create"))
    assert "app.update" not in text_of(await admin.get(f"/audit?app={app_id}&act=app.create"))
    assert "matches these filters" in text_of(await admin.get("/audit?by=nobody"))


async def test_what_others_wrote_is_text(house: House, admin: Browser) -> None:
    who, on = Actor(namespace="user:h@example.com", name=HOSTILE), ActedOn(kind="job", id=HOSTILE, name=HOSTILE)
    id = "01f00000-0000-7000-8000-00000000000f"
    record = AuditRecord(id=id, at=EPOCH, act="job.stop", via=HOSTILE, reason=HOSTILE, who=who, on=on)
    await house.store.audit.begin(record)
    page = await admin.get("/audit?by=user:h@example.com")
    assert page.status == 200
    assert text_of(page).count(HOSTILE) >= 4
    assert HOSTILE not in page.body.decode()


async def test_settings_are_shown_without_secrets(house: House, admin: Browser) -> None:
    page = await admin.get("/settings")
    assert (page.status, "first_admin" in text_of(page)) == (200, True)
    assert house.servers.settings.bus.root_key not in page.body.decode()
    changed = text_of(await admin.get("/settings?changed=yes&q=first_admin"))
    assert ("first_admin" in changed, "max_body_bytes" in changed) == (True, False)
    assert "No setting matches" in text_of(await admin.get("/settings?q=nothing-like-it"))


async def test_a_viewer_sees_what_runs_and_none_of_the_rest(house: House) -> None:
    viewer, _ = await signed_in(house, isAdmin=False, roles={"*": "viewer"})
    page = await viewer.get("/processes")
    assert (page.status, "Settings" in text_of(page), "Audit" in text_of(page)) == (200, False, False)
    for path in ("/settings", "/audit"):
        assert (await viewer.get(path)).status == 403


async def test_code_in_the_meaning_of_a_setting_is_shown_as_code(admin: Browser) -> None:
    page = (await admin.get("/settings?q=management_url")).body.decode()
    assert "<code>carillon init</code>" in page
    assert "`" not in page
