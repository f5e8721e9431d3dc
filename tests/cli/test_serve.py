"""`pequod serve` as a process, and where its settings come from."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import closing
from http.client import HTTPConnection

import pytest

from pequod import BadRequest, Client
from pequod.cli import main
from pequod.cli.main import parser
from pequod.cli.serve import configuration
from pequod.server.access import hash_of, read_tokens
from tests.live import SECONDS, until

TOKEN = "a token of enough characters"


@pytest.fixture(autouse=True)
def _logging_as_before():
    """A server that is run here logs to what is standard error now, and soon closed."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def settings(*arguments: str, **variables: str):
    return configuration(parser().parse_args(["serve", *arguments]), variables)


class Process:
    """A server in a process of its own."""

    def __init__(self, tmp_path, *arguments: str, **variables: str) -> None:
        self._log = tmp_path / "log"
        command = [sys.executable, "-m", "pequod", "serve", "--port", "0", *arguments]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, **variables})
        until(lambda: "listening on" in self.log or self.process.poll() is not None)
        found = re.search(r"pequods?://[^\s\"]+", self.log)
        assert found, self.log
        self.url = found[0]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)


def test_a_server_serves_and_stops(tmp_path):
    joins = tmp_path / "twip.pq"
    joins.write_text("w|<user>|<time> = copy p|<user>|<id>|<time>;", "utf-8")
    with Process(tmp_path, "--joins", str(joins)) as server, Client(server.url) as pq:
        pq.put("p|ann|1|100", "Hi")
        assert pq.scan("w|", "w}") == [("w|ann|100", "Hi")]
        assert "WARNING join w#1: ambiguous" in server.log
        before = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS) == 0
        assert time.monotonic() - before < 5
        assert server.log.endswith("INFO stopping\n")


def test_a_server_stops_though_a_client_hangs(tmp_path):
    with Process(tmp_path, "--drain-seconds", "0.2") as server, Client(server.url) as pq:
        pq.put_many([(f"k|{number}", "v" * 1000) for number in range(10_000)])
        connection = pq._idle[0]._socket
        for _ in range(10):  # asks for much and reads nothing
            connection.sendall(b"\x94\x01\xa4scan\xa2k|\xa2k}")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 0


def test_logs_in_json_and_notice(tmp_path):
    with Process(tmp_path, "--notice-seconds", "60", PEQUOD_LOG_FORMAT="json") as server:
        line = json.loads(server.log.splitlines()[0])
        assert line.keys() == {"time", "level", "logger", "message"}
        assert line["message"] == f"listening on {server.url}"
        # Balancers are told before the end, and whoever comes meanwhile is served.
        server.process.send_signal(signal.SIGTERM)
        until(lambda: '"stopping"' in server.log)
        assert status(server.url, "/readyz") == 503
        assert status(server.url, "/v1/stats") == 200
        server.process.send_signal(signal.SIGTERM)  # a second one ends it at once
        assert server.process.wait(SECONDS) == 1


def status(url: str, path: str) -> int:
    with closing(HTTPConnection(url.partition("://")[2])) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def test_flags_beat_variables_and_variables_beat_the_file(tmp_path):
    file = tmp_path / "pequod.toml"
    file.write_text(
        f'port = 1\nmax_rows = 1\nmemory_limit = "2GB"\njoins = ["a.pq"]\ntoken = "{TOKEN}"\n'
        "[subtables]\nt = 3\n"
    )
    config = settings("--config", str(file), "--port", "3", PEQUOD_PORT="2", PEQUOD_MAX_ROWS="2")
    assert (config.port, config.max_rows, config.memory_limit) == (3, 2, 2 << 30)
    assert (config.joins, config.token, config.subtables) == (("a.pq",), TOKEN, {"t": 3})
    assert settings(PEQUOD_CONFIG=str(file)).port == 1


