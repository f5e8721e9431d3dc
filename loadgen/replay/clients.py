"""Client processes of one system: they wait for orders, and replay their part of a trace.

An order names a function of `Worker`. All clients of a system get the same order at the same time;
while another system has its turn they wait for the next one, and take no time.
"""

import asyncio
import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from multiprocessing import get_context
from multiprocessing.connection import Connection
from traceback import format_exc
from types import TracebackType
from typing import Any, Protocol, Self

from loadgen.replay.callers import Callers
from loadgen.replay.loop import Stint, closed_loop, open_loop
from loadgen.servers import CLIENT_CORE, ServerProcess, pin
from loadgen.systems.base import System
from loadgen.systems.conversation import Row
from loadgen.twip_world import Operation, TwipWorld
from pequod.pipeline.trace import CHECK, LOGIN

WINDOW = 128  # outstanding operations of one client
READING_WINDOW = 64
LOOK_SECONDS = 0.5  # how often, while clients work, somebody looks whether the server is alive

LIBRARIES, SOCKETS = "libraries", "sockets"


class Driver(Protocol):
    """Replays operations in one of two ways."""

    answers: dict[int, Any] | None

    def closed_loop(self, operations: Sequence[Operation], window: int) -> Stint: ...

    def open_loop(self, operations: Sequence[Operation], rate: float) -> Stint: ...


class SocketDriver:
    """One thin loop for all systems, by sockets: the servers are what is measured."""

    def __init__(self, system: System, port: int) -> None:
        self._talk = system.converse(port)
        self.closed_loop = partial(closed_loop, self._talk)
        self.open_loop = partial(open_loop, self._talk)

    @property
    def answers(self) -> dict[int, Any] | None:
        return self._talk.answers

    @answers.setter
    def answers(self, answers: dict[int, Any] | None) -> None:
        self._talk.answers = answers


class LibraryDriver:
    """An asyncio application in Python, by the system's client library: what such a one gets."""

    def __init__(self, system: System, port: int) -> None:
        import uvloop

        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        application = system.application(port)
        self._runner.run(application.open())
        self._callers = Callers(application)

    def closed_loop(self, operations: Sequence[Operation], window: int) -> Stint:
        return self._runner.run(self._callers.closed_loop(operations, window))

    def open_loop(self, operations: Sequence[Operation], rate: float) -> Stint:
        return self._runner.run(self._callers.open_loop(operations, rate))

    @property
    def answers(self) -> dict[int, Any] | None:
        return self._callers.answers

    @answers.setter
    def answers(self, answers: dict[int, Any] | None) -> None:
        self._callers.answers = answers


DRIVERS = {LIBRARIES: LibraryDriver, SOCKETS: SocketDriver}


