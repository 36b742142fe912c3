"""What must hold beside the records: the breaker holds whom it should, groups move as one, feedback is counted once,
and mails are sent."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from shared.core.errors import Unavailable
from shared.drivers.mongo.documents import Document
from shared.jobs.rules.batches import BatchStatus, Counts, breaks
from shared.jobs.rules.jobs import PAUSABLE, RESUMABLE, STOPPABLE, JobStatus
from shared.jobs.rules.mails import MailKind, letter_id
from shared.push.rules.feedback import CountedPush, read
from tests.models.push.processes import MOST_FAILED, ModelServers
from tests.models.push.promise import Promise
from tests.models.push.receivers import FEEDBACK_TOPIC, MAIL_DOMAIN
from tests.models.push.weather import Weather
from tests.models.simulated.simulation import Step
from tests.models.simulated.worlds import Broken

_MOVABLE = {"pause": PAUSABLE, "resume": RESUMABLE, "stop": STOPPABLE}
_MAILS = {JobStatus.TRIPPED: MailKind.TRIPPED, JobStatus.COMPLETED: MailKind.COMPLETED}
_MAILS_OF_USERS = {JobStatus.PAUSED: MailKind.PAUSED, JobStatus.STOPPED: MailKind.STOPPED}


class SidePromises:
    """What is known so far of moves, feedback and mails. `struck` counts the troubles that came."""

    def __init__(self, servers: ModelServers, weather: Weather, struck: Mapping[str, int]) -> None:
        self._servers = servers
        self._weather = weather
        self._struck = struck
        self._stood: defaultdict[str, list[JobStatus]] = defaultdict(list)
        self._due = Counter[str]()  # moves in one instant share a letter's id
        self._answers_lost = 0
        self._unmoved: list[str] = []
        # Of a group, the mail about one job tells of all that a user does.
        self._mails = _MAILS if weather.grouped else _MAILS | _MAILS_OF_USERS

    def check_step(self, step: Step) -> None:
        """Count the lost answers, and look whether a mail was sent that nobody needs."""
        if step.name.startswith("mail") and isinstance(step.answer.exception(), Unavailable):
            self._answers_lost += 1

    def check(self) -> None:
        """Whether all moves of groups were whole, and no mail came more often than troubles excuse."""
        if self._unmoved:
            raise Broken(Promise.UNMOVED, self._unmoved)
        excuses = self._answers_lost + sum(self._struck[name] for name in ("dies", "sleeps", "hurry"))
        for letter, times in self._servers.letters.items():
            if letter not in self._due:
                raise Broken(Promise.REPEATED, f"{letter} tells of nothing")
            if times > self._due[letter] + excuses:
                raise Broken(Promise.REPEATED, f"{letter} is sent {times} times, excused are {excuses}")

    def see_job(self, job: Document, before: Document | None, plan: Sequence[Document]) -> None:
        """A job as it is now, and as it was."""
        self._due.update(_letters(job) - _letters(before or {}))
        status = JobStatus(job["status"])
        if before is not None and status == before["status"]:
            return
        self._stood[job["_id"]].append(status)
        if before is not None:
            self._check_breaker(job, before, plan)
            kind = self._mails.get(status)
            if self._weather.mailed and kind and kind not in {mail["kind"] for mail in job["mails"]}:
                raise Broken(Promise.UNTOLD, f"{job['_id']} is {status}, due are {job['mails']}")

    def begin_move(self, job_ids: Collection[str]) -> dict[str, int]:
        """How these jobs stand before a move of their group, for `end_move`."""
        return {job_id: max(len(self._stood[job_id]) - 1, 0) for job_id in job_ids}

    def end_move(self, verb: str, begun: Mapping[str, int]) -> None:
        """The move has succeeded: each job stood meanwhile where it could not be moved so, if only for a moment."""
        for job_id, first in begun.items():
            stood = self._stood[job_id][first:]
            if all(status in _MOVABLE[verb] for status in stood):
                self._unmoved.append(f"{verb} has left {job_id}: {stood}")

    def check_feedback(self, jobs: Mapping[str, Document]) -> None:
        """What the jobs have counted is what lies before the stored position, no more and no less."""
        counted = Counter[tuple[str, str]]()
        for value in self._servers.kafka.logs.get(FEEDBACK_TOPIC, ())[: self._position()]:
            record = read(value)
            assert isinstance(record, CountedPush)
            counted[record.job_id, record.outcome] += 1
        stored = {
            (job_id, outcome): count for job_id, job in jobs.items() for outcome, count in job["feedbacks"].items()
        }
        if stored != counted:
            raise Broken(Promise.COUNTED, f"{stored}, read were {dict(counted)}")

    def waits(self, jobs: Mapping[str, Document]) -> bool:
        """Whether mails are still to be sent, or feedback is to be counted."""
        behind = self._weather.heard and self._position() < len(self._servers.kafka.logs.get(FEEDBACK_TOPIC, ()))
        return behind or any(job.get("mails") for job in jobs.values())

    def check_end(self) -> None:
        """Whether each mail that was ever due was sent."""
        if unsent := self._due.keys() - self._servers.letters.keys():
            raise Broken(Promise.UNTOLD, unsent)

    def _check_breaker(self, job: Document, before: Document, plan: Sequence[Document]) -> None:
        """A job is held because of its failures and for no other reason, and is not completed in spite of them."""
        if job["status"] not in {JobStatus.TRIPPED, JobStatus.COMPLETED}:
            return
        batches = [batch["status"] for batch in plan if "size" in batch]
        counts = Counts(len(batches), len(batches), batches.count(BatchStatus.FAILED))
        is_broken = breaks(counts, forgiven=before.get("forgiven", 0), planned=True, max_failed_share=MOST_FAILED)
        if is_broken is not (job["status"] == JobStatus.TRIPPED):
            raise Broken(Promise.UNHELD, f"{job['_id']} is {job['status']}: {counts}, forgiven {before['forgiven']}")

    def _position(self) -> int:
        found = self._servers.database.documents("feedback_positions")
        return next((int(each["position"]) for each in found if each["_id"] == f"{FEEDBACK_TOPIC}/0"), 0)


def _letters(job: Document) -> set[str]:
    """The ids of the mails that a job makes due."""
    return {letter_id(_key(job), MailKind(mail["kind"]), mail["at"], MAIL_DOMAIN) for mail in job.get("mails", ())}


def _key(job: Document) -> str:
    return f"{job['_id']}.{job['incarnation']}"