def test_variables_of_every_kind():
    config = settings(
        PEQUOD_INSECURE="yes",
        PEQUOD_HOST="0.0.0.0",
        PEQUOD_JOINS="a.pq,b.pq",
        PEQUOD_REQUEST_SECONDS="2.5",
        PEQUOD_MAX_FRAME="1MB",
        PEQUOD_SUBTABLES="t=3,p=1",
        PEQUOD_TOKEN=TOKEN,
    )
    assert config.insecure is True
    assert config.joins == ("a.pq", "b.pq")
    assert (config.request_seconds, config.max_frame) == (2.5, 1 << 20)
    assert config.subtables == {"t": 3, "p": 1}
    assert settings("--joins", "a.pq", "--joins", "b.pq").joins == ("a.pq", "b.pq")


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["--port", "many"], {}, "port: 'many' is not a number"),
        (["--port", "70000"], {}, "port: 70000"),
        ([], {"PEQUOD_INSECURE": "maybe"}, "insecure: 'maybe' is not true or false"),
        ([], {"PEQUOD_SUBTABLES": "t"}, "table=number"),
        (["--memory-limit", "2 apples"], {}, "is not a size"),
        (["--host", "0.0.0.0"], {}, "token"),
        ([], {"PEQUOD_TOKEN": "short"}, "`pequod token`"),
        (["--tls-key", "key.pem"], {}, "tls_cert"),
    ],
)
def test_wrong_settings(arguments, variables, said):
    with pytest.raises(BadRequest, match=re.escape(said)):
        settings(*arguments, **variables)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_row = 1", "did you mean max_rows?"),
        ("port = true", "port: True is not a whole number"),
        ("port = [", "is not TOML"),
        ("joins = [1]", "1 is not a text"),
    ],
)
def test_wrong_files_are_named(tmp_path, text, said):
    file = tmp_path / "pequod.toml"
    file.write_text(text)
    with pytest.raises(BadRequest, match=re.escape(said)):
        settings("--config", str(file))
    with pytest.raises(BadRequest, match="cannot be read"):
        settings("--config", str(tmp_path / "none.toml"))


def test_check(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PEQUOD_TOKEN", TOKEN)
    good, bad = tmp_path / "good.pq", tmp_path / "bad.pq"
    good.write_text("a|<x> = copy b|<x>")
    bad.write_text("a|<x> = cpoy b|<x>")
    assert main(["serve", "--check", "--joins", str(good)]) == 0
    assert capsys.readouterr().out == "fine: would listen on 127.0.0.1:7709, 1 joins\n"
    assert main(["serve", "--check", "--json"]) == 0
    output = capsys.readouterr().out
    assert TOKEN not in output
    assert json.loads(output)["port"] == 7709
    for wrong, said in (
        (["--joins", str(bad)], "Did you mean copy?"),
        (["--joins", str(tmp_path / "none.pq")], "cannot read"),
        (["--tokens", str(good)], "not TOML"),
        (["--tls-cert", str(good)], "tls_cert"),
    ):
        assert main(["serve", "--check", *wrong]) == 2
        assert said in capsys.readouterr().err


def test_a_port_that_is_taken(tmp_path, capsys):
    with Process(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        assert main(["serve", "--port", port]) == 2
        assert "choose another" in capsys.readouterr().err


def test_tokens_fit_their_file(capsys):
    assert (
        main(["token", "--name", "web", "--role", "read", "--prefix", "t|", "--prefix", 'x"|']) == 0
    )
    output = capsys.readouterr()
    token = output.err.strip().removeprefix("PEQUOD_TOKEN=")
    assert token not in output.out
    [principal] = read_tokens(output.out).values()
    assert read_tokens(output.out).keys() == {hash_of(token)}
    assert (principal.name, principal.role) == ("web", "read")
    assert [mine.first for mine in principal.ranges] == ["t|", 'x"|']
    assert tomllib.loads(output.out)["token"][0]["prefixes"] == ["t|", 'x"|']
