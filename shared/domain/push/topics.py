"""Topics: the Kafka topics of an app's and a push service's records."""

import re

from shared.domain.accounts.apps import check_app_name
from shared.domain.errors import Invalid
from shared.domain.push.records import SERVICES

MAX_TOPIC_CHARACTERS = 249


_TOPIC = re.compile(r"[A-Za-z0-9._-]+")


def topic_name(template: str, app_name: str, service: str) -> str:
    """The topic of an app and a service: they fill the two `%s` of the template, or of the service's own one, in that
    order."""
    check_app_name(app_name)
    parts = (SERVICES[service].topic_template or template).split("%s")
    name = f"{app_name.join(parts[:2])}{service}{parts[-1]}"
    if len(parts) != 3 or len(name) > MAX_TOPIC_CHARACTERS or not _TOPIC.fullmatch(name):
        rule = f"needs exactly two %s and makes up to {MAX_TOPIC_CHARACTERS} letters, digits, '.', '-' and '_'"
        raise Invalid(f"the topic template {rule}", field="topic_template", value=template)
    return name


def topic_pattern(template: str) -> str:
    """A regular expression for all topic names that `topic_name` makes from this template."""
    templates = {service.topic_template or template for service in SERVICES.values()}
    return "|".join(".+".join(map(re.escape, template.split("%s"))) for template in sorted(templates))
