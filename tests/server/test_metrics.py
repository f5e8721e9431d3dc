"""The answer of /metrics, read by Prometheus's own parser."""

import re

from prometheus_client.parser import text_string_to_metric_families

from tests.server.helpers import Web, serving

STRANGE = 'ta"b\\l\ne\r\x00'


def families_of(run, **settings):
    """The metrics of a server with something in it, by name."""

    async def work():
        async with serving(**settings) as server, await Web.open(server) as web:
            server.cache.add_join("named: c|<a> = count k|<a>|<n>;")
            server.cache.put_many([("k|x|secretkey", "1"), (f"{STRANGE}|x", "1"), ("lone", "1")])
            server.cache.scan("c|", "c}")
            await web.rpc(["get", "k|x|secretkey"])
            await web.rpc(["no_such"])
            return (await web.get("/metrics")).body.decode()

    text = run(work())
    assert "secretkey" not in text
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_names_kinds_and_labels(run):
    families = families_of(run)
    labels = {
        "connections": set(),
        "up_seconds": set(),
        "gc_collections": set(),
        "gc_pause_seconds_max": set(),
        "calls": {"method"},
        "errors": {"code"},
        "keys": {"table"},
        "memory_bytes": {"table"},
        "table_hits": {"table"},
        "table_evictions": {"table"},
        "join_computes": {"join"},
        "join_updater_runs": {"join"},
        "join_invalidations": {"join"},
        "join_evictions": {"join"},
        "join_skipped_values": {"join"},
    }
    assert families.keys() == {f"pequod_{name}" for name in labels}
    for name, family in families.items():
        assert re.fullmatch("pequod_[a-z_]+", name)
        assert family.documentation
        assert family.type in ("counter", "gauge")
        assert family.samples, name
        for sample in family.samples:
            assert sample.name == name + ("_total" if family.type == "counter" else "")
            assert set(sample.labels) == labels[name.removeprefix("pequod_")]


def test_values(run):
    families = families_of(run, memory_limit=10**9)

    def values(name):
        return {
            tuple(sample.labels.values()): sample.value
            for sample in families[f"pequod_{name}"].samples
        }

    assert values("calls") == {("get",): 1}
    assert values("errors") == {("unknown_method",): 1}
    assert values("connections") == {(): 1}
    assert values("memory_limit_bytes") == {(): 1e9}
    assert values("join_computes") == {("named",): 1}
    rows = values("keys")
    assert rows[("k",)] == rows[(STRANGE,)] == rows[("",)] == rows[("c",)] == 1
