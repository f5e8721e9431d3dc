"""Live ranges: pushed to clients, streamed over HTTP, resumed after a disconnect."""

import asyncio
import json
import random
import urllib.parse
from contextlib import suppress

import pytest

from pequod import AsyncClient, Forbidden, TooLarge, prefix
from pequod.client import pipelined
from pequod.server import feeds, routes
from tests.oracle import expected_rows
from tests.server.helpers import TOKEN, Wire, address_of, serving, until

TIMELINE = """
    t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
    ct|<time:3>|<poster> = copy cp|<poster>|<time>;
    t|<user>|<time:3>|<poster> = pull copy ct|<time>|<poster> check s|<user>|<poster>;
"""


class Replay:
    """The rows of a range as its events tell them."""

    def __init__(self) -> None:
        self.rows: dict = {}
        self.kinds: list[str] = []
        self.seen = ""

    def take(self, kind: str, data, seen: str) -> None:
        self.kinds.append(kind)
        self.seen = seen
        if kind == "init":
            self.rows = dict(data)
        elif kind == "update":
            self.rows[data[0]] = data[1]
        else:
            del self.rows[data]

    def hear(self, event) -> None:
        """An event of the client."""
        data = {"init": event.rows, "update": (event.key, event.value), "remove": event.key}
        self.take(event.kind, data[event.kind], event.id)


