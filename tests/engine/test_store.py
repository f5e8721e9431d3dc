"""The ordered store against something simpler: a dict, sorted for every question."""

import random
from collections.abc import Mapping

import pytest

from pequod.engine import rows as rows_module
from pequod.engine.rows import LargeRows, Rows
from pequod.engine.store import Store, Table, row_bytes, value_bytes
from pequod.keys import END, KeyRange, Value, point, prefix, table_of

# Keys with no bar and with many, keys that are prefixes of others, tables that begin alike,
# and characters on both sides of the bar.
KEYS = ["a", "b", "p", "t", "tt", "t}", "ré", "|", "||", "|a", "||a", "p|", "p||", "p|||", "t|"]
KEYS += [f"{table}|{user}" for table in ("p", "t", "tt", "é") for user in ("a", "ab", "~", "é")]
KEYS += [f"{key}|{time}" for key in KEYS[15:] for time in ("", "1", "10", "100", "1|x", "1|x|y")]
BOUNDS = [*KEYS, "", "p}", "t|a}", "t|a|1", "t|a|10\0", "t|b", "u", "~", END]
SETTINGS = [{}, {"t": 1}, {"t": 3, "p": 1}, {"t": 4, "tt": 3, "": 2}, {"t": 0, "p": 0}]


def put(store: Store, key: str, value: Value) -> Value | None:
    return store.put(store.table(table_of(key)), key, value)


def remove(store: Store, key: str) -> Value | None:
    return store.remove(store.table(table_of(key)), key)


def made(keys: list[str], bars: Mapping[str, int] | None = None) -> Store:
    store = Store(bars)
    for key in keys:
        put(store, key, f"value of {key}")
    store._check()
    return store


def only_subtable(store: Store, key: str) -> Rows | LargeRows:
    subtable = store.table(table_of(key)).subtable_of(key)
    assert subtable is not None, f"no subtable for {key!r}"
    return subtable.rows


@pytest.mark.parametrize("bars", SETTINGS, ids=str)
@pytest.mark.parametrize("crowded", [3, 8192])
@pytest.mark.parametrize("seed", range(6))
def test_as_a_dict_would(
    bars: dict[str, int], crowded: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "CROWDED", crowded)
    rng = random.Random(seed)
    store, rows = Store(bars), dict[str, Value]()
    for _ in range(250):
        key = rng.choice(KEYS)
        if rng.random() < 0.6:
            value = rng.choice(("1", "longer", b"bytes", "é" * 9))
            assert put(store, key, value) == rows.get(key), key
            rows[key] = value
        else:
            assert remove(store, key) == rows.pop(key, None), key
        store._check()
        asked = rng.choice(KEYS)
        assert store.get(asked) == rows.get(asked), asked
        keys = KeyRange(rng.choice(BOUNDS), rng.choice(BOUNDS))
        if keys:
            expected = sorted((k, v) for k, v in rows.items() if k in keys)
            assert store.scan(keys) == expected, keys
            assert store.count(keys) == len(expected), keys
            limit = rng.randrange(6)
            assert store.page(keys, limit, False) == expected[:limit], keys
            assert store.page(keys, limit, True) == expected[::-1][:limit], keys
        judge_pages(store.table("t").main.rows, keys, rng.randrange(4))
    for key in list(rows):
        remove(store, key)
    store._check()
    assert sum(table.bytes for table in store.tables.values()) == 0
    assert not store.jump, "empty subtables are forgotten"


def judge_pages(rows: Rows | LargeRows, keys: KeyRange, limit: int) -> None:
    """A page is the start of all pairs, or of all pairs reversed; an empty range has none."""
    pairs = [pair for pair in rows.pairs("", END) if pair[0] in keys]
    assert rows.pairs(*keys) == pairs, keys
    assert rows.count(*keys) == len(pairs), keys
    assert rows.page(*keys, limit, False) == pairs[:limit], keys
    assert rows.page(*keys, limit, True) == pairs[::-1][:limit], keys


