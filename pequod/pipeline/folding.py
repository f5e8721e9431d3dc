"""The operators on Spark: groups of source rows folded into one value, exactly as the cache does.

Sums are exact whatever the size of the numbers: small ones are added as Spark's decimals, others
are collected, and a function of Python puts both together for each group.
"""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pequod.joins.join import COPY
from pequod.joins.numbers import AVG_PLACES, MAX_NUMBER, decimal_text

_NUMBER = r"\A[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\z"
_SMALL = r"\A[+-]?(?:[0-9]{1,10}(?:\.[0-9]{0,10})?|\.[0-9]{1,10})\z"
_SMALL_TYPE = "decimal(20,10)"  # Spark adds ten digits for the sum: enough for 10**10 rows
_ZERO = "0" * (2 * MAX_NUMBER)


def folded(tuples: DataFrame, operator: str) -> DataFrame:
    """One row for each key of the tuples (key, value_key, value, bytes), with the same columns.

    `value_key` becomes the greatest one among those that count.
    """
    if operator in ("sum", "avg"):
        tuples = tuples.where(is_number())
    groups = tuples.groupBy("key")
    greatest = F.max("value_key").alias("value_key")
    no_bytes = F.lit(None).cast("binary").alias("bytes")
    if operator == COPY:
        winners = groups.agg(F.max(F.struct("value_key", "value", "bytes")).alias("best"))
        return winners.select("key", "best.value_key", "best.value", "best.bytes")
    if operator == "count":
        counted = groups.agg(greatest, F.count("*").cast("string").alias("value"))
        return counted.select("key", "value_key", "value", no_bytes)
    if operator in ("min", "max"):
        extreme = F.min if operator == "min" else F.max
        best = extreme(F.struct(*_rank(), "value", "bytes")).alias("best")
        winners = groups.agg(greatest, best)
        return winners.select("key", "value_key", "best.value", "best.bytes")
    value = F.col("value")
    is_small = value.rlike(_SMALL)
    small = F.sum(F.when(is_small, value.cast(_SMALL_TYPE))).cast("string").alias("small")
    large = F.collect_list(F.when(~is_small, value)).alias("large")
    rows = F.count("*").alias("rows") if operator == "avg" else F.lit(0).alias("rows")
    totals = groups.agg(greatest, small, large, rows)
    text = F.udf(_total, "string", useArrow=False)
    return totals.select(
        "key", "value_key", text("small", "large", "rows").alias("value"), no_bytes
    )


def contested(groups: Sequence[DataFrame]) -> DataFrame:
    """Of the rows of several joins for one key, that with the greatest value-source key.

    Of equal ones that of the first join stays.
    """
    numbered = [
        rows.select("key", "value_key", F.lit(-number).alias("order"), "value", "bytes")
        for number, rows in enumerate(groups)
    ]
    united = numbered[0]
    for rows in numbered[1:]:
        united = united.unionAll(rows)
    best = F.max(F.struct("value_key", "order", "value", "bytes")).alias("best")
    winners = united.groupBy("key").agg(best)
    return winners.select("key", "best.value_key", "best.value", "best.bytes")


def is_number() -> Column:
    """Whether the value is a decimal number; null for bytes, which are none."""
    value = F.col("value")
    return value.isNotNull() & (F.length(value) <= MAX_NUMBER) & value.rlike(_NUMBER)


def _rank() -> list[Column]:
    """What min and max go by: numbers by size and then by text, then texts, then bytes."""
    value = F.col("value")
    number = is_number()
    kind = F.when(value.isNull(), 2).when(number, 0).otherwise(1)
    digits = F.regexp_replace(value, "^[+-]", "")
    whole = F.substring_index(digits, ".", 1)
    places = F.when(F.contains(digits, F.lit(".")), F.substring_index(digits, ".", -1))
    places = F.coalesce(places, F.lit(""))
    padded = F.concat(F.lpad(whole, MAX_NUMBER, "0"), F.rpad(places, MAX_NUMBER, "0"))
    below_zero = value.startswith("-") & (padded != _ZERO)
    turned = F.translate(padded, "0123456789", "9876543210")
    size = F.when(below_zero, F.concat(F.lit("0"), turned)).otherwise(F.concat(F.lit("1"), padded))
    return [
        kind.alias("kind"),
        F.when(number, size).otherwise("").alias("size"),
        F.coalesce(value, F.lit("")).alias("text"),
        F.coalesce("bytes", F.lit(b"")).alias("data"),
    ]


def _total(small: str | None, large: list[str], rows: int) -> str:
    """The exact sum of a group, or its mean if `rows` are told, as canonical text."""
    total = sum(map(Fraction, large), Fraction(Decimal(small or "0")))
    return decimal_text(round(total / rows, AVG_PLACES) if rows else total)
