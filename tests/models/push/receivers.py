"""Who gets what the product sends: devices, whose receiver answers to each record, and the readers of mails."""

import json
from collections import Counter

from shared.jobs.rules.mails import Letter
from tests.models.push.transactions import Kafka, Sent

MAIL_DOMAIN = "example.com"
FEEDBACK_TOPIC = "shop-apns-feedbacks"
_GONE = 3


class Receiver:
    """Answers to each record that is out: every third device is gone."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        kafka.receive = self._receive

    def _receive(self, sent: Sent) -> None:
        self._kafka.publish(FEEDBACK_TOPIC, [_answer_to(json.loads(record)) for record in sent.records])


class Mailbox:
    """A mail server. `letters` counts how often it has taken each letter, by its id."""

    delivers = True

    def __init__(self, letters: Counter[str]) -> None:
        self._letters = letters

    async def send(self, letter: Letter) -> None:
        self._letters[letter.id] += 1

    async def verify(self) -> None:
        """It takes everybody's login."""

    async def close(self) -> None:
        """Nothing is open."""


def _answer_to(record: dict[str, dict[str, str]]) -> bytes:
    is_gone = int(str(record["DeviceToken"])) % _GONE == 0
    error = {"Err": {"Key": "Unregistered"}} if is_gone else {}
    return json.dumps({"metadata": {"jobId": record["metadata"]["jobId"]}, **error}).encode()
