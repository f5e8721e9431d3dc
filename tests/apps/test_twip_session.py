"""The narrated session of Twip, run as a user runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "apps.twip", *args],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "88", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def output() -> str:
    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def answers(output: str, call: str) -> list[list[str]]:
    """The lines of the answer to each call that starts so, in the order of the session."""
    parts = re.findall(rf"^cache\.{re.escape(call)}.*\n((?:    .*\n)*)", output, re.MULTILINE)
    return [[line.strip() for line in part.splitlines()] for part in parts]


def test_the_joins_are_shown_and_installed(output):
    assert "check s|<user>|<poster>" in output
    [installed] = answers(output, "add_join(")
    for name in ("timeline", "latest", "celebrity"):
        assert name in "\n".join(installed)


def test_the_timeline_through_the_session(output):
    hi, again = "t|ann|0000000100|bob  Hi", "t|ann|0000000130|bob  Hi again"
    jim = "t|ann|0000000110|jim  Anyone here?"
    wrold, world = (f"t|ann|0000000124|liz  Hello, {word}!" for word in ("wrold", "world"))
    zoe = "t|ann|0000000140|zoe  My new record is out"
    assert answers(output, "scan(") == [
        [hi, wrold],
        [hi, wrold],
        [again],
        [hi, jim, world, again],
        [jim, world],
        [zoe, world],
    ]
    assert answers(output, "get(") == [["Hello, world!"]]


def test_a_write_into_the_timeline_is_refused(output):
    [refusal] = answers(output, "put('t|ann|0000000150|eve'")
    assert refusal[0].startswith("ComputedKey: ")


def test_it_shows_what_pequod_knows(output):
    [explanation] = answers(output, "explain(")
    [stats] = answers(output, "stats(")
    assert "timeline" in "\n".join(explanation)
    assert "bytes" in "\n".join(stats)


def test_it_is_plain_text_of_bounded_width(output):
    assert output.isascii()
    assert "\033" not in output
    told = [line for line in output.splitlines() if not line.startswith((" ", "cache."))]
    assert max(map(len, told)) <= 88


@pytest.mark.parametrize(("no_colour", "painted"), [("", True), ("1", False)])
def test_colours_are_for_a_terminal_that_wants_them(no_colour, painted):
    reader, writer = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": no_colour}
    command = [sys.executable, "-m", "apps.twip", "--fast"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=writer) as process:
        os.close(writer)
        shown = b"".join(iter(lambda: read_terminal(reader), b""))
        os.close(reader)
    assert process.returncode == 0
    assert b"t|ann|0000000100|bob  Hi" in shown
    assert (b"\033[" in shown) == painted


def read_terminal(reader: int) -> bytes:
    """The next output, nothing at the end: Linux reports a closed terminal as an error."""
    try:
        return os.read(reader, 65536)
    except OSError:
        return b""


def test_help():
    done = run("--help")
    assert done.returncode == 0
    assert "--fast" in done.stdout


def test_an_unknown_option_is_refused():
    done = run("--slow")
    assert done.returncode == 2
    assert "--slow" in done.stderr
