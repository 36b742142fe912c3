"""The registry of push services is open: what the documentation shows works as it stands there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.api.jobs.job_body import JobBody, check
from shared.audience.rules.audiences import table_name
from shared.audience.rules.devices import Devices
from shared.core.errors import Invalid
from shared.push.rules.records import SERVICES, topic_name
from shared.push.rules.rendering import Renderer
from tests.push.rules.test_rendering import NOW, a_job

PAGE = Path(__file__).parents[3] / "docs" / "adding-a-push-service.md"


@pytest.fixture
def web() -> Iterator[None]:
    """The example of the page."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    known = dict(SERVICES)
    exec(example, {})
    yield
    SERVICES.clear()
    SERVICES.update(known)


@pytest.mark.usefixtures("web")
def test_a_further_service_is_one_entry() -> None:
    check(JobBody(service="web"), now=1)
    assert table_name("Game", "web") == "game_web"
    assert topic_name("push-%s_%s-massive", "game", "web") == "push-game_web-massive"
    rendered = Renderer(a_job(service="web")).render(Devices.of([(7, "u7", "the-token", "en")]), now=NOW)
    record = json.loads(rendered.records[0])
    assert (record["endpoint"], record["metadata"]["userId"], record["ttl"]) == ("the-token", "u7", 3600)
    spared = Renderer(a_job(service="web", metadata={"dryRun": True}))
    record = json.loads(spared.render(Devices.of([(7, "u7", "t", "en")]), now=NOW).records[0])
    assert record["endpoint"].startswith("FAKE-")
    assert len(record["endpoint"]) == len("FAKE-") + 120


@pytest.mark.usefixtures("web")
def test_it_may_have_topics_of_its_own() -> None:
    SERVICES["web"] = replace(SERVICES["web"], topic_template="browsers-%s-%s")
    assert topic_name("push-%s_%s-massive", "game", "web") == "browsers-game-web"
    assert topic_name("push-%s_%s-massive", "game", "apns") == "push-game_apns-massive"


def test_a_service_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Invalid, match="it must be apns or gcm"):
        check(JobBody(service="web"), now=1)
