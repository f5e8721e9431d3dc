"""The installed joins: what may be installed beside what, and which joins form a view."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

from pequod.engine.plan import Plan
from pequod.engine.status import View
from pequod.engine.store import Store, Table, Tally
from pequod.errors import JoinError, UnknownJoin
from pequod.joins.join import PULL, PUSH, CacheJoin
from pequod.joins.pattern import Pattern
from pequod.keys import prefix, table_of

MAX_DEPTH = 128  # joins and their sources on one path; each takes some of Python's stack
MAX_JOINS = 500  # in one text; each is compared with the others of its table

Node = tuple[Plan, ...]  # joins that may write the same keys


class Hits:
    """How many reads found what these views had computed."""

    __slots__ = ("hits",)

    def __init__(self) -> None:
        self.hits = 0


class Catalogue:
    """All installed joins, by name, and by output table as views and pull joins."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._installs = 0
        self.plans: dict[str, Plan] = {}
        self.views: dict[str, list[View]] = {}
        self.pulls: dict[str, list[Plan]] = {}
        self.hits: dict[tuple[View, ...], Hits] = {}

    def tally(self, table: Table, views: tuple[View, ...]) -> Tally:
        """Where to count the reads of a table that take in the rows of these views."""
        return self.hits.setdefault(views, Hits()) if views else table

    def plan(self, name: str) -> Plan:
        plan = self.plans.get(name) if isinstance(name, str) else None
        if plan is None:
            known = ", ".join(self.plans) or "none"
            raise UnknownJoin(f"no join is named {name!r}; installed: {known}")
        return plan

    def is_base(self, key: str, table: Table) -> bool:
        """True if no join may write this key."""
        return table.plain or self.writer(key, table.name) is None

    def writer(self, key: str, table: str) -> Plan | None:
        """A join that may write this key."""
        for plan in self._writers(table):
            if plan.join.output.matches(key):
                return plan
        return None

    def _writers(self, table: str) -> list[Plan]:
        pushed = [plan for view in self.views.get(table, ()) for plan in view.plans]
        return pushed + self.pulls.get(table, [])

    def prepare(self, joins: Iterable[CacheJoin]) -> tuple[list[Plan], list[tuple[str, bool]]]:
        """Plans for the joins that are new, and for each join its name and if it is new."""
        plans = dict(self.plans)
        twins = {_meaning(plan.join): name for name, plan in plans.items()}
        named: list[tuple[str, bool]] = []
        for join in joins:
            twin = twins.get(_meaning(join))
            if twin is not None:
                named.append((twin, False))
                continue
            name = join.name or _free_name(join.table, plans)
            join = replace(join, name=name)
            if name in plans and name not in self.plans:
                said = f"the join of line {plans[name].join.line} has the same name; rename one"
                raise _error(join, said)
            if name in plans:
                raise _error(
                    join,
                    f"another join is named {name}: {plans[name].join.text} "
                    f"drop it first with drop_join({name!r}), or choose another name",
                )
            self._installs += 1
            plans[name] = Plan(join, self._installs, self._store.account)
            twins[_meaning(join)] = name
            named.append((name, True))
        new = [plan for name, plan in plans.items() if name not in self.plans]
        if len(new) > MAX_JOINS:
            raise JoinError(f"{len(new)} joins in one text; install at most {MAX_JOINS} at a time")
        for plan in new:
            self._check_base_keys(plan)
        self._ranked(list(plans.values()))
        return new, named

    def outgoing(self, coming: list[Plan], going: Plan | None = None) -> list[View]:
        """The views that will not be the same with these plans and without that one."""
        plans = [plan for plan in self.plans.values() if plan is not going]
        nodes = set(_nodes(plans + coming))
        views = [view for views in self.views.values() for view in views]
        return [view for view in views if tuple(view.plans) not in nodes]

    def adopt(self, plans: list[Plan]) -> None:
        """Put plans into the catalogue; `outgoing` views must have nothing computed any more."""
        self.plans.update((plan.join.name, plan) for plan in plans)
        self._store.account.bytes += sum(plan.bytes for plan in plans)
        self._rebuild({plan.join.table for plan in plans})

    def remove(self, name: str) -> None:
        plan = self.plans.pop(name)
        self._store.account.bytes -= plan.bytes
        self._rebuild({plan.join.table})
        plan.forget()

    def _rebuild(self, tables: set[str]) -> None:
        nodes = self._ranked(list(self.plans.values()))
        for name in tables:
            mine = [node for node in nodes if node[0].join.table == name]
            self.pulls[name] = [node[0] for node in mine if _pulls(node)]
            kept = {tuple(view.plans): view for view in self.views.get(name, [])}
            self.views[name] = [
                kept.get(node) or View(self._store.table(name), list(node))
                for node in mine
                if not _pulls(node)
            ]
            self._keep_hits(self._store.table(name))
        for plan in self.plans.values():
            patterns = [source.pattern for source in plan.join.sources]
            plan.pulls = [
                [pull for pull in self.pulls.get(_table(pattern), ()) if _reads(pattern, [pull])]
                for pattern in patterns
            ]
            plan.feeders = [
                [
                    view
                    for view in self.views.get(_table(pattern), ())
                    if _reads(pattern, view.plans)
                ]
                for pattern in patterns
            ]

    def _keep_hits(self, table: Table) -> None:
        """Count what is known of views that are gone for those that stay, or for the table."""
        staying = self.views[table.name]
        for views in [views for views in self.hits if views[0].table is table]:
            kept = tuple(view for view in views if view in staying)
            if kept != views:
                self.tally(table, kept).hits += self.hits.pop(views).hits

    def _ranked(self, plans: list[Plan]) -> list[Node]:
        """The plans as nodes, sources before readers; raises if they cannot be installed."""
        nodes = _nodes(plans)
        by_table = _by_table(nodes)
        feeds = {
            reader: [
                node
                for table in {name for plan in reader for name in plan.source_tables}
                for node in by_table.get(table, ())
                if _feeds(node, reader)
            ]
            for reader in nodes
        }
        for reader, sources in feeds.items():
            if any(plan.join.maintenance == PUSH for plan in reader):
                for source in sources:
                    if _pulls(source):
                        raise self._blamed(
                            [reader, source],
                            f"push join {_names(reader)} reads pull join {_names(source)}, whose "
                            "rows are never stored; make it `pull` or `snapshot` too",
                        )
        ranks: dict[Node, int] = {}
        for node in nodes:
            self._rank(node, feeds, ranks, [])
        for node, value in ranks.items():
            for plan in node:
                plan.rank = value
        return nodes

    def _rank(
        self, node: Node, feeds: dict[Node, list[Node]], ranks: dict[Node, int], path: list[Node]
    ) -> int:
        """How many joins and sources lie below a node; `path` are the readers above it."""
        if node in path:
            cycle = path[path.index(node) :]
            raise self._blamed(
                cycle,
                f"recursion: {' -> '.join(map(_names, [*cycle, node]))}; a join may not read what "
                "it writes, directly or through others; write into another table",
            )
        if node not in ranks:
            path = [*path, node]
            if len(path) <= MAX_DEPTH:
                below = [self._rank(source, feeds, ranks, path) for source in feeds[node]]
                ranks[node] = 1 + max(below, default=0) + max(len(p.join.sources) for p in node)
            if ranks.get(node, MAX_DEPTH + 1) > MAX_DEPTH:
                raise self._blamed(
                    [*path, *_all_below(node, feeds)],
                    f"{_names(node)} is part of joins over joins that have, one above the "
                    f"other, more than {MAX_DEPTH} joins and sources; let it read earlier ones",
                )
        return ranks[node]

    def _blamed(self, nodes: Iterable[Node], said: str) -> JoinError:
        """An error of the first new join among these: without it they were installed before."""
        plans = (plan for node in nodes for plan in node)
        return _error(next(one.join for one in plans if one.join.name not in self.plans), said)

    def _check_base_keys(self, plan: Plan) -> None:
        """A join must not write where base data is."""
        join = plan.join
        found = [
            key
            for key, _ in self._store.scan(prefix(join.output.literal_head))
            if join.output.matches(key) and self.writer(key, join.table) is None
        ]
        if found:
            raise _error(
                join,
                f"it would write over base data: {len(found)} keys match "
                f"{join.output.text}, {min(found)!r} for one; remove them or write elsewhere",
            )


