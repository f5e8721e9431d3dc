"""HTTP by raw sockets: routes, formats, who may come in, and what a connection may do."""

import json
import logging

import msgpack
import pytest

from pequod.keys import END
from tests.server.helpers import Web, lines_of, plant, serving, until

JSON, MSGPACK = "application/json", "application/msgpack"


@pytest.fixture
def ask(run):
    """Ask a fresh server that holds a few rows; gives the answers."""

    def ask(*requests, **settings):
        async def work():
            async with serving(**settings) as server, await Web.open(server) as web:
                server.cache.add_join("c|<a> = count k|<a>|<n>;")
                server.cache.put_many([("k|x|1", "één"), ("k|x|2", b"\xff"), ("lone", "1")])
                return [await getattr(web, name)(*args, **more) for name, args, more in requests]

        return run(work())

    return ask


def get(*args, **more):
    return "get", args, more


def rpc(*args, **more):
    return "rpc", args, more


def test_the_routes(ask):
    targets = {
        "/v1/get?key=lone": "1",
        "/v1/get?key=k|x|1": "één",  # as curl sends it
        "/v1/get?key=k%7Cx%7C2": {"base64": "/w=="},
        "/v1/scan?prefix=k|": [["k|x|1", "één"], ["k|x|2", {"base64": "/w=="}]],
        "/v1/scan?first=c&last=l": [["c|x", "2"], ["k|x|1", "één"], ["k|x|2", {"base64": "/w=="}]],
        "/v1/scan?prefix=k|&limit=1&reverse=true": [["k|x|2", {"base64": "/w=="}]],
        "/v1/scan?prefix=k|&limit=0": [],
        "/v1/scan?prefix=&limit=1&reverse=0": [["c|x", "2"]],
        "/v1/scan?prefix=k|&first=k|x|2&last=zzz": [["k|x|2", {"base64": "/w=="}]],
        "/v1/scan?prefix=k|&first=l&last=a": [],
        "/v1/scan?first=lone": [["lone", "1"]],
        "/v1/scan?last=d": [["c|x", "2"]],
        "/v1/count": 4,
        "/v1/count?prefix=k": 2,
        "/v1/count?prefix=" + 4000 * "%F0%9F%90%8B": 0,
        "/healthz": {"status": "ok"},
        "/livez": {"status": "ok"},
        "/readyz": {"status": "ok"},
    }
    for target, answer in zip(targets, ask(*map(get, targets))):
        assert (answer.status, answer.json) == (200, targets[target]), target
        assert answer.headers["content-type"] == JSON
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_routes_that_tell_of_the_server(ask):
    targets = ["/", "/v1/joins", "/v1/stats", "/v1/explain?prefix=c|", "/openapi.json", "/metrics"]
    home, joins, stats, explain, openapi, metrics = ask(*map(get, targets))
    assert home.headers["content-type"].startswith("text/html")
    assert "frame-ancestors 'none'" in home.headers["content-security-policy"]
    assert all(f'"{target}'.encode() in home.body for target in targets[1:3] + targets[4:])
    assert joins.json[0]["name"] == "c#1"
    assert stats.json["server"]["connections"] == 1
    assert explain.json["joins"][0]["name"] == "c#1"
    assert set(openapi.json["paths"]) >= {"/rpc", "/v1/scan", "/readyz", "/"}
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


BAD_ADDRESSES = [
    ("/v1/get?key=nothing", 404, "no_such_key"),
    ("/v1/get", 400, "bad_request"),
    ("/v1/get?key=", 400, "bad_key"),
    ("/v1/get?key=" + 5000 * "k", 400, "oversized_key"),
    ("/v1/get?key=%F4%8F%BF%BF", 400, "bad_key"),
    ("/v1/get?key=a&key=b", 400, "bad_request"),
    ("/v1/get?key=a&other=b", 400, "bad_request"),
    ("/v1/scan?prefix=a&limit=-1", 400, "bad_request"),
    ("/v1/scan?prefix=a&limit=x", 400, "bad_request"),
    ("/v1/scan?prefix=a&limit=" + 30 * "9", 400, "bad_request"),
    ("/v1/scan?prefix=a&limit=%D9%A1", 400, "bad_request"),
    ("/v1/scan?prefix=a&reverse=maybe", 400, "bad_request"),
    ("/v1/joins?x=1", 400, "bad_request"),
    ("/v1/stats?x=1", 400, "bad_request"),
    ("/v2/get", 404, "no_such_route"),
    ("/V1/get?key=lone", 404, "no_such_route"),
    ("/v1/get/", 404, "no_such_route"),
    ("/../etc/passwd", 404, "no_such_route"),
    ("/%2e%2e/%00%0a", 404, "no_such_route"),
]


