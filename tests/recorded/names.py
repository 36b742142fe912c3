"""Names that others use: queues, topics, collections, indexes, metrics, settings, and the OpenAPI document."""

from typing import Any

from prometheus_client import CollectorRegistry

from services.wiring.process import build_service
from services.wiring.schedulers import handlers_of_due
from shared.console.rules.signs import ROLES
from shared.runtime import metrics
from shared.runtime.configuration import describe
from tests.recorded.recorder import show
from tests.recorded.world import World


async def record_names(world: World) -> dict[str, str]:
    rooms, database = world.rooms, world.database.database
    indexes = []
    for name in sorted(database.list_collection_names()):
        for index in sorted(database[name].list_indexes(), key=lambda each: str(each["name"])):
            fields = {key: dict(value) if key == "key" else value for key, value in index.items() if key != "v"}
            indexes.append(f"{name} {show(fields, None)}")
    queues = sorted(f"{queue} {stage.task.__name__}" for queue, stage in world.stages.items())
    queues += sorted(await _queue_names(world))
    due = sorted(handlers_of_due(rooms))
    files = {
        "names/queues.txt": queues,
        "names/owners-of-occurrences.txt": due,
        "names/topics.txt": sorted(f"{name} {topic!r}" for name, topic in rooms.bus.stream_topics.items()),
        "names/collections-and-indexes.txt": indexes,
        "names/metrics.txt": _metrics(metrics.REGISTRY),
        "names/settings.txt": describe(world.rooms.servers.settings).splitlines(),
        "names/processes.txt": sorted(_components(world)),
    }
    texts = {name: "\n".join(lines) + "\n" for name, lines in files.items()}
    return texts | _openapi(world.document)


async def _queue_names(world: World) -> list[str]:
    return [f"{queue.name} (of the broker)" for queue in await world.rooms.servers.broker.list_queues()]


def _components(world: World) -> list[str]:
    built = {process: build_service(process, world.rooms) for process in ROLES}
    return [f"{process}: {component.name}" for process, components in built.items() for component in components]


def _metrics(registry: CollectorRegistry) -> list[str]:
    """Each with its type, its labels, its buckets and its sentence."""
    found = []
    collectors: set[Any] = set(registry._collector_to_names)
    for collector in collectors:
        if (name := getattr(collector, "_name", "")).startswith("carillon_"):
            labels = ",".join(collector._labelnames)
            buckets = getattr(collector, "_kwargs", {}).get("buckets") or getattr(collector, "_upper_bounds", "")
            found.append(
                f"{name} {type(collector).__name__} {{{labels}}} {collector._documentation} {buckets or ''}".rstrip()
            )
    return sorted(found)


def _openapi(document: dict[str, Any]) -> dict[str, str]:
    """One file for each path, one for each schema's first letter, and one for the rest."""
    rest = {key: value for key, value in document.items() if key not in {"paths", "components"}}
    files = {"names/openapi/document.txt": show(rest) + "\n"}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{path} {method.upper()}".strip("/").replace("/", "_")
            files[f"names/openapi/routes/{name}.txt"] = show(operation) + "\n"
    for kind, found in document["components"].items():
        for name, value in found.items():
            files[f"names/openapi/{kind}/{name}.txt"] = show(value) + "\n"
    return files
