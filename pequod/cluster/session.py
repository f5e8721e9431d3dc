"""What a home answers to one other server over a link."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pequod.cluster.agreement import JOINS, Agreement
from pequod.cluster.home import Home, KeyChange, Subscriber
from pequod.errors import BadRequest, Moving, UnknownMethod
from pequod.keys import KeyRange


class HomeSession:
    """One link, seen from the home; a call may raise what says that it takes time."""

    def __init__(
        self,
        home: Home,
        agreement: Agreement,
        push: Callable[[tuple[object, ...]], None],
        *,
        bytes_ahead: Callable[[], int],
        write: Callable[[Sequence[KeyChange], Callable[[], object]], tuple[str, int, int]],
        joins: Callable[[str, Any], Any],
        clock: Callable[[], float],
        end: Callable[[], None],
    ) -> None:
        """`write` does changes and gives epoch, number and rows removed; `joins` adds or drops.

        Once changes are done, and before it says so, `write` calls what it is given.
        """
        self._home = home
        self._agreement = agreement
        self._push = push
        self._bytes_ahead = bytes_ahead
        self._joins = joins
        self._clock = clock
        self.end = end  # cuts the other server off
        self._subscriber: Subscriber | None = None
        self.heard_at = clock()
        self._methods: dict[str, Callable[..., Any]] = {
            "hello": self._hello,
            "fetch": self._fetch,
            "drop": self._drop,
            "write": lambda changes: write(changes, self._tell),
            "beat": self._beat,
            "joins": self._learn,
            "leaving": home.leaving,
            "add_join": lambda text: joins("add", text),
            "drop_join": lambda name: joins("drop", name),
        }

    def call(self, method: str, *args: Any) -> Any:
        """The answer to a call."""
        found = self._methods.get(method)
        if found is None:
            raise UnknownMethod(f"a home has no method {method!r:.60}")
        self.heard_at = self._clock()
        return found(*args)

    def close(self) -> None:
        """The link has gone: its subscriptions end."""
        if self._subscriber is not None:
            self._home.forget(self._subscriber)

    def tell_joins(self) -> None:
        self._push((JOINS, [tuple(one) for one in self._agreement.rows()]))

    def _hello(
        self, node: str, version: str, epoch: str, number: int, ranges: Iterable[tuple[str, str]]
    ) -> None:
        if self._home.is_left:
            raise Moving(f"home {self._home.name} is about to have another map")
        if version != self._home.map.version:
            raise BadRequest(
                f"node {node} has another map ({version}) than home {self._home.name} "
                f"({self._home.map.version}); give all the same cluster file"
            )
        self._subscriber = Subscriber(node, self._push, self._bytes_ahead)
        self._home.welcome(self._subscriber, epoch, number, ranges)

    def _known(self) -> Subscriber:
        if self._subscriber is None:
            raise BadRequest("say hello first")
        return self._subscriber

    def _fetch(self, ranges: Iterable[tuple[str, str]]) -> tuple[int, Any]:
        return self._home.fetch(self._known(), [KeyRange(*keys) for keys in ranges])

    def _drop(self, ranges: Iterable[tuple[str, str]]) -> None:
        self._home.drop(self._known(), [KeyRange(*keys) for keys in ranges])

    def _tell(self) -> None:
        """Whoever writes waits for the number of that, also if it is not about its ranges."""
        if self._subscriber is not None:
            self._home.tell(self._subscriber, everything=True)

    def _beat(self, digest: str) -> int:
        self._home.tell(self._known(), everything=True)
        if digest != self._agreement.digest:
            self.tell_joins()
        return self._home.log.number

    def _learn(self, rows: Iterable[Sequence[object]]) -> None:
        if self._agreement.merge(rows):
            self._joins("told", None)