def test_a_bad_address(ask):
    answers = ask(*(get(target) for target, _, _ in BAD_ADDRESSES))
    for answer, (target, status, code) in zip(answers, BAD_ADDRESSES):
        assert (answer.status, answer.code) == (status, code), target


def test_verbs(ask):
    for verb in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        [answer] = ask(get("/v1/get?key=lone", verb))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    [answer] = ask(get("/rpc"))
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    head, fine, nothing = ask(
        get("/v1/get?key=lone", "HEAD"), get("/v1/get?key=lone"), get("/v1/get?key=no", "HEAD")
    )
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "4")
    assert fine.json == "1"
    assert nothing.status == 404


def test_calls_in_json_and_msgpack(ask):
    calls = [["put", "a", "1"], ["get", "a"], ["scan", "k|", "k}", 1], ["count", "k|", "k}"]]
    results = [None, "1", [["k|x|1", "één"]], 2]
    for answer, result in zip(ask(*map(rpc, calls)), results):
        assert (answer.status, answer.json) == (200, {"result": result})
    packed = [rpc(msgpack.packb(call), MSGPACK) for call in [*calls, ["get", "k|x|2"]]]
    for answer, result in zip(ask(*packed), [*results, b"\xff"]):
        assert answer.headers["content-type"] == MSGPACK
        assert msgpack.unpackb(answer.body) == {"result": result}


def test_bytes_in_json(ask):
    put, found, many, scan, *bad = ask(
        rpc(["put", "b", {"base64": "AP8="}]),
        rpc(["get", "b"]),
        rpc(["put_many", [["b|1", {"base64": ""}], ["b|2", "text"]]]),
        rpc(["scan", "b|", "b}"]),
        rpc(b'["put", "b", {"base64": "x"}]'),
        rpc(["put", "b", {"base64": "AP8=", "more": 1}]),
        rpc(["put", "b", {"base64": 5}]),
        rpc(["put", "b", {}]),
    )
    assert (put.status, many.status) == (200, 200)
    assert found.json == {"result": {"base64": "AP8="}}
    assert scan.json == {"result": [["b|1", {"base64": ""}], ["b|2", "text"]]}
    assert [answer.status for answer in bad] == [400] * 4


def test_batches(ask, caplog):
    calls = [["put", "a", "1"], ["get", "a"], ["no_such"], ["get"], 5, [], ["put", "c|x", "1"]]
    for kind, body, read in (
        (JSON, json.dumps(calls).encode(), json.loads),
        (MSGPACK, msgpack.packb(calls), msgpack.unpackb),
    ):
        [answer] = ask(rpc(body, kind))
        outcomes = read(answer.body)
        assert outcomes[:2] == [{"result": None}, {"result": "1"}]
        codes = [outcome["error"]["code"] for outcome in outcomes[2:]]
        assert codes == [
            "unknown_method", "bad_request", "bad_request", "bad_request", "computed_key",
        ]  # fmt: skip
    [answer] = ask(rpc([["joins"]] * 10_001))
    assert (answer.status, answer.code) == (413, "too_large")
    assert lines_of(caplog) == []


def test_a_batch_over_the_limit_answers_what_fits(ask):
    put, batch = ask(
        rpc(["put", "big", "v" * 600]),
        rpc([["get", "big"], ["get", "big"], ["put", "after", "1"], ["get", "after"]]),
        max_reply=1024,
    )
    assert put.status == 200
    first, second, third, fourth = batch.json
    assert first == {"result": "v" * 600}
    assert second["error"]["code"] == "too_large"
    assert (third, fourth) == ({"result": None}, {"result": "1"})


