"""Kafka's side: transactions that end, markers that show, producers that are fenced."""

from typing import Any

from tests.domain.protocol.world import Actor, Flaw, Lane, Piece, Rules, World


def ended(world: World, lane: Lane, commit: bool, *, lagging: bool = False) -> World:
    """The transaction is committed, or rolled back."""
    if not commit:
        return with_lane(world, lane._replace(content=(), asked=False))
    records = tuple((piece.ordinal, piece.part, piece.receipt) for piece in lane.content if piece.records)
    markers = tuple(piece for piece in lane.content if piece.marker)
    world = world._replace(topic=tuple(sorted((*world.topic, *records))))
    world = superseded(world, {slot_of(world, piece) for piece in markers})
    world = with_lane(world, lane._replace(content=(), asked=False, hidden=markers))
    return world if lagging else shown(world, lane.id)


def slot_of(world: World, piece: Piece) -> int:
    """The slot that the marker is for."""
    return piece.ordinal % len(world.markers)


def superseded(world: World, slots: set[int]) -> World:
    """Earlier markers of these slots that nobody saw are never seen.

    Of two, Kafka keeps the one that was written later, even where the earlier one's transaction is completed last.
    """
    for lane in world.lanes:
        world = with_lane(world, lane._replace(hidden=tuple(p for p in lane.hidden if slot_of(world, p) not in slots)))
    return world


def shown(world: World, id: str) -> World:
    """The markers of the lane's last commit can be read by everybody."""
    lane = world.lane(id)
    for piece in lane.hidden:
        marker = (piece.ordinal, piece.part, piece.receipt)
        world = world._replace(markers=swap(world.markers, slot_of(world, piece), marker))
    return with_lane(world, lane._replace(hidden=()))


def fenced(world: World, id: str) -> World:
    """A successor has started: what was decided shows, what was open is rolled back, the next epoch counts."""
    lane = shown(world, id).lane(id)
    return with_lane(shown(world, id), Lane(id, lane.epoch + 1))


def with_actor(world: World, index: int, actor: Actor) -> World:
    """The world with this actor in it."""
    return world._replace(actors=swap(world.actors, index, actor))


def with_lane(world: World, lane: Lane) -> World:
    """The world with this lane in it; one of which nothing is to be told needs no mention."""
    others = [other for other in world.lanes if other.id != lane.id]
    told = others if lane == Lane(lane.id) else [*others, lane]
    return world._replace(lanes=tuple(sorted(told)))


def with_new_lane(world: World, rules: Rules, index: int) -> World:
    """The actor gives its lane up for another one."""
    actor = world.actors[index]
    if rules.flaw is Flaw.REUSED_LANE:
        world = fenced(world, actor.lane)
        return with_actor(world, index, actor._replace(epoch=world.lane(actor.lane).epoch))
    name, _, number = actor.lane.partition(".")
    return with_actor(world, index, actor._replace(lane=f"{name}.{int(number) + 1}", epoch=0))


def swap(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """The tuple with another item there."""
    return (*items[:index], item, *items[index + 1 :])
