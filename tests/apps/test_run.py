"""The command lines of the apps: what is wrong is said in a line."""

import socket

import pytest

from apps.twip.__main__ import main
from tests.live import LiveServer


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs Twip; gives its exit code, and what it says on its standard error."""

    def run_one(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["twip", *arguments])
        monkeypatch.setattr("logging.basicConfig", lambda **_: None)  # it would outlive the test
        try:
            code = main()
        except SystemExit as error:
            return error.code, capsys.readouterr().err
        return code, capsys.readouterr().err

    return run_one


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--pequod", "http://127.0.0.1"], 2, "is no address; write pequod://"),
        (["--pequod", "pequod://127.0.0.1:1"], 3, "is the server running?"),
        (["--port", "70000"], 2, "is no port"),
        (["--ca", "/no/such/file"], 2, "cannot be used"),
    ],
)
def test_what_is_wrong_is_said(run, arguments, code, said):
    found, output = run(*arguments)
    assert (found, said in output) == (code, True), output


def test_a_port_that_is_taken_is_said(run):
    with LiveServer() as pequod, socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        code, said = run("--pequod", pequod.url, "--port", str(one.getsockname()[1]))
    assert (code, "try another --port" in said) == (2, True), said
