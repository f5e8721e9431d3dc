"""All systems by name."""

from loadgen.systems.base import System
from loadgen.systems.memcached_system import Memcached
from loadgen.systems.pequod_system import ClientPequod, Pequod
from loadgen.systems.postgres_system import Postgres
from loadgen.systems.redis_system import Redis

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        Pequod(),
        ClientPequod(),
        ClientPequod("client-pequod-batched", batched=True),
        Redis(),
        Redis("redis-batched", batched=True),
        Memcached(),
        Postgres(),
        Postgres("postgres-query", stored=False),
    )
}

# By sockets all requests leave in batches, so that these would only repeat others.
LIBRARY_ONLY = {"redis-batched"}


def systems_named(names: str) -> list[System]:
    """The systems of a list of names with commas; Pequod comes first, for all is measured by it."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in SYSTEMS:
            raise SystemExit(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}")
    return [SYSTEMS[name] for name in dict.fromkeys(["pequod", *wanted])]
