"""What the load generator wants of a system under test."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from loadgen.servers import ServerProcess
from loadgen.systems.application import Application
from loadgen.systems.conversation import Conversation

if TYPE_CHECKING:
    from loadgen.twip_world import TwipWorld

Item = TypeVar("Item")


class Missing(Exception):
    """A system that is not installed; the text names the command that installs it."""


@dataclass(frozen=True)
class System(ABC):
    """A way to serve Twip: a server, how it is filled, and how clients talk to it."""

    name: str

    @abstractmethod
    def start(self) -> ServerProcess:
        """A running server; raises `Missing` if there is none to run."""

    @abstractmethod
    def fill(self, server: ServerProcess, world: "TwipWorld") -> None:
        """Bring in the follows and posts of a world, and whatever timelines are kept by hand."""

    @abstractmethod
    def converse(self, port: int) -> Conversation:
        """A new connection, for the process of a client."""

    @abstractmethod
    def application(self, port: int) -> Application:
        """The same by the system's own client library."""

    @abstractmethod
    def version(self) -> str:
        """What exactly is measured."""

    @property
    @abstractmethod
    def tuning(self) -> str:
        """How it is set up and used, a sentence or two for the report."""


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of at most `size`."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch
