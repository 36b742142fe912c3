"""The world of one seed: publishers, subscriptions, processes and trouble, until everything is delivered."""

from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.bus.subscriptions import Subscribing, SubscriptionQuotas
from shared.drivers.secrets import KeyRing
from tests.bus.store.made_subscriptions import no_log
from tests.models.bus import users
from tests.models.bus.processes import BusServers, bus, components
from tests.models.bus.promise import Promise
from tests.models.bus.promises import Promises
from tests.models.bus.receivers import ReceiverCalls
from tests.models.bus.users import KEYS, VERBS, Ask, PlannedEvent, draw_ask, draw_wish
from tests.models.bus.weather import BusWeather, draw
from tests.models.push.processes import ModelClock
from tests.models.simulated.database import Database
from tests.models.simulated.simulation import Process
from tests.models.simulated.steps import finish
from tests.models.simulated.worlds import Broken, SimulatedWorld
from tests.queues import QUEUES

PATIENCE_SECONDS = 900.0
"""After the end of all troubles: what is not delivered by then never will be."""

MOST_CHOICES = 30_000
_RESTART = (0.0, 0.0, 5.0, 20.0)
_LAGS = (0.002, 0.01, 0.05)
_EVENTS = (6, 14)
_QUOTAS = SubscriptionQuotas(per_namespace=10, topics=10)


class World(SimulatedWorld):
    """Everything of one seed."""

    weather: BusWeather

    def __init__(self, database: Database, seed: int, weather: BusWeather | None = None) -> None:
        super().__init__(seed, weather, draw)
        loop = self.simulation.loop
        receivers = ReceiverCalls(self.chance, loop.time, self.simulation.strikes)
        self.servers = BusServers(database, ModelClock(loop.time), receivers, self.chance)
        self.promises = Promises(self.servers, self.weather, loop.time)
        self.simulation.check = self.promises.check
        self._events = [PlannedEvent(number, self.chance) for number in range(self.chance.randint(*_EVENTS))]

    def _begin(self) -> None:
        database = self.servers.database
        database.clear()
        database.now = self.servers.clock.now
        store = database.store()
        subscribing = Subscribing(store, KeyRing(), store.now, _QUOTAS, no_log)
        for key in KEYS[: self.chance.choice((1, 2, 3))]:
            finish(subscribing.subscribe(draw_wish(key, self.chance)))
        finish(self.servers.broker.setup(QUEUES))
        names = "a" if self.weather.alone else "ab"
        for kind in ("feedback-bus", "worker", "scheduler"):
            for name in names:
                self._start(f"{kind} {name}")
        self._start("publisher")

    def _start(self, name: str) -> None:
        """A process of the product, or the publisher."""
        process = self.simulation.start(name)
        if name == "publisher":
            done = process.run(users.publish_all(self._events, bus(process, self.servers), self.promises.accept))
            done.add_done_callback(lambda _: self.simulation.forget(process))
            return
        for component in components(process, self.servers):
            _ = process.run(component.start())

    def _act(self, name: str, key: str, ask: Ask) -> None:
        """A user asks for a change of this key's subscription, by an API process of its own."""
        process = self.simulation.start(name)
        self.promises.asked[key] += 1
        done = process.run(users.try_once(ask, bus(process, self.servers), lambda: self.promises.answer(key)))
        done.add_done_callback(lambda _: self.simulation.forget(process))

    def _choose(self) -> bool:
        """Whether something comes now that is no step of a process."""
        simulation = self.simulation
        if simulation.choices > MOST_CHOICES:
            raise Broken(Promise.NEVER, f"{MOST_CHOICES} choices")
        if self._over_at is None and simulation.choices >= self.weather.length:
            self._clear_up()
            return False
        return self._over_at is None and self._trouble()

    def _trouble(self) -> bool:
        simulation = self.simulation
        process = self.chance.choice(simulation.processes) if simulation.processes else None
        if process and simulation.strikes("dies"):
            self._kill(process)
        elif process and simulation.strikes("sleeps"):
            simulation.put_to_sleep(process)
        elif process and process.subscriptions and simulation.strikes("cut"):
            self.chance.choice(process.subscriptions).leave("the connection was cut")
        elif self.servers.published and simulation.strikes("doubled"):
            finish(self.servers.broker.publish(*self.chance.choice(self.servers.published)))
        elif simulation.strikes("lag"):
            simulation.loop.now += self.chance.choice(_LAGS)
        elif simulation.strikes("rebalance"):
            self.servers.event_log.rebalance()
        elif simulation.strikes("click"):
            self._click()
        else:
            return False
        return True

    def _kill(self, process: Process) -> None:
        self.simulation.kill(process)
        if not process.name.startswith("user"):
            delay = self.chance.choice(_RESTART)
            self.simulation.loop.call_later(delay, self._start, process.name)

    def _click(self) -> None:
        verb, key = self.chance.choice(VERBS), self.chance.choice(KEYS)
        queue = next((queue for found, queue, _ in self.promises.standing if found == key), "")
        self.simulation.trace.add(self.simulation.loop.now, "", f"a user wants to {verb}", (key,))
        self._users += 1
        self._act(f"user {self._users}", key, draw_ask(verb, key, queue, self.chance))

    def _rest(self) -> None:
        """Nobody can go on but with time: all is over, or has to be helped."""
        if self._over_at is None or self._events or self.simulation.late:
            return
        paused = [key for key, _, state in self.promises.standing if state is not SubscriptionStatus.ACTIVE]
        left = list(self.promises.left())
        if not left and not paused:
            self._close()
        elif self.simulation.loop.now > self._over_at + PATIENCE_SECONDS:
            raise Broken(Promise.NEVER, "; ".join(left))
        else:
            for key in paused:
                self._act("helper", key, users.resume(key))
