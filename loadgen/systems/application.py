"""An application in Python: what each simulated user awaits, by a client library."""

from abc import ABC, abstractmethod
from typing import Any

from loadgen.systems.conversation import Row


class Application(ABC):
    """Twip on one system, for many users at once in one event loop."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def read(self, user: int, since: int) -> Any:
        """The timeline of a user from a time on, in the form that the library gives."""

    @abstractmethod
    async def subscribe(self, user: int, poster: int) -> None: ...

    @abstractmethod
    async def post(self, poster: int, time: int, text: str) -> None: ...

    @abstractmethod
    def rows(self, reading: Any) -> list[Row]:
        """What was read, in the form that is the same for all systems."""
