"""The mapped tables of a PostgreSQL: what they look like now, and which cannot be read.

PostgreSQL's log tells of changed rows, and of what a table looks like when a row of it changes. It
does not tell that a table was dropped, renamed, written anew by ALTER TABLE, or taken out of the
publication. So the server looks at the catalog from time to time.
"""

import logging
from collections.abc import Sequence
from typing import Any

from pequod.backing import pgcatalog
from pequod.backing.mapping import Table
from pequod.errors import BadRequest

log = logging.getLogger("pequod.backing")

Look = tuple[int, str]  # the number of a table, and what there is to know of it


class Mapped:
    """Some tables, each bound to what the catalog says of it."""

    def __init__(self, publication: str, tables: list[Table]) -> None:
        """The list is kept as it should be."""
        self._publication = publication
        self._tables = tables
        self._looks: list[Look] = []
        self.troubles: dict[int, str] = {}  # why a table, by its place, cannot be read

    @property
    def oids(self) -> list[int]:
        return [oid for oid, _ in self._looks]

    async def bind(self, connection: Any) -> None:
        """Look at all of them for the first time; raises if one cannot be served."""
        self._looks = await self.looks(connection)
        for place, table in enumerate(self._tables):
            self._tables[place] = await self._bound(connection, table)

    async def looks(self, connection: Any) -> list[Look]:
        return await pgcatalog.looks(connection, self._publication, self._tables)

    def altered(self, looks: Sequence[Look]) -> list[int]:
        """The places of those that are not what they were, or could not be read."""
        return [
            place
            for place, look in enumerate(looks)
            if look != self._looks[place] or place in self.troubles
        ]

    async def rebound(self, connection: Any, places: Sequence[int]) -> dict[int, Table | str]:
        """What they are bound to now, or why they cannot be read."""
        found: dict[int, Table | str] = {}
        for place in places:
            try:
                found[place] = await self._bound(connection, self._tables[place])
            except BadRequest as error:
                found[place] = str(error)
        return found

    async def _bound(self, connection: Any, table: Table) -> Table:
        table = await pgcatalog.bound(connection, table)
        await pgcatalog.check_publication(connection, self._publication, [table])
        return table

    def become(self, looks: Sequence[Look], found: dict[int, Table | str]) -> list[Table]:
        """From now on they are so; gives those that are not what they were."""
        changed = []
        for place, result in found.items():
            table, is_same = self._tables[place], looks[place] == self._looks[place]
            self._looks[place] = looks[place]
            if isinstance(result, str):
                if self.troubles.get(place) != result:
                    log.warning("table %s cannot be read: %s", table.name, result)
                    changed.append(table)
                self.troubles[place] = result
            elif self.troubles.pop(place, None) is not None or not is_same:
                self._tables[place] = result
                log.warning(
                    "table %s was altered or written anew; what is read of it is loaded again",
                    table.name,
                )
                changed.append(table)
        return changed
