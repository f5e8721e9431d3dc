"""`pequod demo`: a server and both apps over a sample world, until interrupted."""

import argparse
import contextlib
import http.client
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from pequod.errors import BadRequest, Unavailable
from pequod.wire import DEFAULT_PORT

START_SECONDS = 30.0
STOP_SECONDS = 8.0
LOOK_SECONDS = 0.5  # between looks whether everything still runs
APPS = {"twip": 8001, "newp": 8002}
# Every page there is; the sample world has an article and a celebrity for the places left open.
PAGES = {
    "pequod": ("/", "/console.js", "/console.css", "/v1/joins", "/v1/stats", "/metrics"),
    "twip": ("/login", "/", "/celebrities", "/user/ann", "/static/style.css", "/static/live.js"),
    "newp": ("/", "/login", "/submit", "/user/ann"),
}


def add_command(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="run a server, Twip and Newp with a sample world",
        description="Run a server and both demo apps with a sample world, until Ctrl-C.\n"
        f"Their ports are {DEFAULT_PORT}, 8001 and 8002, or others where these are taken.",
        epilog="example:\n  pequod demo --no-browser",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--no-browser", action="store_true", help="open no page")
    parser.add_argument("--smoke", action="store_true", help="look at every page once, and exit")
    parser.set_defaults(run=demo)


def demo(options: argparse.Namespace) -> int:
    """Start everything, and end it again."""
    # A shell may have made us deaf to Ctrl-C, and a terminal that closes must end the rest too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if importlib.util.find_spec("apps") is None:
        raise BadRequest("the apps are part of the repository; run this in a checkout: make demo")
    if importlib.util.find_spec("jinja2") is None:
        raise BadRequest("the apps need jinja2: pip install 'pequod[apps]', or make demo")
    print("starting a server, Twip and Newp over a sample world ...", flush=True)
    with contextlib.ExitStack() as stack:
        addresses, processes = _start(stack)
        for name, address in addresses.items():
            print(f"{name:8} http://{address}", flush=True)
        if options.smoke:
            for name, address in addresses.items():
                _look_at_all(address, PAGES[name])
            print("every page is there")
            return 0
        print("Ctrl-C ends it.", flush=True)
        if not options.no_browser and _has_screen():
            webbrowser.open(f"http://{addresses['twip']}")
        with contextlib.suppress(KeyboardInterrupt):
            _watch_over(processes)
    print("\nstopped")
    return 0


def _watch_over(processes: dict[str, "subprocess.Popen[bytes]"]) -> None:
    """Until interrupted; raises if one of them ends by itself."""
    while True:
        for name, process in processes.items():
            if process.poll() is not None:
                raise Unavailable(f"the process of {name} has ended (status {process.returncode})")
        time.sleep(LOOK_SECONDS)


def _start(
    stack: contextlib.ExitStack,
) -> tuple[dict[str, str], dict[str, "subprocess.Popen[bytes]"]]:
    """The addresses and the processes, by name."""
    port = _free_port(DEFAULT_PORT)
    addresses = {"pequod": f"127.0.0.1:{port}"}
    serving = ["-m", "pequod", "serve", "--port", str(port), "--log-level", "warning"]
    server = stack.enter_context(_process(*serving))
    processes = {"pequod": server}
    _wait(addresses["pequod"], server)
    for name, usual in APPS.items():
        addresses[name] = f"127.0.0.1:{_free_port(usual)}"
        where = ["--port", addresses[name].rpartition(":")[2], "--sample"]
        app = _process("-m", f"apps.{name}", "--pequod", f"pequod://127.0.0.1:{port}", *where)
        processes[name] = stack.enter_context(app)
    for name in APPS:
        _wait(addresses[name], processes[name])
    return addresses, processes


@contextlib.contextmanager
def _process(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of ours for as long as the block lasts; Ctrl-C reaches us, and we end it."""
    # What is meant for another server is not for this one.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PEQUOD_")}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**ours, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port(usual: int) -> int:
    """The usual port, or another if that is taken."""
    for port in (usual, 0):
        with contextlib.suppress(OSError), socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", port))
            found: int = one.getsockname()[1]
            return found
    raise Unavailable("this machine has no free port")


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            if _get(address, "/healthz")[0] == 200:
                return
        time.sleep(0.05)
    raise Unavailable(f"nothing answers at {address}; what was printed above may say why")


def _get(address: str, path: str, cookie: str = "") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        kept = (answer.getheader("Set-Cookie") or cookie).partition(";")[0]
        return answer.status, answer.read().decode(), kept
    finally:
        connection.close()


def _look_at_all(address: str, pages: tuple[str, ...]) -> None:
    """See that every page is there, as a visitor who has logged in."""
    cookie = _log_in(address) if "/login" in pages else ""
    found = set(pages)
    for path in pages:
        status, text, _ = _get(address, path, cookie)
        if status != 200:
            raise Unavailable(f"http://{address}{path} answers with {status}")
        found |= set(re.findall(r'href="(/(?:article|user)/[^"]+)"', text)[:3])
    for path in found - set(pages):
        if _get(address, path, cookie)[0] != 200:
            raise Unavailable(f"http://{address}{path} is not there")


def _log_in(address: str) -> str:
    _, text, cookie = _get(address, "/login")
    token = re.search(r'name="token" value="([0-9a-f]+)"', text)
    if token is None:
        raise Unavailable(f"http://{address}/login has no form")
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        form = urlencode({"token": token[1], "name": "ann"})
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
        connection.request("POST", "/login", form, kind)
        answer = connection.getresponse()
        return (answer.getheader("Set-Cookie") or "").partition(";")[0]
    finally:
        connection.close()


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
