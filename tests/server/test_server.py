"""Starting, stopping with notice and with answers on their way, and TLS."""

import asyncio
import socket
import ssl
from contextlib import AsyncExitStack

import pytest
import trustme

from pequod.config import ServerConfig
from pequod.errors import BadRequest
from pequod.server import Server
from tests.server.helpers import TOKEN, Web, Wire, address_of, lines_of, packed, serving, until

SCAN = ("scan", "k|", "k}")


def fill(server, rows):
    server.cache.put_many([(f"k|{n:05}", "v" * 1000) for n in range(rows)])


def settings(**of):
    return ServerConfig(**{"port": 0, **of})


# Starting.


def test_joins_are_installed_from_files(run, tmp_path, caplog):
    path = tmp_path / "joins.pq"
    path.write_text("c|<a> = count k|<a>|<n>; t|<n> = copy k|<a>|<n>;")
    server = Server(settings(joins=(str(path),)))
    assert [join["name"] for join in server.cache.joins()] == ["c#1", "t#1"]
    assert "join t#1: " in lines_of(caplog)[0], "its warnings are logged"
    path.write_text("nonsense")
    with pytest.raises(BadRequest, match=r"joins: .*joins\.pq: line 1"):
        Server(settings(joins=(str(path),)))
    with pytest.raises(BadRequest, match=r"joins: .*No such file"):
        Server(settings(joins=("/no/such/file",)))


def test_a_port_that_is_taken(run):
    async def work():
        async with serving() as server:
            _, port = address_of(server)
            with pytest.raises(BadRequest, match=f"cannot listen on 127.0.0.1:{port}"):
                await Server(settings(port=port)).start()
        for host in ("no.such.host.invalid", "a" * 70 + ".example", ".."):
            with pytest.raises(BadRequest, match="cannot listen on"):
                await Server(settings(host=host, insecure=True)).start()

    run(work())


def test_addresses(run):
    async def work():
        async with serving(host="localhost") as server, await Wire.open(server) as wire:
            assert await wire.call("get", "k") is None
        if socket.has_ipv6:
            async with serving(host="::1") as server, await Wire.open(server) as wire:
                assert server.url.startswith("pequod://[::1]:")
                assert await wire.call("get", "k") is None

    run(work())


# Stopping.


def test_stopping_lets_answers_out(run, caplog):
    async def work():
        server = Server(settings())
        await server.start()
        fill(server, 1000)
        async with (
            await Wire.open(server) as wire,
            await Web.open(server) as web,
            await Wire.open(server) as idle,
            await Wire.open(server) as silent,
        ):
            await idle.call("get", "k")
            wire.send(*((n, *SCAN) for n in range(1, 51)))
            web.ask("POST", "/rpc", b'["joi', Content_Type="application/json",
                    Content_Length="9")  # fmt: skip
            await until(lambda: any(getattr(one, "_body", 0) for one in server._port.open))
            await wire.reply()
            stopping = asyncio.ensure_future(server.stop())
            await asyncio.sleep(0)
            web.writer.write(b'ns"]')
            assert [reply[0] for reply in await wire.replies(49)] == list(range(2, 51))
            answer = await web.answer()
            assert (answer.json, answer.headers["connection"]) == ({"result": []}, "close")
            for one in (wire, web, idle, silent):
                assert await one.rest() == b""
            await stopping

    run(work())
    assert lines_of(caplog) == []


@pytest.mark.parametrize("speaks", [Wire, Web])
def test_stopping_does_not_wait_for_clients_that_do_not_read(run, caplog, speaks):
    async def work():
        server = Server(settings(drain_seconds=0.3))
        await server.start()
        fill(server, 20_000)
        async with await speaks.open(server) as lazy:
            if speaks is Wire:
                lazy.send(*((n, *SCAN) for n in range(1, 11)))
            else:
                lazy.ask("GET", "/v1/scan?prefix=k|")
            await until(lambda: any(session._stalled for session in server._port.open))
            port, loop = server._port, asyncio.get_running_loop()
            started = loop.time()
            await server.stop()
            assert 0.3 <= loop.time() - started < 2
            assert port.open == set()
            await server.stop()  # once more does no harm

    run(work())
    assert len(lines_of(caplog)) <= 1