def _error(join: CacheJoin, said: str) -> JoinError:
    return JoinError(f"line {join.line}, join {join.name}: {said}")


def _all_below(node: Node, feeds: dict[Node, list[Node]]) -> Iterator[Node]:
    """What a node reads, directly or through others."""
    seen, rest = {node}, [node]
    while rest:
        for source in feeds[rest.pop()]:
            if source not in seen:
                seen.add(source)
                rest.append(source)
                yield source


def _meaning(join: CacheJoin) -> Hashable:
    """What a join says, whatever its name."""
    return join.output, join.sources, join.maintenance, join.seconds


def _free_name(table: str, plans: dict[str, Plan]) -> str:
    number = 1
    while f"{table}#{number}" in plans:
        number += 1
    return f"{table}#{number}"


def _nodes(plans: list[Plan]) -> list[Node]:
    """Joins whose outputs overlap belong together; pull joins store nothing and stand alone."""
    tables: dict[str, list[Node]] = {}
    for plan in plans:
        nodes = tables.setdefault(plan.join.table, [])
        if plan.join.maintenance == PULL:
            nodes.append((plan,))
            continue
        touching = [node for node in nodes if not _pulls(node) and _touches(node, plan)]
        merged = sorted({plan, *(one for node in touching for one in node)}, key=lambda p: p.order)
        tables[plan.join.table] = [node for node in nodes if node not in touching]
        tables[plan.join.table].append(tuple(merged))
    return [node for nodes in tables.values() for node in nodes]


def _by_table(nodes: list[Node]) -> dict[str, list[Node]]:
    tables: dict[str, list[Node]] = {}
    for node in nodes:
        tables.setdefault(node[0].join.table, []).append(node)
    return tables


def _table(pattern: Pattern) -> str:
    return table_of(pattern.literal_head)


def _touches(node: Node, plan: Plan) -> bool:
    return any(_overlap(one.join.output, plan.join.output) for one in node)


def _feeds(node: Node, reader: Node) -> bool:
    return any(_reads(source.pattern, node) for plan in reader for source in plan.join.sources)


def _reads(source: Pattern, plans: Iterable[Plan]) -> bool:
    return any(_overlap(plan.join.output, source) for plan in plans)


def _overlap(one: Pattern, other: Pattern) -> bool:
    # Different heads part most patterns at once.
    head = min(len(one.literal_head), len(other.literal_head))
    return one.literal_head[:head] == other.literal_head[:head] and one.overlaps(other)


def _pulls(node: Node) -> bool:
    return node[0].join.maintenance == PULL


def _names(node: Node) -> str:
    return "+".join(plan.join.name for plan in node)
