"""Cache joins on Spark give the rows that the oracle gives, and those of `Cache`."""

import json
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812

from pequod import Cache
from pequod.errors import BadData, JoinError
from pequod.joins.parser import parse
from pequod.keys import prefix
from pequod.pipeline.compiler import Compiler, within
from pequod.pipeline.files import table_of
from tests.generator import random_scenario
from tests.oracle import expected_rows, is_computed

SCENARIOS = json.loads((Path(__file__).parent.parent / "conformance.json").read_text("utf-8"))
SCHEMA = "key string, value string, bytes binary"


@pytest.fixture(scope="module", autouse=True)
def _short_plans(spark):
    """Dozens of plans in one job: to work each of them out again as it runs takes longest."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")
    spark.conf.unset("spark.sql.codegen.wholeStage")


def compiler(spark, texts, base):
    table = table_of(sorted(base.items()))
    rows = spark.createDataFrame(table) if base else spark.createDataFrame([], SCHEMA)
    rows = rows.coalesce(1)  # nothing needs an exchange; those are tested with `materialize`
    joins = [join for text in texts for join in parse(text)]
    return Compiler(joins, lambda keys: within(rows, keys))


def computed(rows):
    return sorted(
        (row["key"], row["value"] if row["bytes"] is None else bytes(row["bytes"])) for row in rows
    )


def check(spark, cases):
    """Compare many small worlds at once: a job for each would take ten times as long."""
    plans = [
        compiler(spark, texts, base).rows().withColumn("case", F.lit(number))
        for number, (texts, base) in enumerate(cases)
    ]
    found = reduce(lambda one, other: one.unionAll(other), plans).collect()
    for number, (texts, base) in enumerate(cases):
        expected = [(key, value) for key, value in expected_rows(texts, base) if key not in base]
        mine = computed(row for row in found if row["case"] == number)
        assert mine == expected, f"{texts} over {base}"


def random_case(seed):
    """The joins of a random scenario, and the base data that its puts leave."""
    scenario = random_scenario(seed, steps=120)
    base = dict(scenario.stored)
    for kind, *arguments in scenario.steps:
        if kind == "put":
            base[arguments[0]] = arguments[1]
        elif kind == "put_many":
            base.update(arguments[0])
        elif kind == "remove" and seed % 2:
            base.pop(arguments[0], None)
    joins = list(scenario.joins)
    return joins, {key: value for key, value in base.items() if not is_computed(joins, key)}


@pytest.mark.parametrize("first", [0, 8, 16])
def test_random_worlds(spark, first):
    cases = [random_case(seed) for seed in range(first, first + 8)]
    check(spark, [case for case in cases if case[0]])


def conformance_case(scenario):
    """The joins of a scenario, and the base data at its end."""
    joins, base = list(scenario["joins"]), {}
    for operation, *arguments in scenario["steps"]:
        if operation == "put":
            base[arguments[0]] = arguments[1]
        elif operation == "remove":
            base.pop(arguments[0], None)
        elif operation == "addjoin":
            joins += arguments
    return joins, base


@pytest.mark.parametrize("first", [0, 30])
def test_conformance_scenarios(spark, first):
    """What `Cache` answers when it has the base data of a scenario, Spark answers too."""
    cases = [conformance_case(scenario) for scenario in SCENARIOS[first : first + 30]]
    check(spark, cases)
    for joins, base in cases:
        cache = Cache()
        for text in joins:
            cache.add_join(text)
        cache.put_many(base)
        assert cache.scan("", "\U0010ffff") == expected_rows(joins, base)


def test_only_what_is_asked_for(spark):
    joins = ["a|<x> = copy base|<x>; b|<x> = copy base|<x>"]
    mine = compiler(spark, joins, {"base|1": "one", "base|2": "two"})
    assert computed(mine.rows(prefix("b|")).collect()) == [("b|1", "one"), ("b|2", "two")]
    with pytest.raises(BadData, match=r"no join writes into 'c\|'"):
        mine.rows(prefix("c|"))


def test_recursion_is_refused(spark):
    with pytest.raises(JoinError, match="recursion"):
        compiler(spark, ["a|<x> = copy b|<x>; b|<x> = copy a|<x>"], {})


def test_base_rows_where_a_join_writes_are_refused(spark):
    mine = compiler(spark, ["a|<x> = copy b|<x>"], {"a|1": "", "b|1": ""})
    with pytest.raises(BadData, match=r"holds 'a\|1', which a\|<x> computes"):
        mine.check_base()


def test_sources_without_rows_are_told(spark):
    joins = ["a|<x> = copy b|<x>; c|<x> = check a|<x> copy d|<x:3>"]
    mine = compiler(spark, joins, {"b|1": "", "d|1": ""})
    assert list(mine.unmatched()) == ["no key of the base data matches copy d|<x:3>"]