class Worker:
    """One client process."""

    def __init__(
        self, system: System, port: int, world: TwipWorld, client: int, driver: str
    ) -> None:
        pin(os.getpid(), CLIENT_CORE)
        self._driver: Driver = DRIVERS[driver](system, port)
        self._operations = world.operations(client)
        self._users = range(client, world.users, world.clients)
        gc.collect()
        gc.freeze()
        gc.disable()

    def warm(self, everybody: bool) -> Stint:
        """Read the whole timeline of every active user of this client, or of all its users."""
        users: Sequence[int] = self._users
        if not everybody:
            users = sorted(
                {user for kind, user, _, _ in self._operations if kind in (LOGIN, CHECK)}
            )
        return self._driver.closed_loop([(LOGIN, user, 0, 0) for user in users], READING_WINDOW)

    def replay(self, part: int, parts: int, window: int, rate: float | None) -> Stint:
        """Replay one of so many equal parts of the trace."""
        size = len(self._operations)
        some = self._operations[size * part // parts : size * (part + 1) // parts]
        if rate:
            return self._driver.open_loop(some, rate)
        return self._driver.closed_loop(some, window)

    def digests(self, sample: list[int]) -> dict[int, str]:
        """A digest of the timeline of each of these users that is one of this client's."""
        users = [user for user in sample if user in self._users]
        self._driver.answers = answers = {}
        self._driver.closed_loop([(LOGIN, user, 0, 0) for user in users], READING_WINDOW)
        self._driver.answers = None
        return {user: digest(answers.get(at, [])) for at, user in enumerate(users)}


def digest(rows: Sequence[Row | tuple[int, int, str]]) -> str:
    """What tells one timeline from another: the number of rows, and a hash of all of them."""
    state = blake2b(digest_size=8)
    for time, poster, text in rows:
        state.update(f"{time}|{poster}|{text}\n".encode())
    return f"{len(rows)}:{state.hexdigest()}"


@dataclass(frozen=True)
class Failure:
    """What a client answers that cannot go on."""

    reason: str


def _serve(
    orders: Connection, system: System, port: int, world: TwipWorld, client: int, driver: str
) -> None:
    try:
        worker = Worker(system, port, world, client, driver)
        orders.send("ready")
        while (order := orders.recv()) is not None:
            name, arguments = order
            orders.send(getattr(worker, name)(*arguments))
    except SystemExit as error:
        orders.send(Failure(str(error)))
    except Exception:  # noqa: BLE001 -- whatever it is, the parent process tells it
        orders.send(Failure(format_exc()))


@dataclass
class Turn:
    """What all clients of a system measured together in one turn."""

    seconds: float
    operations: int
    rows: int
    client_cpu_seconds: float
    server_cpu_seconds: float
    latencies: list[float]

    @classmethod
    def of(cls, stints: Sequence[Stint], server_cpu_seconds: float) -> "Turn":
        latencies = [one for stint in stints for one in stint.latencies]
        return cls(
            seconds=max(stint.ended for stint in stints) - min(stint.started for stint in stints),
            operations=len(latencies),
            rows=sum(stint.rows for stint in stints),
            client_cpu_seconds=sum(stint.cpu_seconds for stint in stints),
            server_cpu_seconds=server_cpu_seconds,
            latencies=latencies,
        )


class Clients:
    """The client processes of one system."""

    def __init__(
        self, system: System, server: ServerProcess, world: TwipWorld, driver: str
    ) -> None:
        self._system = system
        self._server = server
        context = get_context("spawn")
        self._processes = []
        self._orders: list[Connection] = []
        for client in range(world.clients):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(theirs, system, server.port, world, client, driver),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._orders.append(ours)
        for orders in self._orders:
            self._answer(orders)

    def order(self, name: str, *arguments: Any) -> list[Any]:
        """Let all clients do this at once, and give what each of them answers."""
        for orders in self._orders:
            orders.send((name, arguments))
        return [self._answer(orders) for orders in self._orders]

    def _answer(self, orders: Connection) -> Any:
        """What a client answers; whoever waits for a server that has ended waits in vain."""
        while not orders.poll(LOOK_SECONDS):
            self._check_server()
        try:
            answer = orders.recv()
        except EOFError:
            answer = Failure("a client process was killed")
        if isinstance(answer, Failure):
            self._check_server()
            raise SystemExit(f"{self._system.name}: {answer.reason}")
        return answer

    def _check_server(self) -> None:
        if ended := self._server.ended():
            raise SystemExit(f"{self._system.name}: {ended}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for orders, process in zip(self._orders, self._processes):
            if error is None:
                orders.send(None)
            else:  # it may be waiting for a server that has ended
                process.terminate()
            process.join(10)
            if process.is_alive():
                process.terminate()
                process.join()


def percentile(latencies: Sequence[float], share: float) -> float:
    """The latency, in seconds, that so many of a hundred stay under.

    >>> percentile([0.001, 0.002, 0.003], 50)
    0.002
    """
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


def spread(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The least and the most of the turns: theirs as a multiple of ours.

    >>> spread([1.0, 2.0], [3.0, 4.0])
    (2.0, 3.0)
    """
    ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
    return min(ratios), max(ratios)
