"""The examples of the client's README run as they stand, but for where the deployment is and who asks."""

import re
import sys

import pytest

from tests.client.made import fresh_key
from tests.client.test_installed import run
from tests.deploy.manifests import ROOT
from tests.services.api.client import ADMIN

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "client/README.md").read_text(), re.DOTALL)
ARGUMENTS = '"https://carillon.example.com", token="carillon_…"'


@pytest.mark.parametrize("example", EXAMPLES, ids=["sync", "async"])
async def test_an_example_does_what_it_shows(example: str, port: int) -> None:
    assert ARGUMENTS in example
    key = fresh_key()
    found = f"import sys; sys.path.append({str(ROOT / 'client')!r})\n"
    program = example.replace(ARGUMENTS, f'"http://127.0.0.1:{port}", user="{ADMIN}"').replace("reminder-", key)
    assert await run(sys.executable, "-I", "-c", found + program) == f"{key}42 active\n"
