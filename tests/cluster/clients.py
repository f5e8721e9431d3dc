"""Users of a simulated cluster, who check every answer they get."""

import asyncio
from typing import TYPE_CHECKING, Any

from pequod.client.tokens import Position, cut_of, merged, text_of
from pequod.errors import DataLost, SourceDown, Unavailable
from pequod.keys import KeyRange
from tests.cluster.world import (
    CHAOS_SECONDS,
    QUIET_SECONDS,
    RANGES,
    REQUEST_SECONDS,
    TIMING,
    USERS,
    Violation,
)
from tests.oracle import expected_pairs

if TYPE_CHECKING:
    from tests.cluster.simulation import Host, Simulation


class Client:
    """A user that writes and reads, sometimes within a session, at whatever server."""

    def __init__(self, simulation: "Simulation", number: int) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._cut: dict[str, Position] = {}
        self._has_session = number > 0
        self._number = number

    async def run(self) -> None:
        loop = self._simulation.loop
        end = loop.time() + CHAOS_SECONDS
        while loop.time() < end:
            await asyncio.sleep(self._chance.expovariate(1 / 0.15))
            host = self._simulation.hosts[self._chance.choice(list(self._simulation.hosts))]
            work = self._write(host) if self._chance.random() < 0.55 else self._read(host)
            began = loop.time()
            await self._ask(host, work)
            if loop.time() > began + REQUEST_SECONDS + 0.1:
                raise Violation(f"a request took {loop.time() - began} seconds")

    async def _ask(self, host: "Host", work: Any) -> None:
        """Send a request; it may be held up, or never be answered."""
        simulation, arrived = self._simulation, asyncio.get_running_loop().create_future()
        simulation.network.carry(
            host.name, host.name, lambda: arrived.done() or arrived.set_result(None)
        )
        task = asyncio.ensure_future(work)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await arrived
                await task
        except TimeoutError:
            simulation.refused += 1
            if host.name not in simulation.network.paused and not host.is_dead:
                simulation.tell(f"client {self._number}: no answer of {host.name}")
        except DataLost as error:
            if not simulation.options["crash"]:
                raise Violation(f"nothing crashed, but {error}") from error
            simulation.reach("lost")
            simulation.tell(f"client {self._number}: {error}")
            self._cut = {}
        except (SourceDown, Unavailable) as error:
            simulation.refused += 1
            simulation.tell(f"client {self._number}: {error}")
        finally:
            task.cancel()

    async def _write(self, host: "Host") -> None:
        simulation, began = self._simulation, asyncio.get_running_loop().time()
        changes = [self._random_change() for _ in range(self._chance.choice([1, 1, 1, 2, 3]))]
        token, _ = await host.call("write", changes)
        if simulation.is_quiet and asyncio.get_running_loop().time() > began + QUIET_SECONDS:
            raise Violation(f"nothing holds it up, but {changes} took {QUIET_SECONDS} seconds")
        self._check_token(changes, cut_of(token))
        self._simulation.tell(f"client {self._number}: {changes} at {host.name}: {token}")
        if self._has_session:
            self._cut = merged(self._cut, cut_of(token))

    def _check_token(self, changes: Any, cut: dict[str, Position]) -> None:
        """What was written must have happened up to where the token says."""
        simulation = self._simulation
        numbers = {(home, epoch): number for home, epoch, number in cut.values()}
        had = {
            change
            for life, history in simulation.histories.items()
            for _, done in history[: None if life[1] in simulation.kept else numbers.get(life, 0)]
            for change in done
        }
        if not all(tuple(change) in had for change in changes):
            raise Violation(f"the token {cut} does not include all of {changes}")

    def _random_change(self) -> tuple[str, str | None]:
        chance = self._chance
        value = None if chance.random() < 0.25 else f"v{next(self._simulation._values)}"
        if chance.random() < 0.4:
            return f"s|{chance.choice(USERS)}|{chance.choice(USERS)}", value
        return f"p|{chance.choice(USERS)}|{chance.randrange(2, 8):02}", value

    async def _read(self, host: "Host") -> None:
        simulation, chance = self._simulation, self._chance
        keys = chance.choice(RANGES)
        stale = chance.choice([None, None, None, 30.0])
        after = text_of(self._cut.values()) if self._has_session else None
        partitions = host.node.map
        answer = await host.call("read", *keys, None, False, after or None, stale)
        if host.is_dead:
            return
        simulation.reads += 1
        cut = cut_of(answer["cut"])
        rows = [tuple(row) for row in answer["rows"]]
        simulation.tell(f"client {self._number}: {keys} at {host.name}: {answer['cut']}, {rows}")
        expected = expected_pairs(simulation.joins, simulation.base_at(cut), *keys)
        if rows != expected:
            raise Violation(
                f"{host.name} claims that {keys} at {answer['cut']} is\n{rows}\nnot\n{expected}"
            )
        homes = {home for _, some in partitions.pieces(keys) for home in some}
        if partitions is host.node.map and not homes <= cut.keys():
            raise Violation(f"{host.name} says nothing of {homes - cut.keys()}, which have {keys}")
        self._check_session(host, cut)
        self._check_age(cut, keys, answer["age"], stale)

    def _check_session(self, host: "Host", cut: dict[str, Position]) -> None:
        if not self._has_session:
            return
        for home, position in self._cut.items():
            seen = cut.get(home)
            if position.epoch in self._simulation.kept:
                continue  # the life that came after it has all of it
            if seen and (seen.epoch != position.epoch or seen.number < position.number):
                raise Violation(f"{host.name} answers from {seen}, but {position} was seen")
        self._cut = merged(self._cut, cut)

    def _check_age(
        self, cut: dict[str, Position], keys: KeyRange, age: float, stale: float | None
    ) -> None:
        """Whatever was written earlier than the answer is old must be in it."""
        simulation = self._simulation
        allowed = TIMING.suspect if stale is None else max(stale, TIMING.suspect)
        if age > allowed:
            raise Violation(f"an answer {age} seconds old, where {allowed} are allowed")
        moment = simulation.loop.time() - age - 1e-9
        for home in cut:
            began = {epoch: when for when, epoch in simulation.lives[home]}
            later = [when for when in began.values() if began[cut[home].epoch] < when < moment]
            if later:
                raise Violation(f"{cut[home]} is of an old life, {age} seconds after a new one")
            history = simulation.histories[home, cut[home].epoch]
            had = sum(1 for when, _ in history if when < moment)
            if cut[home].number < had:
                raise Violation(f"{cut[home]} lacks changes up to {had}, older than {age} seconds")