class Stream:
    """Server-sent events by a raw connection."""

    def __init__(self, reader, writer) -> None:
        self.reader, self.writer = reader, writer
        self._text = ""

    @classmethod
    async def open(cls, server, keys: str, seen: str = "") -> "Stream":
        reader, writer = await asyncio.open_connection(*address_of(server))
        last = f"Last-Event-ID: {seen}\r\n" if seen else ""
        query = urllib.parse.urlencode({"prefix": keys})
        writer.write(f"GET /v1/watch?{query} HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except BaseException:  # cancelled
            writer.close()
            raise
        assert b" 200 OK" in head
        assert b"text/event-stream" in head
        return cls(reader, writer)

    async def into(self, replay: Replay, events: int = 1) -> None:
        for _ in range(events):
            fields = dict(line.split(": ", 1) for line in (await self.event()).splitlines())
            replay.take(fields["event"], json.loads(fields["data"]), fields["id"])

    async def event(self) -> str:
        """The lines of the next event; signs of life are left out."""
        while True:
            text, end, self._text = self._text.partition("\n\n")
            if not end:
                self._text = text + await self._chunk()
            elif not text.startswith(":"):
                return text

    async def _chunk(self) -> str:
        size = int((await self.reader.readline()).strip() or b"0", 16)
        if not size:
            raise EOFError
        return (await self.reader.readexactly(size + 2))[:-2].decode()

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


async def quiet(server, replay: Replay, keys: str) -> None:
    """Wait until the replayed state is that of a scan; it soon is."""
    while replay.rows != dict(server.cache.scan(*prefix(keys))):
        await asyncio.sleep(0.001)


def test_a_client_watches(run):
    async def work():
        async with serving() as server, AsyncClient(server.url) as pq:
            await pq.add_join(TIMELINE)
            await pq.put_many({"s|ann|bob": "1", "p|bob|100": "Hi"})
            replay = Replay()
            async for event in pq.watch(*prefix("t|ann|")):
                replay.hear(event)
                if len(replay.kinds) == 1:
                    assert event.rows == [("t|ann|100|bob", "Hi")]
                    await pq.put("p|bob|120", b"\xff")
                elif len(replay.kinds) == 2:
                    assert (event.key, event.value) == ("t|ann|120|bob", b"\xff")
                    await pq.remove("s|ann|bob")  # a lazy source
                elif not replay.rows:
                    break
            assert replay.kinds == ["init", "update", "remove", "remove"]
            assert await pq.get("p|bob|100") == "Hi", "the connection goes on"

    run(work())


def test_nothing_is_left_when_nobody_watches(run, monkeypatch):
    monkeypatch.setattr(feeds, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(routes, "BEAT_SECONDS", 0.01)

    async def work():
        async with serving() as server, AsyncClient(server.url) as pq:
            watching = pq.watch("a", "b")
            await anext(watching)
            async with await Stream.open(server, "c|"):
                assert len(server._port.feeds) == 2
            await watching.aclose()
            while len(server._port.feeds):
                await asyncio.sleep(0.001)
            assert server.cache._store.watches == {}
            assert pq._connection._topics == {}

    run(work())


def test_a_stream_goes_on_after_a_disconnect(run):
    async def work():
        async with serving() as server:
            server.cache.put("k|1", "one")
            replay = Replay()
            async with await Stream.open(server, "k|") as stream:
                await stream.into(replay)
                server.cache.put("k|2", "two")
                await stream.into(replay)
            server.cache.put("k|3", "three")
            server.cache.remove("k|1")
            async with await Stream.open(server, "k|", replay.seen) as stream:
                await stream.into(replay, 2)
            assert replay.kinds == ["init", "update", "remove", "update"]
            assert replay.rows == {"k|2": "two", "k|3": "three"}

    run(work())


@pytest.mark.parametrize("seen", ["nonsense", "00000000-1", "-", "x-99999999999999999999"])
def test_what_was_never_told_is_told_anew(run, seen):
    async def work():
        async with serving() as server:
            server.cache.put("k|1", "one")
            replay = Replay()
            async with await Stream.open(server, "k|", seen) as stream:
                await stream.into(replay)
            assert (replay.kinds, replay.rows) == (["init"], {"k|1": "one"})

    run(work())


def test_who_missed_too_much_starts_again(run, monkeypatch):
    monkeypatch.setattr(feeds, "KEPT_EVENTS", 3)

    async def work():
        async with serving() as server:
            replay = Replay()
            async with await Stream.open(server, "k|") as stream:
                await stream.into(replay)
            for number in range(10):
                server.cache.put(f"k|{number}", "v")
            async with await Stream.open(server, "k|", replay.seen) as stream:
                await stream.into(replay)
            assert replay.kinds == ["init", "init"]
            assert len(replay.rows) == 10

    run(work())


def test_large_values_are_not_kept_by_the_thousand(run, monkeypatch):
    monkeypatch.setattr(feeds, "KEPT_SIZE", 1000)
    monkeypatch.setattr(feeds, "MAX_PENDING_SIZE", 1000)

    async def work():
        async with serving() as server:
            replay = Replay()
            async with await Stream.open(server, "k|") as stream:
                await stream.into(replay)
                [feed] = server._port.feeds._feeds.values()
                listener = feed.listen(lambda _: None, replay.seen)  # who never takes
                for number in range(10):
                    server.cache.put("k|1", f"{number}" * 300)
                    await stream.into(replay)
                assert [event.data[1][0] for event in feed._kept] == ["7", "8", "9"]
                assert listener._pending == []
                [event] = listener.take()
                assert (event.kind, event.data) == ("init", [("k|1", "9" * 300)])
                server.cache.put("k|1", "short")
                await stream.into(replay)
                assert [event.kind for event in listener.take()] == ["update"]
                assert feed._kept_size == sum(event.size for event in feed._kept)

    run(work())


def test_who_does_not_read_is_bounded_and_starts_again(run, monkeypatch):
    monkeypatch.setattr(feeds, "MAX_PENDING", 10)

    async def work():
        async with serving() as server, await Wire.open(server) as wire:
            wire.send((1, "watch", 7, "k|", "k}"))
            wire.writer.transport.pause_reading()
            big = "v" * 100_000
            for number in range(300):
                server.cache.put(f"k|{number % 50}", f"{number}{big}")
                await asyncio.sleep(0)
            [listener] = server._port.feeds._feeds.popitem()[1]._listeners
            assert len(listener._pending) <= 10
            wire.writer.transport.resume_reading()
            replay = Replay()
            while len(replay.rows) < 50 or not replay.rows["k|49"].startswith("299v"):
                number, topic, rest = await wire.reply()
                if number == 0:
                    assert topic == 7
                    replay.take(rest[1], rest[2], rest[0])
            assert replay.kinds.count("init") >= 2

    run(work())


def test_a_listener_that_is_too_slow_starts_again(run, monkeypatch):
    monkeypatch.setattr(pipelined, "MAX_EVENTS", 5)

    async def work():
        async with serving() as server, AsyncClient(server.url) as pq:
            replay = Replay()
            watching = pq.watch("k|", "k}")
            replay.hear(await anext(watching))
            for number in range(20):
                await pq.put(f"k|{number}", "v")
            await asyncio.sleep(0.05)
            while len(replay.rows) < 20:
                replay.hear(await anext(watching))
            assert replay.kinds.count("init") == 2
            await watching.aclose()

    run(work())


def test_prefixes_hold_for_watching(run, tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(f'[[token]]\nname="a"\ntoken="{TOKEN}"\nrole="read"\nprefixes=["a|"]\n')

    async def work():
        async with serving(tokens=str(file)) as server:
            async with AsyncClient(server.url, token=TOKEN) as pq:
                assert (await anext(pq.watch("a|", "a}"))).kind == "init"
                for keys in (("b|", "b}"), ("a|", "c"), ("", "z")):
                    with pytest.raises(Forbidden, match="watch"):
                        await anext(pq.watch(*keys))
            async with await Wire.open(server) as wire:
                assert await wire.call("watch", 1, "a|", "a}") == "unauthorized"

    run(work())


def test_bad_calls(run):
    async def work():
        async with serving(max_rows=5) as server, await Wire.open(server) as wire:
            assert await wire.call("watch") == "bad_request"
            assert await wire.call("watch", 0, "a", "b") == "bad_request"
            assert await wire.call("watch", "x", "a", "b") == "bad_request"
            assert await wire.call("watch", 1, 2, "b") == "bad_key"
            assert await wire.call("watch", 1, "a", "b", 3) == "bad_request"
            assert await wire.call("unwatch", 9) is False
            assert await wire.call("unwatch", (9,)) is False
            for number in range(6):
                server.cache.put(f"k|{number}", "v")
            assert await wire.call("watch", 1, "k|", "k}") == "too_large"
            async with AsyncClient(server.url) as pq:
                with pytest.raises(TooLarge, match="max_rows"):
                    await anext(pq.watch("k|", "k}"))

    run(work())


def test_snapshots_are_looked_at_when_they_expire(run):
    async def work():
        async with serving() as server, AsyncClient(server.url) as pq:
            await pq.add_join("n|<day> = snapshot 0.05 count hit|<day>|<id>")
            watching = pq.watch("n|", "n}")
            await anext(watching)
            await pq.put("hit|mon|1", "1")
            assert (await anext(watching)).value == "1"

    run(work())


def test_the_end_of_the_server_ends_streams(run):
    async def work():
        async with serving() as server, await Stream.open(server, "k|") as stream:
            await stream.into(Replay())
            begun = asyncio.get_running_loop().time()
            await server.stop()
            assert asyncio.get_running_loop().time() - begun < 2
            with pytest.raises((EOFError, ConnectionError)):
                await stream.event()

    run(work())


@pytest.mark.parametrize("seed", range(8))
def test_after_every_quiet_moment_the_stream_equals_a_scan(run, seed):
    """Random writes; both kinds of stream, cut and resumed at random, against the oracle."""
    chance = random.Random(seed)
    joins = [join for join in TIMELINE.split(";") if join.strip()]
    keys = [
        f"{table}|{a}|{b}" for table in ("s", "p", "cp") for a in "abc" for b in ("100", "a", "b")
    ]

    async def work():
        async with serving() as server, AsyncClient(server.url) as pq:
            await pq.add_join(TIMELINE)
            base: dict = {}
            by_client, by_http = Replay(), Replay()

            async def listen():
                async for event in pq.watch(*prefix("t|a|")):
                    by_client.hear(event)

            async def stream():
                while True:
                    async with await Stream.open(server, "t|a|", by_http.seen) as one:
                        await one.into(by_http, chance.randint(1, 6))

            tasks = [asyncio.create_task(listen()), asyncio.create_task(stream())]
            for _ in range(60):
                key = chance.choice(keys)
                if chance.random() < 0.3:
                    base.pop(key, None)
                    await pq.remove(key)
                else:
                    base[key] = str(chance.randrange(10))
                    await pq.put(key, base[key])
                if chance.random() < 0.1:
                    server.cache.evict(prefix("t|"))
                if chance.random() < 0.2:
                    await quiet(server, by_client, "t|a|")
                    await quiet(server, by_http, "t|a|")
                    rows = dict(expected_rows(joins, base))
                    expected = {k: v for k, v in rows.items() if k.startswith("t|a|")}
                    assert by_client.rows == by_http.rows == expected
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(work())


def test_a_feed_that_nobody_hears_does_nothing(run):
    async def work():
        async with serving() as server:
            replay = Replay()
            async with await Stream.open(server, "k|") as stream:
                await stream.into(replay)
                [feed] = server._port.feeds._feeds.values()
            server.cache.put("k|0", "v")  # the stream finds that its reader has left
            await until(lambda: not feed.is_heard)
            for number in range(100):
                server.cache.put(f"k|{number}", "w")
                await asyncio.sleep(0)
            assert feed._number <= 1
            async with await Stream.open(server, "k|") as stream:
                await stream.into(replay)
            assert len(replay.rows) == 100

    run(work())


def test_a_range_that_has_grown_over_the_limit_takes_no_more_listeners(run):
    async def work():
        async with serving(max_rows=10) as server, AsyncClient(server.url) as pq:
            first = pq.watch("k|", "k}")
            await anext(first)
            for number in range(20):
                await pq.put(f"k|{number:02}", "v")
            with pytest.raises(TooLarge):
                await anext(pq.watch("k|", "k}"))
            assert (await anext(first)).key == "k|00"  # whoever was there goes on
            await first.aclose()

    run(work())


@pytest.mark.parametrize("number", ["9" * 5000, "²", "", "-1"])
def test_an_event_id_that_is_none_starts_again(run, number):
    async def work():
        async with serving() as server:
            server.cache.put("k|1", "v")
            replay = Replay()
            async with await Stream.open(server, "k|") as stream:
                await stream.into(replay)
            seen = f"{replay.seen.partition('-')[0]}-{number}"
            async with await Stream.open(server, "k|", seen) as stream:
                await stream.into(replay)
            assert replay.kinds == ["init", "init"]

    run(work())
