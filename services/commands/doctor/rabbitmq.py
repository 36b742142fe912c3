"""The questions to RabbitMQ."""

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from services.commands.doctor.examination import ADDRESS, ROUND_TRIP, TLS, Address, Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, name_some, warn, well
from services.commands.doctor.shell import INIT, chain, command
from shared.broker.rabbitmq.inspection import NoVirtualHost, RabbitInspection, RuledBy
from shared.domain.errors import Denied

MANAGEMENT = "RabbitMQ's management"
_PORTS = {"amqp": 5672, "amqps": 5671}


class RabbitMq(Examination):
    """The broker. `queues` are those of our tasks."""

    of = "RabbitMQ"
    setting = "broker.url"

    def __init__(self, url: str, inspection: RabbitInspection, queues: Sequence[str], *, management_url: str) -> None:
        parts = urlsplit(url)
        self._manager = unquote(urlsplit(management_url).username or "guest")
        self._inspection = inspection
        self._queues = tuple(queues)
        self.addresses = [Address(parts.hostname or "localhost", parts.port or _PORTS[parts.scheme])]
        self.uses_tls = parts.scheme == "amqps"
        self.where = f"{self.addresses[0]}, virtual host {inspection.vhost}"

    async def check_login(self) -> Opinions:
        """It lets us in, and has our virtual host."""
        try:
            version = await self._inspection.read_version()
        except NoVirtualHost as error:
            return fault(str(error), INIT)
        except Denied as error:
            change = command("rabbitmqctl", "change_password", self._inspection.user, "<its password>")
            return fault(str(error), change)
        return well(f"RabbitMQ {version} lets us in")

    async def check_rights(self) -> Opinions:
        """Our user may do all that we do."""
        try:
            rights = await self._inspection.read_rights(self._queues)
        except Denied:
            return self._unknown("whether we have all rights")
        user = self._inspection.user
        if not rights.missing:
            return well(f"{user} may do all that Carillon does")
        patterns = (rights.configure, rights.write, rights.read)
        change = command("rabbitmqctl", "set_permissions", "-p", self._inspection.vhost, user, *patterns)
        return fault(f"{user} may not {name_some(rights.missing)}", change)

    async def ping(self) -> None:
        await self._inspection.ping()

    async def check_queues(self) -> Opinions:
        """Every queue is there."""
        found = await self._inspection.find_queues(self._queues)
        missing = [name for name, queue in found.items() if queue is None]
        if missing:
            return fault(f"missing: {name_some(missing)}", INIT)
        return well(f"all {len(found)} are there")

    async def check_types(self) -> Opinions:
        """Every queue survives a node."""
        others = await self._inspection.find_other_types(self._queues)
        if not others:
            return well("all are quorum queues")
        delete = [command("rabbitmqctl", "delete_queue", "-p", self._inspection.vhost, name) for name in others]
        said = name_some([f"{name} is {kind}" for name, kind in others.items()])
        return fault(f"not quorum queues: {said}. What waits in them is queued again later", chain(*delete, INIT))

    async def check_consumers(self) -> Opinions:
        """Workers take from every queue."""
        found = await self._inspection.find_queues(self._queues)
        idle = [name for name, queue in found.items() if queue is not None and not queue.consumers]
        if not idle:
            return well("workers take from every queue")
        return warn(f"no worker takes from {name_some(idle)}", "carillon worker")

    async def check_policies(self) -> Opinions:
        """Our policies rule our queues."""
        return judge_policies(await self._inspection.find_unruled(self._queues), self._inspection.vhost)

    async def check_alarms(self) -> Opinions:
        """It takes messages."""
        try:
            alarms = await self._inspection.find_alarms()
        except Denied:
            return self._unknown("whether a node is short of something")
        if not alarms:
            return well("no node is short of memory or disk space, or away")
        short = name_some([f"{alarm.node} is short of {alarm.of}" for alarm in alarms if alarm.of])
        away = name_some([f"{alarm.node} is away" for alarm in alarms if not alarm.of])
        blocked = f"{short}: RabbitMQ takes no message until there is more" if short else ""
        return fault("; ".join(sentence for sentence in (blocked, away) if sentence))

    def _unknown(self, what: str) -> Opinions:
        tag = command("rabbitmqctl", "set_user_tags", self._manager, "administrator")
        return warn(f"the management API does not tell {self._manager} {what}", tag)

    questions = (
        ADDRESS,
        Question(
            "login",
            "RabbitMQ accepts the user and the password of `broker.url`, and has its virtual host. `carillon init` "
            "makes one that is missing.",
            check_login,
            first=True,
        ),
        ROUND_TRIP,
        TLS,
        Question(
            "rights",
            "The user may read the queues of tasks with their dead letters, and write to `amq.default`: processes need "
            "no more (`docs/security.md`). Only an administrator of the management API may ask: other users get "
            "a warning.",
            check_rights,
            needs=(MANAGEMENT,),
        ),
        Question(
            "queues",
            "Every queue of tasks and its dead-letter queue are there. `carillon init` makes them.",
            check_queues,
        ),
        Question(
            "types",
            "They are quorum queues: any other queue loses its messages with its node.",
            check_types,
            needs=(MANAGEMENT,),
        ),
        Question(
            "consumers", "Workers take from every queue. If not, no worker runs, or none is connected.", check_consumers
        ),
        Question(
            "policies",
            "The policy of the highest priority on each queue has the values that Carillon needs. RabbitMQ applies "
            "only that one, so another policy can displace Carillon's.",
            check_policies,
            needs=(MANAGEMENT,),
        ),
        Question(
            "alarms",
            "All nodes run, and none is short of memory or disk space: one that is stops all publishing. Only a user "
            "with the tag `monitoring` may ask.",
            check_alarms,
            needs=(MANAGEMENT,),
        ),
    )


class RabbitManagement(Examination):
    """The management API, which a process can do without, and `carillon init` and this command cannot."""

    of = MANAGEMENT
    setting = "broker.management_url"

    def __init__(self, url: str, inspection: RabbitInspection) -> None:
        parts = urlsplit(url)
        self._inspection = inspection
        self.uses_tls = parts.scheme == "https"
        self.addresses = [Address(parts.hostname or "localhost", parts.port or (443 if self.uses_tls else 80))]
        self.where = str(self.addresses[0])

    async def check_login(self) -> Opinions:
        """It lets us in."""
        return well(f"the management API of RabbitMQ {await self._inspection.read_management_version()} lets us in")

    questions = (
        ADDRESS,
        Question(
            "login",
            "The management API accepts the user and the password of `broker.management_url`; the user needs the tag "
            "`management` at least.",
            check_login,
            first=True,
        ),
        TLS,
    )


def judge_policies(unruled: Sequence[RuledBy], vhost: str) -> Opinions:
    """Remedies for queues that are ruled by other policies."""
    if not unruled:
        return well("ours rule every queue")
    opinions: list[Opinion] = []
    for policy in dict.fromkeys(ruled.policy for ruled in unruled if ruled.beats_ours):
        queues = [ruled for ruled in unruled if ruled.policy == policy]
        priority = queues[0].priority
        said = f"the policy {policy} (priority {priority}) displaces ours on {name_some([one.queue for one in queues])}"
        clear = command("rabbitmqctl", "clear_policy", "-p", vhost, str(policy))
        opinions += fault(said, chain(clear, INIT))
    if others := [ruled.queue for ruled in unruled if not ruled.beats_ours]:
        opinions += fault(f"ours is missing, or is another one, on {name_some(others)}", INIT)
    return opinions