@pytest.mark.parametrize("crowded", [3, 8192])
@pytest.mark.parametrize("seed", range(6))
def test_splices_and_cuts(crowded: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come and go by ranges, as computed ones do."""
    monkeypatch.setattr(rows_module, "CROWDED", crowded)
    rng = random.Random(seed)
    table, rows = Table("t", 2, {}), dict[str, Value]()
    mine = [key for key in KEYS if table_of(key) == "t"]
    for _ in range(120):
        keys = KeyRange(*sorted(rng.sample([*mine, "t}"], 2)))
        if rng.random() < 0.5:
            new = sorted(key for key in mine if key in keys and key not in rows)
            table.splice(new, ["v"] * len(new))
            rows.update(dict.fromkeys(new, "v"))
        else:
            cut = [key for span, _ in table.cut(keys) for key in span]
            assert sorted(cut) == sorted(key for key in rows if key in keys), keys
            rows = {key: value for key, value in rows.items() if key not in keys}
        for key in rng.sample(mine, 2):  # scattered rows, which make crowded ones large
            if key not in rows:
                table.place(key).rows.put(key, "v")
                rows[key] = "v"
        table.rows = len(rows)
        table._check()
        spans = [key for span, _ in table.spans(table.keys) for key in span]
        assert sorted(spans) == sorted(rows)


def test_rows_become_large_only_where_they_are_crowded_in_the_middle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_module, "CROWDED", 4)
    store = made([f"t|ann|{number}" for number in range(1, 9)])
    assert isinstance(only_subtable(store, "t|ann|1"), Rows), "rows at the end move nothing"
    put(store, "t|ann|0", "first")
    large = only_subtable(store, "t|ann|1")
    assert isinstance(large, LargeRows)
    assert len(large) == 9
    assert large.span("t|ann|2", "t|ann|4") == (
        ["t|ann|2", "t|ann|3"],
        ["value of t|ann|2", "value of t|ann|3"],
    )
    assert [large.count(*keys) for keys in (("t|ann|0", "t|ann|3"), ("t|ann|3", "t|ann|0"))] == [
        3,
        0,
    ]
    assert large.pairs("t|ann|3", "t|ann|0") == []
    store._check()


def test_a_large_subtable_that_empties_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "CROWDED", 2)
    store = made(["t|ann|3", "t|ann|2", "t|ann|1", "t|ann|0"])
    table = store.table("t")
    assert isinstance(only_subtable(store, "t|ann|1"), LargeRows)
    before = Store().table("t").total_bytes
    for number in range(4):
        assert remove(store, f"t|ann|{number}") is not None
    store._check()
    assert table.subtable_of("t|ann|1") is None
    assert table.total_bytes == before, "the account is as it was before the first row"


@pytest.mark.parametrize(
    ("key", "bars", "expected"),
    [
        ("t|ann|100|bob", 2, "t|ann|"),
        ("t|ann|", 2, "t|ann|"),
        ("t|ann", 2, ""),
        ("t||", 2, "t||"),
        ("t|ann|100|bob", 3, "t|ann|100|"),
        ("t|ann|100", 3, ""),
        ("t|ann|100|bob", 1, ""),
        ("t|ann|100|bob", 0, ""),
    ],
)
def test_which_subtable_a_key_lives_in(key: str, bars: int, expected: str) -> None:
    assert Table("t", bars, {}).subtable_prefix(key) == expected


def test_subtables_are_an_index_and_never_a_border() -> None:
    """Barless, one-bar and many-bar keys of several tables come out as one ordered list."""
    for bars in SETTINGS:
        store = made(KEYS, bars)
        assert [key for key, _ in store.scan(KeyRange("", END))] == sorted(KEYS)
        for first in BOUNDS:
            for last in ("p|~", "t|ab", "t|ab|1", "t}", "u", END):
                keys = KeyRange(first, last)
                if keys:
                    expected = sorted(key for key in KEYS if key in keys)
                    assert [key for key, _ in store.scan(keys)] == expected, (bars, keys)


def test_one_key_among_its_prefixes() -> None:
    keys = ["t|a", "t|a|", "t|a|1", "t|a|10", "t|a|1|", "t|a|1|x", "t|ab|1"]
    store = made(keys)
    for key in keys:
        assert store.scan(point(key)) == [(key, f"value of {key}")]
    assert [key for key, _ in store.scan(prefix("t|a|1"))] == sorted(keys[2:6])


def test_values_are_shared_and_never_copied() -> None:
    value = "a text that Python would not share by itself" * 2
    store = Store()
    put(store, "p|bob|1", value)
    put(store, "p|eve|1", value)
    assert all(found is value for _, found in store.scan(prefix("p|")))


def test_the_account_follows_each_row() -> None:
    store = Store()
    table = store.table("p")
    put(store, "p|bob|1", "some words")
    assert table.bytes == row_bytes("p|bob|1") + value_bytes("some words")
    put(store, "p|bob|1", "1")
    assert table.bytes == row_bytes("p|bob|1"), "short texts weigh nothing: Python shares them"
    put(store, "p|bob|é", "1")
    assert table.bytes == row_bytes("p|bob|1") + row_bytes("p|bob|é")
    assert remove(store, "p|bob|nothing") is None
    for key in ("p|bob|1", "p|bob|é"):
        remove(store, key)
    assert (table.rows, table.bytes) == (0, 0)


def test_check_finds_what_is_wrong() -> None:
    store = made(["t|ann|1", "t|ann|2"])
    rows = only_subtable(store, "t|ann|1")
    assert isinstance(rows, Rows)
    rows.keys.reverse()
    with pytest.raises(AssertionError, match="out of order"):
        store._check()
    rows.keys.reverse()
    store.table("t").rows += 1
    with pytest.raises(AssertionError, match="the account says 3"):
        store._check()