def test_a_stopped_server_takes_nobody_in(run):
    async def work():
        server = Server(settings())
        await server.start()
        address = address_of(server)
        await server.stop()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(*address)
        await server.start()
        async with await Wire.open(server) as wire:
            assert await wire.call("get", "k") is None
        await server.stop()

    run(work())


def test_readiness_while_it_drains(run):
    async def work():
        async with serving() as server, await Web.open(server) as web:
            assert (await web.get("/readyz")).status == 200
            server._port.draining = True
            answer = await web.get("/readyz")
            assert (answer.status, answer.json) == (503, {"status": "stopping"})
            assert answer.headers["connection"] == "close"
            server._port.draining = False

    run(work())


def test_readiness_before_the_end(run):
    """Who asks anew is told, and all others are served as before."""

    async def work():
        async with serving(notice_seconds=0.3) as server, await Web.open(server) as old:
            assert (await old.get("/readyz")).status == 200
            notice = asyncio.ensure_future(server.give_notice())
            await until(lambda: not server._port.ready)
            async with await Web.open(server) as new:
                for web in (old, new):
                    assert (await web.get("/readyz")).status == 503
                    assert (await web.get("/livez")).status == 200
                    assert (await web.get("/v1/count")).json == 0
            assert not notice.done()
            await notice

    run(work())


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Settings for TLS, and a context that trusts the certificate."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    chain, key = folder / "chain.pem", folder / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for part in issued.cert_chain_pems:
        part.write_to_path(chain, append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return {"tls_cert": str(chain), "tls_key": str(key)}, context


def test_both_protocols_by_tls_on_one_port(run, certificate, caplog):
    files, context = certificate

    async def work():
        async with serving(**files) as server:
            assert server.url.startswith("pequods://")
            async with await Wire.open(server, context) as wire:
                wire.send(*((n, "put", f"k|{n:05}", "v" * 1000) for n in range(1, 3001)))
                assert len(await wire.replies(3000)) == 3000
                wire.send(*((n, *SCAN) for n in range(1, 11)))
                assert [len(reply[2]) for reply in await wire.replies(10)] == [3000] * 10
                wire.writer.write(packed((1, "get", "k|00001")) + b"\xc1" + b"x" * 100_000)
                [last] = await wire.last_replies()
                assert last == (1, None, "v" * 1000)
            async with await Web.open(server, context) as web:
                assert (await web.get("/v1/count?prefix=k|")).json == 3000
                assert len((await web.get("/v1/scan?prefix=k|")).json) == 3000
            async with await Wire.open(server, context) as wire:
                wire.send((1, "get", "k|00001"))
                assert (await wire.reply())[0] == 1

    run(work())
    assert len(lines_of(caplog)) == 1


def test_whoever_does_not_speak_tls_is_sent_away(run, certificate, caplog):
    files, context = certificate

    async def work():
        async with serving(**files, request_seconds=0.3) as server:
            for data in (b"", packed((1, "get", "k")), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
                async with await Wire.open(server) as wire:
                    wire.writer.write(data)
                    await until(lambda: server._port.open)
                    assert packed("v") not in await wire.rest()
                    await until(lambda: not server._port.open)
            async with await Wire.open(server) as wire:  # which leaves
                await until(lambda: server._port.open)
            await until(lambda: not server._port.open)
            async with await Wire.open(server, context) as wire:
                assert await wire.call("get", "k") is None

    run(work())
    late, wrong, http, half = lines_of(caplog)
    assert "no TLS handshake came (request_seconds)" in late
    assert "no TLS: WRONG_VERSION_NUMBER" in wrong
    assert "no TLS: HTTP_REQUEST" in http
    assert "no TLS handshake came (request_seconds)" in half


def test_handshakes_count_as_connections(run, certificate, caplog):
    files, context = certificate

    async def work():
        async with serving(**files, max_connections=2) as server, await Wire.open(server) as idle:
            async with await Wire.open(server, context) as wire:
                assert await wire.call("get", "k") is None
                assert server.service.connections == 2
                async with await Wire.open(server) as refused:
                    assert await refused.rest() == b""
            idle.writer.transport.abort()
            await until(lambda: not server._port.open)
            async with await Wire.open(server, context) as wire:
                assert await wire.call("get", "k") is None
                loop = asyncio.get_running_loop()
                started = loop.time()
                async with await Wire.open(server):  # half a handshake does not hold up the end
                    await until(lambda: server.service.connections == 2)
                    await server.stop()
                    assert loop.time() - started < 2

    run(work())
    assert len(lines_of(caplog)) == 1


@pytest.mark.parametrize("speaks", [Wire, Web])
def test_who_does_not_read_by_tls_is_dropped(run, certificate, caplog, speaks):
    """Also if it asked for a single answer, all of which TLS has taken in."""
    files, context = certificate

    async def work():
        secure = serving(**files, stall_seconds=0.2)
        async with secure as server, await speaks.open(server, context) as lazy:
            fill(server, 20_000)
            lazy.writer.transport.pause_reading()
            if speaks is Wire:
                lazy.send((1, *SCAN))
            else:
                lazy.ask("GET", "/v1/scan?prefix=k|")
            await until(lambda: server.service.calls["scan"])
            [session] = server._port.open
            assert session.held() > 10_000_000
            await until(lambda: not server._port.open)

    run(work())
    [line] = lines_of(caplog)
    assert "does not read its answers (stall_seconds)" in line


def test_who_reads_late_by_tls_gets_everything(run, certificate, caplog):
    files, context = certificate

    async def work():
        async with serving(**files) as server, await Wire.open(server, context) as lazy:
            fill(server, 2000)
            lazy.writer.transport.pause_reading()
            lazy.send(*((n, *SCAN) for n in range(1, 31)))
            await until(lambda: any(session._stalled for session in server._port.open))
            served = server.service.calls["scan"]
            await asyncio.sleep(0.1)
            assert server.service.calls["scan"] <= served + 1 < 30
            lazy.writer.transport.resume_reading()
            replies = await lazy.replies(30)
            assert [reply[0] for reply in replies] == list(range(1, 31))
            assert await lazy.call("get", "k") is None

    run(work())
    assert lines_of(caplog) == []


def test_certificates_that_cannot_be_used(tmp_path, certificate):
    files, _ = certificate
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    for wrong in (
        {"tls_cert": "/no/such/file"},
        {"tls_cert": str(nonsense)},
        {"tls_cert": files["tls_cert"]},
        {"tls_cert": files["tls_cert"], "tls_key": str(nonsense)},
    ):
        with pytest.raises(BadRequest, match=r"tls_cert: .* cannot be used"):
            Server(settings(**wrong))


def test_a_key_with_a_password_is_not_waited_for(tmp_path, certificate):
    from cryptography.hazmat.primitives import serialization

    files, _ = certificate
    with open(files["tls_key"], "rb") as file:
        key = serialization.load_pem_private_key(file.read(), None)
    path = tmp_path / "key.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    with pytest.raises(BadRequest, match="cannot be used"):
        Server(settings(tls_cert=files["tls_cert"], tls_key=str(path)))


@pytest.mark.parametrize("token", [{}, {"token": TOKEN}], ids=["open", "token"])
def test_who_says_nothing_by_tls_is_sent_away(run, certificate, caplog, token):
    files, context = certificate

    async def work():
        secure = serving(**files, **token, request_seconds=0.3)
        async with secure as server, AsyncExitStack() as stack:
            wires = [
                await stack.enter_async_context(await Wire.open(server, context)) for _ in range(5)
            ]
            for wire in wires:
                assert await wire.rest() == b""

    run(work())
    assert len(lines_of(caplog)) == 5


def test_a_request_that_does_not_go_on_ends_though_the_client_read_meanwhile(run, caplog):
    async def work():
        async with serving(request_seconds=0.3) as server, await Wire.open(server) as wire:
            wire.writer.write(packed((1, "get", "k"))[:-1])
            await until(lambda: server._port.open and server._port._deadlines)
            [session] = server._port.open
            session.pause_writing()
            session.resume_writing()
            assert await wire.rest() == b""

    run(work())
    assert "does not go on" in lines_of(caplog)[0]
