"""A resource's handlers are its methods under a `Route`."""

from http import HTTPStatus

import pytest
from litestar import Response
from litestar.types import Empty

from services.api.http.acts import UNRECORDED
from services.api.http.rights import ADMIN, KNOWN
from services.api.http.routes import Resource, Route


class TowerResource(Resource):
    def __init__(self, largest: int) -> None:
        self.largest = largest

    @Route("GET", "/towers", summary="List the towers.", who=KNOWN, answers={HTTPStatus.OK: str})
    async def list_towers(self) -> Response[str]:
        return self._answer("towers")

    def _answer(self, text: str) -> Response[str]:
        return Response(f"{text} of {self.largest}")

    @Route(
        "PUT", "/bells", summary="Cast a bell.",
        act=UNRECORDED, who=ADMIN, answers={HTTPStatus.OK: str}, max_body_bytes=lambda tower: tower.largest,
    )  # fmt: skip
    async def cast(self) -> Response[str]:
        return self._answer("bells")

    @Route(
        "DELETE", "/bells", summary="Melt a bell.",
        act=UNRECORDED, who=ADMIN, answers={HTTPStatus.OK: str}, max_body_bytes=7,
    )  # fmt: skip
    async def abolish(self) -> Response[str]:
        return self._answer("nothing")


def test_the_methods_under_a_route_are_handled_in_the_order_of_their_definition() -> None:
    handlers = TowerResource(100).handlers()
    assert [(handler.handler_name, handler.opt["who"]) for handler in handlers] == [
        ("list_towers", KNOWN), ("cast", ADMIN), ("abolish", ADMIN),
    ]  # fmt: skip
    assert [(*handler.http_methods, *handler.paths) for handler in handlers] == [
        ("GET", "/towers"), ("PUT", "/bells"), ("DELETE", "/bells"),
    ]  # fmt: skip


async def test_a_handler_is_of_the_resource_that_it_came_from() -> None:
    small, large = TowerResource(100).handlers(), TowerResource(2_000).handlers()
    assert [handler.request_max_body_size for handler in small] == [Empty, 100, 7]
    assert [handler.request_max_body_size for handler in large] == [Empty, 2_000, 7]
    assert (await large[1].fn()).content == "bells of 2000"


def test_whatever_changes_something_says_which_act_it_is() -> None:
    class SilentResource(Resource):
        @Route("POST", "/bells", summary="Hang up a bell.", who=ADMIN, answers={HTTPStatus.OK: str})
        async def add(self) -> Response[str]:
            return Response("")

    with pytest.raises(ValueError, match="POST /bells does not say which act it is"):
        SilentResource().handlers()
