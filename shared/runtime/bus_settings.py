"""The settings of the bus: where its log is, how receivers are treated, and how much everybody may have."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.runtime.server_settings import Count, Name, Seconds, Section, rarely, says

Days = Annotated[float, Meta(ge=0.01, le=3_650)]


class BusSettings(Section, frozen=True):
    """The bus: services publish events on topics, and subscriptions get them in batches over HTTP."""

    root_key: Annotated[
        str,
        Meta(pattern=r"^([a-z0-9:_-]{16,64})?\Z"),
        says(
            "The user name by which Routemaster's API knows its administrator: 16 characters or more of a to z, 0 to "
            "9, `:`, `_` and `-`; empty: admins' tokens only."
        ),
    ] = ""
    log_days: Annotated[
        Days,
        says(
            "How long the log keeps events for fan-outs that fall behind. `carillon init` sets it when it makes the "
            "topic; processes refuse a log that forgets earlier."
        ),
    ] = 7.0
    suspend_after_days: Annotated[
        Days, says("A subscription whose receiver did nothing but fail for so long is suspended.")
    ] = 5.0
    anybody_deletes_topics: Annotated[
        bool, says("Whether every client of Routemaster's API may delete any topic, as there, or only its own.")
    ] = False
    allow_http: Annotated[bool, says("Whether receivers may be called without TLS: for laptops and tests.")] = False
    scaling_threshold: Annotated[
        Count, says("From how many batches that are due on GET /pulse/scaling answers late: a sign to add workers.")
    ] = 100

    log_topic: Annotated[Name, rarely("The topic that is the log. Each Carillon on a cluster has one of its own.")] = (
        "carillon.bus"
    )
    log_partitions: Annotated[
        int,
        Meta(ge=1, le=256),
        rarely(
            "Its partitions when it is made: so many fan-outs can share it. Never change those of a log in use: the "
            "events of one URL would go to another partition, and overtake each other."
        ),
    ] = 16
    group: Annotated[Name, rarely("The consumer group of the fan-outs.")] = "carillon-fanout"
    on_new_log: Annotated[
        Literal["beginning", "end"],
        rarely("The place where fan-outs begin in a replaced log: beginning or end."),
    ] = "beginning"
    publish_seconds: Annotated[
        Seconds, rarely("How long publishing may wait for the log. Routemaster's client waits 5 seconds.")
    ] = 4.0
    scaling_deadline_ms: Annotated[
        int, Meta(ge=0, le=60_000), rarely("How far ahead GET /pulse/scaling looks for batches that come due.")
    ] = 1_000
    routemaster_data_bytes: Annotated[
        int, Meta(ge=0, le=2**20), rarely("The most that `data` of Routemaster's events may have, as MessagePack.")
    ] = 64
    data_bytes: Annotated[
        int, Meta(ge=0, le=2**19), rarely("The most that `data` of an event of the native API may have, as JSON.")
    ] = 16 * 1024
    max_backoff_ms: Annotated[
        int, Meta(ge=1, le=600_000), rarely("The longest pause between two attempts to reach a receiver that fails.")
    ] = 60_000
    heal: Annotated[int, Meta(ge=1, le=100), rarely("Points of health that a success is worth; 100 are all.")] = 1
    damage: Annotated[int, Meta(ge=1, le=100), rarely("Points of health that a failure costs.")] = 2
    call_seconds: Annotated[Seconds, rarely("How long the delivery of one batch may take in all.")] = 20.0
    calls_in_flight: Annotated[Count, rarely("Receivers that a worker calls at the same time.")] = 1_000
    slow_calls_in_flight: Annotated[Count, rarely("Maximum slow or failing receivers among them.")] = 200
    topics_per_namespace: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        rarely("Topics that a namespace may own, roughly: concurrent claims may exceed it. Owners of more keep them."),
    ] = 1_000
    subscriptions_per_namespace: Annotated[
        int, Meta(ge=1, le=1_000_000), rarely("Subscriptions that a namespace may have.")
    ] = 1_000
    topics_per_subscription: Annotated[int, Meta(ge=1, le=10_000), rarely("Topics that a subscription may name.")] = (
        1_000
    )
    topics_of_subscriptions: Annotated[
        int,
        Meta(ge=1, le=10_000_000),
        rarely("Topics that a namespace's subscriptions may name together: fan-outs have all of them in memory."),
    ] = 10_000
    backlog_events: Annotated[
        int,
        Meta(ge=1_000, le=10**9),
        rarely("Events that may wait in no delivery for one subscription; beyond that the oldest are lost, and told."),
    ] = 1_000_000
    backlog_bytes: Annotated[int, Meta(ge=2**20, le=2**40), rarely("Bytes that these may have together.")] = 2**30
    delivery_days: Annotated[Days, rarely("How long a delivery that is done is remembered, without its events.")] = 3.0
    deliveries_kept: Annotated[
        int, Meta(ge=1, le=10**7), rarely("How many of these of one subscription are, the latest ones.")
    ] = 10_000
    dead_letter_days: Annotated[Days, rarely("How long a dead letter is kept with its events.")] = 30.0
