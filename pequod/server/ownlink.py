"""The link of a node to its own home, for which it subscribes as to any other."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pequod.cluster.links import Message
from pequod.errors import MissingData, PequodError
from pequod.server.loading import Later

if TYPE_CHECKING:
    from pequod.server.node import Node


class OwnLink:
    """The link of a node to its own home: a call and no more."""

    bytes = 0

    def __init__(
        self, node: "Node", received: Callable[[Message], None], lost: Callable[[], None]
    ) -> None:
        self._node = node
        self._lost = lost
        self._session = node.session(received, int, self.close)

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = partial(self._session.call, method, *args)
        try:
            future.set_result(call())
        except (MissingData, Later) as reason:
            return asyncio.ensure_future(self._node.finish_base(call, reason))
        except PequodError as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        self._node.close_session(self._session)
        self._lost()