BODIES = [
    (b"", JSON, 400),
    (b"{", JSON, 400),
    (b"5", JSON, 400),
    (b"[]", JSON, 400),
    (b"{}", JSON, 400),
    (b"null", JSON, 400),
    (b"[null]", JSON, 200),
    (b"[NaN]", JSON, 200),
    (b'["get", "\xff"]', JSON, 400),
    (b"[" * 100_000, JSON, 400),
    (b'["get", ' + b'{"a":' * 50_000, JSON, 400),
    (b"[" + b"9" * 10_000 + b"]", JSON, 400),
    (b'["scan", "a", "b", 1e999]', JSON, 400),
    (b'["get", "\\ud800"]', JSON, 400),
    (b'["put", "k", "\\udfff"]', JSON, 400),
    (b'["explain", "\\ud800", "\\udfff"]', JSON, 200),
    (b'["drop_join", []]', JSON, 404),
    (b'["drop_join", {}]', JSON, 404),
    (b'["\\ud800"]', JSON, 404),
    (b'["get", {"a": 1}]', JSON, 400),
    (b'["put", "c|x", "1"]', JSON, 409),
    (b'["drop_join", "none"]', JSON, 404),
    (b'["get", "a"] x', JSON, 400),
    (b'["get", "a"]', "text/plain", 415),
    (b'["get", "a"]', "application/x-www-form-urlencoded", 415),
    (b'["get", "a"]', "multipart/form-data; boundary=x", 415),
    (b'["get", "a"]', "", 415),
    (b'["get", "a"]', "nonsense", 415),
    (b'["get", "a"]', "application/json; charset=utf-8", 200),
    (b"", MSGPACK, 400),
    (b"\xc1", MSGPACK, 400),
    (b"\x91" * 5000, MSGPACK, 400),
    (b"\x81\xa1a\x01", MSGPACK, 400),
    (msgpack.packb(["get", msgpack.Timestamp(1)]), MSGPACK, 400),
    (msgpack.packb(["get", "a"]) + b"\x01", MSGPACK, 400),
    (b"\x92\xa3get\xa1\xff", MSGPACK, 400),
    (b"\xdd\xff\xff\xff\xff", MSGPACK, 400),
]


def test_bodies(ask, caplog):
    answers = ask(*(rpc(body, kind) for body, kind, _ in BODIES))
    for answer, (body, kind, status) in zip(answers, BODIES):
        assert answer.status == status, (body[:30], kind)
    assert lines_of(caplog) == []


def test_a_compressed_body_is_refused(ask):
    answers = ask(*(rpc(["joins"], Content_Encoding=how) for how in ("gzip", "deflate", "br", "x")))
    assert {(answer.status, answer.code) for answer in answers} == {(415, "unsupported_type")}


def test_a_body_over_the_limit(run):
    async def work():
        async with serving(max_frame=2000) as server:
            async with await Web.open(server) as web:
                body = json.dumps(["get", "k" * 1990]).encode()
                assert len(body) == 2001
                answer = await web.rpc(body)
                assert (answer.status, answer.code) == (413, "too_large")
            async with await Web.open(server) as web:
                assert (await web.rpc(body.replace(b"k", b"", 1))).status == 200
                assert (await web.rpc(["joins"])).status == 200
            async with await Web.open(server) as web:
                chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
                head = "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                web.writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 3)
                assert (await web.answer()).status == 413

    run(work())


def test_a_body_that_is_announced_is_asked_for(run):
    async def work():
        async with serving() as server, await Web.open(server) as web:
            web.ask("POST", "/rpc", Content_Type=JSON, Content_Length="9", Expect="100-continue")
            assert (await web.answer()).status == 100
            web.writer.write(b'["joins"]')
            assert (await web.answer()).json == {"result": []}
            assert (await web.rpc(["joins"])).status == 200

    run(work())


HEADERS = [
    ({"Host": "localhost:7709"}, {}, 200),
    ({"Host": "LOCALHOST"}, {}, 200),
    ({"Host": "127.0.0.1:7709"}, {}, 200),
    ({"Host": "[::1]:7709"}, {}, 200),
    ({"Host": "192.168.1.7:7709"}, {}, 200),  # a number is nobody's name
    ({"Host": "evil.example:7709"}, {}, 403),
    ({"Host": "localhost.evil.example"}, {}, 403),
    ({"Host": ""}, {}, 403),
    ({"Host": "[::1"}, {}, 200),
    ({"Host": "[evil.example]"}, {}, 403),
    ({"Host": "cache.example"}, {"allowed_hosts": ("Cache.example",)}, 200),
    ({"Host": "evil.example"}, {"token": "a-token-of-the-tests"}, 401),
    ({"Origin": "http://localhost"}, {}, 200),
    ({"Origin": "https://localhost"}, {}, 200),
    ({"Origin": "http://localhost:8080"}, {}, 403),
    ({"Origin": "http://evil.example"}, {}, 403),
    ({"Origin": "null"}, {}, 403),
    ({"Origin": ""}, {}, 403),
    ({"Origin": "http://["}, {}, 403),
    ({"Origin": "http://localhost.evil.example"}, {}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, {}, 403),
    ({"Sec-Fetch-Site": "same-site"}, {}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, {}, 200),
    ({"Sec-Fetch-Site": "none"}, {}, 200),
]


