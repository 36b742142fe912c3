"""Topics: the names that Kafka takes, and how they are recognised."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.core.errors import Invalid
from shared.push.rules.records import SERVICES, topic_name, topic_pattern

TEMPLATE = "push-%s_%s-massive"
names = st.from_regex(r"[A-Za-z0-9_-]{1,50}", fullmatch=True)
templates = st.builds("{}%s{}%s{}".format, *[st.from_regex(r"[A-Za-z0-9._-]{0,9}", fullmatch=True)] * 3)


@given(templates, names, st.sampled_from(sorted(SERVICES)))
def test_a_topic_is_the_template_with_app_and_service_in_it(template: str, app: str, service: str) -> None:
    assert topic_name(template, app, service) == template % (app, service)


@given(names, st.sampled_from(sorted(SERVICES)), st.text(max_size=9))
def test_the_pattern_knows_the_topics_of_its_template_and_no_others(app: str, service: str, around: str) -> None:
    name = topic_name(TEMPLATE, app, service)
    assert re.fullmatch(topic_pattern(TEMPLATE), name)
    assert not re.fullmatch(topic_pattern("push.%s.%s"), name)
    assert bool(re.fullmatch(topic_pattern(TEMPLATE), f"{around}{name}")) is (around == "")


def test_a_service_may_have_topics_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVICES, "web", replace(SERVICES["apns"], topic_template="browsers.%s.%s"))
    topics = [topic_name(TEMPLATE, "game", service) for service in SERVICES]
    assert topics == ["push-game_apns-massive", "push-game_gcm-massive", "browsers.game.web"]
    assert all(re.fullmatch(topic_pattern(TEMPLATE), topic) for topic in topics)
    assert not re.fullmatch(topic_pattern(TEMPLATE), "browsers-game-web")


@pytest.mark.parametrize(
    "template", ["push-%s-massive", "push", "", "%s-%s-%s", "push %s-%s", "push/%s-%s", "ü%s%s", "%s%s" + "x" * 242]
)
def test_a_template_that_makes_no_topic_is_refused(template: str) -> None:
    with pytest.raises(Invalid) as refused:
        topic_name(template, "game", "apns")
    assert (refused.value.field, refused.value.value) == ("topic_template", template)


def test_a_topic_has_as_many_characters_as_kafka_takes() -> None:
    template = "%s%s" + "x" * (249 - len("gameapns"))
    assert len(topic_name(template, "game", "apns")) == 249


@pytest.mark.parametrize("app", ["", "a b", "a.b", "%s"])
def test_an_app_whose_name_breaks_its_rule_has_no_topic(app: str) -> None:
    with pytest.raises(Invalid) as refused:
        topic_name(TEMPLATE, app, "apns")
    assert refused.value.field == "name"
