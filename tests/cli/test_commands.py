"""The commands, against a live server: what they print, and how they end."""

import io
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import trustme

from pequod import Client
from pequod.cli import main
from pequod.cli.main import DENIED, DONE, NOTHING, REFUSED, UNREACHABLE
from tests.live import LiveServer, until

TIMELINE = "timeline: t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"


@pytest.fixture(scope="module")
def live():
    with LiveServer() as one:
        yield one


@pytest.fixture
def pq(live, monkeypatch):
    """An empty server, which the commands find by PEQUOD_URL."""
    monkeypatch.setenv("PEQUOD_URL", live.url)
    with Client(live.url) as client:
        for join in client.joins():
            client.drop_join(join["name"])
        client.remove_range("", "\U0010ffff")
        yield client


@pytest.fixture
def run(capsys):
    """Runs a command; gives its exit code, standard output and standard error."""

    def run_one(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as error:
            code = error.code
        output = capsys.readouterr()
        return code, output.out, output.err

    return run_one


@pytest.fixture
def twip(pq, run):
    assert run("addjoin", TIMELINE)[0] == DONE
    for row in (("s|ann|bob", "1"), ("p|bob|0000000100", "Hi"), ("p|bob|0000000120", "again")):
        assert run("put", *row) == (DONE, "", "")


def test_rows(pq, run):
    assert run("put", "k|1", "one") == (DONE, "", "")
    assert run("get", "k|1") == (DONE, "one\n", "")
    assert run("get", "k|2") == (NOTHING, "", "pequod: there is no key 'k|2'\n")
    assert run("count", "--prefix", "k|") == (DONE, "1\n", "")
    assert run("count", "k|", "k}") == (DONE, "1\n", "")
    assert run("remove", "k|1") == (DONE, "", "")
    assert run("remove", "k|1") == (NOTHING, "", "")
    assert run("put", "k|1", "one") == run("put", "k|2", "two") == (DONE, "", "")
    assert run("removerange", "--prefix", "k|") == (DONE, "2\n", "")


def test_scan(twip, run):
    assert run("scan", "--prefix", "t|ann|", "--limit", "20", "--reverse") == (
        DONE,
        "t|ann|0000000120|bob\tagain\nt|ann|0000000100|bob\tHi\n",
        "",
    )
    assert run("scan", "t|ann|0000000110", "t|ann}")[1] == "t|ann|0000000120|bob\tagain\n"


def test_json_everywhere(twip, run):
    def said(*arguments: str) -> object:
        code, output, _ = run(*arguments, "--json")
        assert code in (DONE, NOTHING)
        return json.loads(output)

    assert said("get", "p|bob|0000000100") == "Hi"
    assert said("get", "none|1") is None
    assert said("put", "k|1", "one") is None
    assert said("scan", "--prefix", "k|") == [["k|1", "one"]]
    assert said("count", "--prefix", "k|") == 1
    assert said("remove", "k|1") is True
    assert said("remove", "k|1") is False
    assert said("removerange", "--prefix", "k|") == 0
    assert said("addjoin", TIMELINE) == [
        {"name": "timeline", "warnings": ["already installed as timeline"]}
    ]
    assert [join["name"] for join in said("joins")] == ["timeline"]
    assert said("explain", "--prefix", "t|ann|")["joins"][0]["name"] == "timeline"
    assert said("stats")["tables"]["p"]["keys"] == 2
    assert said("top", "--lines", "1", "--interval", "0")["keys"] >= 3
    assert said("dropjoin", "timeline") is None
    assert said("token").keys() == {"token", "name", "sha256", "role"}


def test_every_spelling(twip, run):
    for name in ("addjoin", "add-join", "add_join"):
        assert run(name, TIMELINE)[:2] == (DONE, "timeline\n")
    for name in ("removerange", "remove-range", "remove_range"):
        assert run(name, "--prefix", "none|") == (DONE, "0\n", "")


def test_joins(pq, run, tmp_path):
    file = tmp_path / "two.pq"
    file.write_text(f"{TIMELINE}\nn|<user> = count s|<user>|<poster>;", "utf-8")
    assert run("addjoin", "-f", str(file)) == (DONE, "timeline\nn#1\n", "")
    assert run("joins")[1].splitlines() == [TIMELINE, "n#1: n|<user> = count s|<user>|<poster>;"]
    code, output, errors = run("addjoin", "w|<user>|<time> = copy p|<user>|<id>|<time>")
    assert (code, output) == (DONE, "w#1\n")
    assert errors.startswith("pequod: w#1: ambiguous")
    assert run("dropjoin", "n#1") == (DONE, "", "")
    code, _, errors = run("dropjoin", "n#1")
    assert code == REFUSED
    assert "no join is named 'n#1'" in errors
    assert run("addjoin")[0] == run("addjoin", TIMELINE, "-f", "x")[0] == REFUSED
    assert "cannot read" in run("addjoin", "-f", str(tmp_path / "none.pq"))[2]


def test_a_syntax_error_shows_the_place(pq, run):
    code, output, errors = run("addjoin", "t|<user> = cpoy p|<user>")
    assert (code, output) == (REFUSED, "")
    assert "Did you mean copy?" in errors
    assert errors.splitlines()[-1].endswith(" " * 11 + "^")


def test_explain_and_stats_are_for_people(twip, run):
    run("scan", "--prefix", "t|ann|")
    _, explained, _ = run("explain", "--prefix", "t|ann|")
    assert "[t|ann|, t|ann}) fresh, 2 rows" in explained
    assert "check s|<user>|<poster>  [s|ann|, s|ann})" in explained
    _, shown, _ = run("stats")
    assert shown.startswith("5 keys, ")
    head, *tables = shown.split("\n\n")[1].splitlines()
    assert head.split()[:4] == ["table", "keys", "bytes", "hits"]
    keys = dict(line.split()[:2] for line in tables)
    assert (keys["p"], keys["s"], keys["t"]) == ("2", "1", "2")


def test_scan_and_putmany_are_inverse(pq, run, tmp_path, monkeypatch):
    rows = [
        ("k|1", "plain"),
        ("k|2", "tab\tline\nback\\slash\r"),
        ("k|3", b"\x00\xff bytes \\ \n"),
        ("k|é", "ünï\U0001f40b"),
        ("k|\t", ""),
        ("k|\x1b[31m", "\x07 and \x9b"),
        ("k|z", "\\b is text here"),
    ]
    pq.put_many(rows)
    _, printed, _ = run("scan", "--prefix", "k|")
    assert len(printed.splitlines()) == len(rows)
    pq.remove_range("k|", "k}")
    file = tmp_path / "rows.tsv"
    file.write_text(printed, "utf-8")
    assert run("putmany", str(file)) == (DONE, "", "")
    assert pq.scan("k|", "k}") == sorted(rows)


def test_nothing_drives_the_terminal(pq, run):
    pq.put("k|\x1b[31m", "\x07")
    assert run("scan", "--prefix", "k|")[1] == "k|\\x1b[31m\t\\x07\n"


def test_putmany_takes_all_that_scan_prints(pq, run, tmp_path):
    rows = [(" ", ""), *((f"k|{number:02}", "v" * 900_000) for number in range(20))]
    for row in rows:
        pq.put(*row)
    file = tmp_path / "rows.tsv"
    file.write_text(run("scan", "--prefix", "")[1], "utf-8")
    pq.remove_range("", "~")
    assert run("putmany", str(file)) == (DONE, "", "")
    assert pq.scan("", "~") == rows


def test_putmany_says_how_far_it_came(pq, run, tmp_path):
    file = tmp_path / "rows.tsv"
    file.write_text("".join(f"k|{number:04}\tv\n" for number in range(1000)) + "no tab\n", "utf-8")
    code, _, errors = run("putmany", str(file))
    assert code == REFUSED
    assert errors.startswith("pequod: 1000 rows were put before this:\npequod: line 1001: ")
    assert pq.count("k|", "k}") == 1000


def test_a_limit_may_be_longer_than_a_page(pq, run):
    pq.put_many([(f"k|{number:04}", "v") for number in range(2500)])
    for limit in (0, 1, 1500):
        assert run("scan", "--prefix", "k|", "--limit", str(limit))[1].count("\n") == limit


def test_text_that_is_no_text(pq, run, tmp_path):
    file = tmp_path / "bad"
    file.write_bytes(b"k|1\t\xff\n")
    for arguments in (
        ("putmany", str(file)),
        ("addjoin", "-f", str(file)),
        ("put", "k|1", "\udcff"),
    ):
        code, _, errors = run(*arguments)
        assert code == REFUSED
        assert errors.startswith("pequod: ")
    for arguments in (("get", "k", "--timeout", "inf"), ("get", "k", "--timeout", "nan")):
        assert run(*arguments)[0] == REFUSED


def test_the_version(run):
    assert run("--version")[1].startswith("pequod 0.")


def test_putmany_says_which_line_is_wrong(pq, run, tmp_path):
    file = tmp_path / "rows.tsv"
    file.write_text("k|1\tone\nno tab here\n", "utf-8")
    code, _, errors = run("putmany", str(file))
    assert code == REFUSED
    assert "line 2: " in errors
    assert pq.get("k|1") is None
    assert "cannot read" in run("putmany", str(tmp_path / "none"))[2]


def test_values_by_standard_input(pq, run, monkeypatch):
    class Input:
        buffer = io.BytesIO(b"\x00\xff")

    monkeypatch.setattr(sys, "stdin", Input)
    code, _, errors = run("put", "k|1")
    assert code == REFUSED
    assert "--bytes" in errors
    Input.buffer = io.BytesIO(b"\x00\xff")
    assert run("put", "k|1", "--bytes") == (DONE, "", "")
    assert pq.get("k|1") == b"\x00\xff"


def test_watch(twip, run):
    assert run("watch", "--prefix", "t|ann|", "--events", "1") == (
        DONE,
        "t|ann|0000000100|bob\tHi\nt|ann|0000000120|bob\tagain\n",
        "",
    )

    code, output, _ = run("watch", "t|ann|", "t|ann|0000000110", "--events", "1", "--json")
    assert code == DONE
    event = json.loads(output)
    assert event.pop("id")
    assert event == {"event": "init", "rows": [["t|ann|0000000100|bob", "Hi"]]}


def test_watch_says_when_all_rows_come_anew(run):
    with LiveServer() as one, ThreadPoolExecutor(1) as thread:
        with Client(one.url) as pq:
            pq.put("k|1", "before")
        watched = thread.submit(run, "--url", one.url, "watch", "--prefix", "k|", "--events", "2")
        until(lambda: len(one.server._port.feeds))
        one.stop()
        one.start()  # empty
        assert watched.result(20) == (DONE, "k|1\tbefore\n========\n", "")


def test_watch_wants_to_stop_after_some_events(run):
    code, _, said = run("watch", "--prefix", "k|", "--events", "0")
    assert code == REFUSED
    assert "the least is 1" in said


def test_top(twip, run):
    code, output, _ = run("top", "--lines", "2", "--interval", "0.01")
    assert code == DONE
    head, *lines = output.splitlines()
    assert head.split()[:4] == ["keys", "memory", "clients", "calls/s"]
    assert [line.split()[0].isdigit() for line in lines] == [True, True]


def test_mistakes(pq, run):
    assert run("put", "", "x")[0] == REFUSED
    assert "a range is --prefix" in run("scan")[2]
    assert "a range is --prefix" in run("scan", "a", "--prefix", "b")[2]
    assert run("scan", "--prefix", "k|", "--limit", "many")[0] == REFUSED
    assert run("nonsense")[0] == REFUSED
    assert run()[0] == REFUSED
    assert "no address" in run("get", "k|1", "--url", "http://x")[2]
    assert "--ca" in run("get", "k|1", "--url", "pequods://x", "--ca", "/none")[2]


def test_mistakes_in_json(twip, run):
    code, output, errors = run("put", "t|ann|0000000100|bob", "x", "--json")
    assert (code, output) == (REFUSED, "")
    assert json.loads(errors)["error"]["code"] == "computed_key"
    code, _, errors = run("scan", "a\udcff", "b", "--json")
    assert code == REFUSED
    assert json.loads(errors)["error"]["message"]


def test_options_may_stand_before_the_command(live, pq, run, monkeypatch):
    monkeypatch.delenv("PEQUOD_URL")
    pq.put("k|1", "one")
    assert run("--url", live.url, "--json", "get", "k|1") == (DONE, '"one"\n', "")
    assert run("get", "k|1", "--url", live.url) == (DONE, "one\n", "")


def test_a_certificate_that_nobody_trusts(run, tmp_path):
    authority, chain = trustme.CA(), tmp_path / "chain.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(chain)
    with LiveServer(tls_cert=str(chain)) as live:
        code, _, errors = run("get", "k|1", "--url", live.url)
    assert code == UNREACHABLE
    assert "--ca" in errors
    assert "pequod serve" not in errors


def test_no_server(run):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    code, _, errors = run("get", "k|1", "--url", f"pequod://127.0.0.1:{port}")
    assert code == UNREACHABLE
    assert "is the server running" in errors


def test_no_token(run, monkeypatch):
    with LiveServer(token="a token of enough characters") as live:
        code, _, errors = run("get", "k|1", "--url", live.url)
        assert code == DENIED
        assert "PEQUOD_TOKEN" in errors
        monkeypatch.setenv("PEQUOD_TOKEN", "a token of enough characters")
        assert run("get", "k|1", "--url", live.url)[0] == NOTHING


@pytest.mark.parametrize("command", ["", "serve", "scan", "addjoin", "put-many", "token", "top"])
def test_help_has_examples(run, command):
    code, output, _ = run(*command.split(), "--help")
    assert code == DONE
    assert "example" in output
    assert f"pequod {command}".strip() in output or "putmany" in output


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(run, shell):
    code, script, _ = run("completion", shell)
    assert code == DONE
    assert "addjoin" in script
    assert "--memory-limit" in script


def test_a_command_does_not_wait_for_what_only_a_server_needs():
    """aiohttp takes longer to import than most commands to run."""
    program = "import sys, pequod.cli.main; sys.exit(any(m in sys.modules for m in %r))"
    heavy = ("aiohttp", "pequod.server.server", "pyspark")
    assert subprocess.run([sys.executable, "-c", program % (heavy,)]).returncode == 0
