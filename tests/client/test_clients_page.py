"""The Python examples of `docs/clients.md` run as they stand, one after the other, but for where the deployment is."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from carillon import AsyncCarillon, Credential, Template
from shared.jobs.rules.batches import Receipt, Totals
from tests.client.test_installed import run
from tests.deploy.manifests import ROOT
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/clients.md").read_text("utf-8"), re.DOTALL)
TOTALS = Totals(batches=1, settled=1, planned=10, sent=9, failed=1)


@pytest.mark.parametrize("each_client", [AsyncCarillon], indirect=True)
async def test_the_examples_do_what_they_show(client: AsyncCarillon, house: House, port: int, tmp_path: Path) -> None:
    app_id = await house.app()
    body = {"alert": "Welcome, {{name}}"}
    await client.templates.create(app_id, Template(name="welcome", locale="en", body=body, defaults={"name": "you"}))
    await client.credentials.create(app_id, Credential(name="mail", kind="sandbox", test_recipient="a@example.com"))
    (tmp_path / "people.csv").write_text("recipient,name\nana@example.com,Ana\n")
    own = {
        '"https://carillon.example.com", token="carillon_…"': f'"http://127.0.0.1:{port}", user="{ADMIN}"',
        'app_id = "…"': f'app_id = "{app_id}"',
        '"people.csv"': repr(str(tmp_path / "people.csv")),
    }
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'client')!r})\n" + "".join(EXAMPLES)
    for shown, given in own.items():
        assert program.count(shown) == 1
        program = program.replace(shown, given)
    ended = asyncio.create_task(_end_first_job(client, house, app_id))
    said = (await run(sys.executable, "-I", "-c", program)).splitlines()
    push = await ended
    assert said[:2] == ["10 devices []", "completed 9 sent, 1 failed"]
    assert said[2] == "unsent"
    assert len(said) == 5
    assert f"{push} completed" in said[3:]  # both jobs are of one moment of the test's clock


async def _end_first_job(client: AsyncCarillon, house: House, app_id: str) -> str:
    """End the push as its workers would; its id."""

    async def find() -> str:
        return next((job.id for job in [each async for each in client.jobs.list(app_id)]), "")

    job_id: str = await until(find, "the push")
    await house.store.jobs.close(job_id, totals=TOTALS, summed=Receipt(), completed_at=house.clock.now_ns())
    return job_id
