"""A customer of the HTTP API, as small as the demo and the seed need one."""

import logging
from types import TracebackType
from typing import Any, Self

import httpx

from shared.domain.errors import Refused, Unavailable

Object = dict[str, Any]

_PATIENCE_SECONDS = 15.0


class Customer:
    """Calls the API as one identity. Raises `Refused` for what the API refuses, `Unavailable` for what it does not
    answer."""

    def __init__(self, api: str, headers: dict[str, str]) -> None:
        self.api = api.rstrip("/")
        # httpx would log a line per request, and polling makes many.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._http = httpx.AsyncClient(
            base_url=self.api, headers=headers, timeout=_PATIENCE_SECONDS, trust_env=False, follow_redirects=True
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def app(self, name: str) -> Object:
        """The app of this name, made if it is missing."""
        bundle_id = f"com.example.{''.join(filter(str.isalnum, name.lower())) or 'app'}"
        for app in await self._list_all("/apps"):
            if app["name"] == name and app["bundleId"] == bundle_id:
                return app
        created: Object = await self._call("POST", "/apps", json={"name": name, "bundleId": bundle_id})
        return created

    async def templates(self, app_id: str, wanted: list[Object]) -> None:
        """Make those of the templates that the app lacks."""
        path = f"/apps/{app_id}/templates"
        present = {(template["name"], template["locale"]) for template in await self._list_all(path)}
        missing = [template for template in wanted if (template["name"], template["locale"]) not in present]
        if missing:
            await self._call("POST", path, params={"multiple": "true"}, json=missing)

    async def credential(self, app_id: str, wanted: Object) -> None:
        """Make the credential, unless the app has one of its name."""
        path = f"/apps/{app_id}/credentials"
        if wanted["name"] not in {credential["name"] for credential in await self._list_all(path)}:
            await self._call("POST", path, json=wanted)

    async def upload(self, content: bytes) -> str:
        """Bring a file to where jobs find it: the path for them."""
        place = await self._call("GET", "/uploadurl")
        await self._send("PUT", place["url"], content=content)
        return str(place["csvPath"])

    async def start(self, app_id: str, template: str, job: Object) -> Object:
        """Start a job."""
        started: Object = await self._call("POST", f"/apps/{app_id}/jobs", params={"template": template}, json=job)
        return started

    async def job(self, app_id: str, job_id: str) -> Object:
        """The job as it stands."""
        found: Object = await self._call("GET", f"/apps/{app_id}/jobs/{job_id}")
        return found

    async def _list_all(self, path: str) -> list[Object]:
        """The items of a list, from all of its pages."""
        found: list[Object] = []
        following: str | None = path
        while following:
            response = await self._send("GET", following)
            found += response.json()
            following = response.links.get("next", {}).get("url")
        return found

    async def _call(self, method: str, path: str, **request: Any) -> Any:
        return (await self._send(method, path, **request)).json()

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"the API at {self.api} does not answer: {str(error) or type(error).__name__}") from error
        if response.is_error:
            raise Refused(f"{method} {path} was answered with {response.status_code}: {_reason(response)}")
        return response


def _reason(response: httpx.Response) -> str:
    try:
        problem = response.json()
        return str(problem.get("reason") or problem.get("detail") or problem)
    except (ValueError, AttributeError):
        return response.text[:200]
