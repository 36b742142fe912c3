"""`/settings`: what this process of the API was told, without secrets."""

from http import HTTPStatus

from litestar import Response
from msgspec import Struct

from services.api.http import wire
from services.api.http.rights import ADMIN
from services.api.http.routes import Resource, Route
from shared.runtime.configuration import list_settings
from shared.runtime.settings import Settings


class SettingView(Struct, frozen=True, kw_only=True):
    """A setting. `value` and `default` are as a settings file has them, with secrets masked; `rare` ones few
    deployments change. Which processes have other settings, `settingsDigest` of `/processes` tells."""

    name: str
    value: str
    default: str
    sentence: str
    rare: bool


class SettingsResource(Resource):
    """The route that shows the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @Route(
        "GET", "/settings", summary="List the settings of the API process that answers, with secrets masked.",
        who=ADMIN, answers={HTTPStatus.OK: list[SettingView]},
    )  # fmt: skip
    async def list_settings(self) -> Response[bytes]:
        return wire.answer(
            [
                SettingView(**{name: getattr(each, name) for name in SettingView.__struct_fields__})
                for each in list_settings(self._settings)
            ]
        )
