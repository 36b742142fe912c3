"""The OpenAPI document against the process, by chance: schemathesis makes requests that the document allows, and ones
that it forbids, of every operation. No answer is a fault of the server's, a status or a type that the document does not
name, or a body that is not what it says."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from schemathesis import Case, Config, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.security.operations import operations
from tests.security.target import Target
from tests.security.tenants import Tenant, Town, who_may

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("judged")]

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# What schemathesis checks besides and the API breaks on purpose, with the reason. Nothing else is left out.
ON_PURPOSE = {
    "positive_data_acceptance": "the rules say more than a schema can: instants lie ahead, cursors were given out, ids "
    "and keys are free, and filters do not go with a file",
    "negative_data_rejection": "as in Marathon, unknown fields and query parameters are ignored, and the items of a "
    "bulk request are answered one by one",
    "unsupported_method": "as in Marathon, a method that a protected path does not know is a 404",
    "missing_required_header": "no operation has one",
    "ignored_auth": "test_identity.py asks every operation as everybody",
    "use_after_free": "needs a chain of requests, which the tests of the API are made of",
    "ensure_resource_availability": "needs a chain of requests, which the tests of the API are made of",
}
FEW_EXAMPLES = 1
EXAMPLES = 3
STORM_EXAMPLES = 100
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.value))
async def test_the_process_does_as_its_document_says(
    target: Target, town: Town, document: dict[str, Any], seed: int, mode: GenerationMode
) -> None:
    tenant = await town.tenant()
    async with target.attack(f"what the document says, {mode.value}"):
        examples = EXAMPLES if target.judges else FEW_EXAMPLES
        fuzz = Fuzz(document, target.port, tenant, seed=seed, examples=examples)
        assert await asyncio.to_thread(fuzz.run, mode) == []


@pytest.mark.storm
async def test_the_process_does_as_its_document_says_for_long(
    target: Target, town: Town, document: dict[str, Any], seed: int, storm_seconds: float
) -> None:
    end = time.monotonic() + storm_seconds / 2
    while time.monotonic() < end:
        tenant = await town.tenant()
        for mode in MODES:
            async with target.attack(f"what the document says, {mode.value}, seed {seed}", seconds=1_200):
                fuzz = Fuzz(document, target.port, tenant, seed=seed, examples=STORM_EXAMPLES, end=end)
                assert await asyncio.to_thread(fuzz.run, mode) == []
        seed += 1


class Fuzz:
    """One pass over all operations: so many examples each, of ids by chance and of a tenant's. Blocks."""

    def __init__(
        self,
        document: Mapping[str, Any],
        port: int,
        tenant: Tenant,
        *,
        seed: int,
        examples: int,
        end: float = float("inf"),
    ) -> None:
        config = Config()
        # The callers are ours to choose.
        config.projects.default.generation.update(with_security_parameters=False)
        self._operations = {str(operation): operation for operation in operations(document)}
        self._schema = schemathesis.openapi.from_dict(dict(document), config=config)
        self._base_url = f"http://127.0.0.1:{port}"
        self._tenant = tenant
        self._seed = seed
        self._examples = examples
        self._end = end
        self.faults: list[str] = []

    def run(self, mode: GenerationMode) -> list[str]:
        """What was wrong, one line each."""
        for found in self._schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()
            names = [parameter.name for parameter in operation.path_parameters]
            own = {name: self._tenant.ids[name] for name in names}
            # Few ids by chance are anybody's.
            for ids in [own or None] if self._examples <= EXAMPLES or not own else [None, own]:
                if time.monotonic() < self._end:
                    self._try(operation.as_strategy(mode, path_parameters=ids), operation.label)
        return self.faults

    def _try(self, strategy: Any, label: str) -> None:
        try:
            self._given(strategy)()
        except hypothesis.errors.Unsatisfiable:
            pass  # nothing breaks a schema that allows all
        except Exception as error:  # noqa: BLE001 - a failed check, whose text tells how to repeat it
            self.faults.append(f"{label}: {_told(error)}")

    def _given(self, strategy: Any) -> Callable[[], None]:
        @hypothesis.seed(self._seed)
        @hypothesis.settings(
            max_examples=self._examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def run(case: Case[Any]) -> None:
            headers = who_may(self._operations[case.operation.label], self._tenant)
            reply = case.call(base_url=self._base_url, headers=headers, timeout=30)
            case.validate_response(reply, checks=CHECKS)

        return run


def _told(error: BaseException) -> str:
    """Each failed check of a group, and how to repeat it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"
