"""The blocking client: pipelines, threads, time-outs, lost servers."""

import os
import socket
import threading
import time

import pytest

from pequod import (
    BadKey,
    BadRequest,
    Client,
    ComputedKey,
    OversizedKey,
    ProtocolError,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from tests.client import rogue
from tests.live import LiveServer

TOKEN = "a token of enough characters"


@pytest.fixture
def live():
    with LiveServer() as one:
        yield one


@pytest.fixture
def pq(live):
    with Client(live.url) as one:
        yield one


def test_a_pipeline_gives_results_in_order(pq):
    with pq.pipeline() as pipe:
        pipe.put("k|1", "one")
        pipe.put_many({"k|2": "two", "k|3": "three"})
        pipe.get("k|2")
        pipe.scan("k|", "k}", limit=1, reverse=True)
        pipe.count("k|", "k}")
        pipe.remove("k|1")
        pipe.remove_range("k|", "k}")
        assert len(pipe) == 7
        assert pipe.execute() == [None, None, "two", [("k|3", "three")], 3, True, 2]
        assert pipe.execute() == []


def test_a_pipeline_may_be_longer_than_all_buffers(pq):
    value = "v" * 1000
    with pq.pipeline() as pipe:
        for number in range(10_000):
            pipe.put(f"k|{number:05}", value)
        assert pipe.execute() == [None] * 10_000
        for _ in range(200):
            pipe.scan("k|", "k}", limit=100)
        assert [len(rows) for rows in pipe.execute()] == [100] * 200


def test_an_error_in_a_pipeline_comes_after_all_calls(pq):
    pq.add_join("o|<a> = copy k|<a>")
    with pq.pipeline() as pipe:
        pipe.put("k|1", "one")
        pipe.put("o|1", "no")
        pipe.put("k|2", "two")
        with pytest.raises(ComputedKey):
            pipe.execute()
        pipe.get("k|2")
        pipe.get("")
        value, error = pipe.execute(raise_errors=False)
    assert value == "two"
    assert isinstance(error, BadKey)


def test_a_pipeline_that_is_left_sends_nothing(pq):
    with pq.pipeline() as pipe:
        pipe.put("k|1", "one")
    assert pq.get("k|1") is None


def test_iterate_goes_through_pages(pq):
    rows = [(f"k|{number:05}", "v") for number in range(2_500)]
    pq.put_many(rows)
    assert list(pq.iterate("k|", "k}")) == rows
    assert list(pq.iterate("k|", "k}", reverse=True, page=7)) == rows[::-1]
    assert list(pq.iterate("k}", "k|")) == []


def test_iterate_takes_what_a_scan_may_not():
    with LiveServer(max_rows=100, max_reply=4096) as live, Client(live.url) as pq:
        rows = [(f"k|{number:03}", "v" * 100) for number in range(300)]
        for row in rows:
            pq.put(*row)
        with pytest.raises(TooLarge, match=r"more than 100 rows.*iterate"):
            pq.scan("k|", "k}")
        with pytest.raises(TooLarge, match=r"over 4096 bytes.*iterate"):
            pq.scan("k|", "k}", limit=90)
        assert list(pq.iterate("k|", "k}")) == rows
        pq.put("k|3", "v" * 5000)
        with pytest.raises(TooLarge):
            list(pq.iterate("k|", "k}"))


def test_threads_share_a_client(pq):
    failures = []

    def work(thread: int) -> None:
        for number in range(200):
            key = f"k|{thread}|{number}"
            pq.put(key, key)
            if pq.get(key) != key:
                failures.append(key)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert pq.count("k|", "k}") == 1600


def test_no_server():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with (
        Client(f"pequod://127.0.0.1:{port}") as pq,
        pytest.raises(Unavailable, match="is the server running"),
    ):
        pq.get("k|1")


def test_a_server_that_comes_back(live, pq):
    pq.put("k|1", "one")
    live.stop()
    live.start()
    assert pq.get("k|1") is None  # read again on a new connection; that cache is empty
    live.stop()
    live.start()
    pq.put("k|1", "two")  # it was seen that the old connection is gone
    assert pq.get("k|1") == "two"


def test_an_oversized_key_harms_nobody_else(live, pq):
    for ask in (lambda: pq.get("x" * 5000), lambda: pq.put_many([("k|1", "1"), ("x" * 5000, "1")])):
        with pytest.raises(OversizedKey):
            ask()
    with pq.pipeline() as pipe:
        pipe.get("x" * 5000)
        with pytest.raises(OversizedKey):
            pipe.execute()
    assert pq.get("k|1") is None
    assert live.server.service.errors == {}


def test_a_key_that_only_the_server_finds_too_long():
    with LiveServer(max_key=10) as live, Client(live.url) as pq:
        for _ in range(3):
            with pytest.raises(OversizedKey, match="max_key"):
                pq.put("k|12345678901", "1")
            pq.put("k|1", "1")
        with pq.pipeline() as pipe:
            pipe.get("k|1")
            pipe.put("k|12345678901", "1")
            pipe.put("k|2", "1")
            with pytest.raises(OversizedKey, match="max_key"):
                pipe.execute()
        assert pq.get("k|1") == "1"


def test_a_request_over_the_limit_says_so():
    with LiveServer() as live, Client(live.url) as pq:
        with pytest.raises(Unavailable, match="max_frame"):
            pq.put_many([(f"k|{number}", "v" * 1_000_000) for number in range(20)])
        assert pq.get("k|1") is None


def test_answers_that_drip_are_late(live):
    def drip(one: socket.socket) -> None:
        one.recv(1 << 16)
        for byte in b"\x93\x01\xc0" * 20:
            one.sendall(bytes([byte]))
            threading.Event().wait(0.05)

    with rogue.RogueServer(drip) as server, Client(server.url, timeout=0.2) as pq:
        before = time.monotonic()
        with pytest.raises((TimedOut, ProtocolError)):
            pq.get("k|1")
        assert time.monotonic() - before < 1


def test_no_answer_in_time():
    with rogue.RogueServer(rogue.silent) as server, Client(server.url, timeout=0.05) as pq:
        with pytest.raises(TimedOut, match=r"no answer in 0\.05 seconds"):
            pq.get("k|1")
        with pytest.raises(TimedOut):
            pq.put("k|1", "one")


def test_a_server_that_hangs_up():
    with rogue.RogueServer(rogue.closing) as server, Client(server.url, timeout=0.3) as pq:
        with pytest.raises(Unavailable, match="lost"):
            pq.get("k|1")
        assert server.accepted < 20, "it does not try without a pause"
        with pytest.raises(Unavailable):
            pq.put("k|1", "one")


@pytest.mark.parametrize("behave", [rogue.speaks_http, rogue.babbling])
def test_a_server_that_is_no_pequod(behave):
    with (
        rogue.RogueServer(behave) as server,
        Client(server.url) as pq,
        pytest.raises(ProtocolError),
    ):
        pq.get("k|1")


def test_what_cannot_be_sent(pq):
    for value in (object(), 1 << 70, {"a": {1, 2}}, "\ud800"):
        with pytest.raises(BadRequest, match="cannot be sent"):
            pq.put("k|1", value)
    assert pq.get("k|1") is None


def test_tokens():
    with LiveServer(token=TOKEN) as live:
        with Client(live.url) as pq, pytest.raises(Unauthorized, match="PEQUOD_TOKEN"):
            pq.get("k|1")
        with Client(live.url, token="wrong") as pq, pytest.raises(Unauthorized):
            pq.get("k|1")
        with Client(live.url, token=TOKEN) as pq:
            assert pq.get("k|1") is None


def test_a_closed_client(pq):
    pq.put("k|1", "one")
    pq.close()
    with pytest.raises(Unavailable, match="closed"):
        pq.get("k|1")
    pq.close()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "3", None])
def test_a_time_out_is_a_positive_number(timeout):
    with pytest.raises(BadRequest, match="timeout"):
        Client(timeout=timeout)


@pytest.mark.parametrize("page", [0, -1, "x", None])
def test_a_page_has_rows(pq, page):
    with pytest.raises(BadRequest, match="page"):
        list(pq.iterate("a", "b", page=page))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_has_connections_of_its_own(live, pq):
    pq.put_many({f"k|{number:03}": str(number) for number in range(200)})
    children = []
    for child in range(2):
        process = os.fork()
        if process == 0:
            right = all(pq.get(f"k|{number:03}") == str(number) for number in range(child, 200, 2))
            os._exit(0 if right else 1)
        children.append(process)
    assert all(pq.get(f"k|{number:03}") == str(number) for number in range(200))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def test_a_key_within_a_timed_call_is_checked_too(pq):
    with pytest.raises(OversizedKey):
        pq.timed("get", "x" * 5000)
    assert pq.get("k|1") is None