def test_no_page_of_another_site_drives_the_server(ask, caplog):
    for headers, settings, status in HEADERS:
        more = {name.replace("-", "_"): value for name, value in headers.items()}
        page, call = ask(get("/v1/get?key=lone", **more), rpc(["get", "lone"], **more), **settings)
        assert (page.status, call.status) == (status, status), headers
        assert "access-control-allow-origin" not in page.headers
    assert lines_of(caplog) == []


def test_keep_alive_and_pipelining(run):
    async def work():
        async with serving() as server, await Web.open(server) as web:
            for n in range(200):
                web.ask("POST", "/rpc", json.dumps(["put", f"k|{n}", "v"]).encode(),
                        Content_Type=JSON)  # fmt: skip
                web.ask("GET", f"/v1/get?key=k|{n}")
            for _ in range(200):
                assert (await web.answer()).json == {"result": None}
                assert (await web.answer()).json == "v"
            answer = await web.get("/livez", Connection="close")
            assert answer.headers["connection"] == "close"
            assert await web.rest() == b""

    run(work())


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS where there is none
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: secret" + b"x" * 10_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nN\x00l: b\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_with_400_and_one_line(run, caplog, data):
    async def work():
        async with serving(request_seconds=0.2) as server, await Web.open(server) as web:
            web.writer.write(data)
            said = await web.rest()
            if said:  # but for bytes that could go on as HTTP
                assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
                assert b'{"error":{"code":"bad_request"' in said
            assert b"secret" not in said
            await until(lambda: not server._port.open)

    run(work())
    [line] = lines_of(caplog)
    assert line.startswith("closed 127.0.0.1")
    assert "\n" not in line
    assert "secret" not in line


def test_a_body_that_breaks_off(run, caplog):
    async def work():
        async with serving() as server:
            async with await Web.open(server) as web:
                web.ask("POST", "/rpc", b"[", Content_Type=JSON, Content_Length="100")
                await until(lambda: any(getattr(one, "_body", 0) for one in server._port.open))
            await until(lambda: not server._port.open)
            async with await Web.open(server) as web:
                head = "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                web.writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\nnonsense\r\n".encode())
                assert (await web.answer()).status == 400

    run(work())
    assert [line for line in lines_of(caplog) if "failed" in line] == []


def test_a_body_that_does_not_come(run):
    async def work():
        async with serving(request_seconds=0.2) as server, await Web.open(server) as web:
            web.ask("POST", "/rpc", b"[", Content_Type=JSON, Content_Length="100")
            answer = await web.answer()
            assert (answer.status, answer.code) == (408, "timed_out")
            assert answer.headers["connection"] == "close"
            assert await web.rest() == b""

    run(work())


def test_a_fault_of_ours(run, caplog):
    async def work():
        async with serving() as server:
            plant(server, "count", lambda *args: 1 / 0)
            async with await Web.open(server) as web:
                for answer in (
                    await web.get("/v1/count?prefix=a"),
                    await web.rpc(["count", "", END]),
                ):
                    assert (answer.status, answer.code) == (500, "server_fault")
                batch = (await web.rpc([["get", "k"], ["count", "", ""], ["joins"]])).json
                assert batch[1]["error"]["code"] == "server_fault"
                assert [batch[0], batch[2]] == [{"result": None}, {"result": []}]

    run(work())
    faults = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(faults) == 3
    assert all(record.exc_info[0] is ZeroDivisionError for record in faults)


def test_errors_are_counted(run):
    async def work():
        async with serving() as server, await Web.open(server) as web:
            await web.rpc(["get", 5])
            await web.rpc([["get", 5], ["get", "k"]])
            await web.get("/nowhere")
            assert server.service.errors == {"bad_key": 2, "no_such_route": 1}
            assert server.service.stats()["server"]["calls"] == {"get": 1}

    run(work())


def test_a_transport_may_say_twice_that_it_goes_on(run):
    """uvloop does so over TLS."""

    async def work():
        async with serving() as server, await Web.open(server) as web:
            assert (await web.get("/healthz")).status == 200
            [session] = server._port.open
            session.resume_writing()
            assert (await web.get("/healthz")).status == 200

    run(work())
