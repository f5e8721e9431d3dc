"""Twip's pages, for visitors without scripts, with bad manners, and in a real browser."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest
from selenium.webdriver.common.by import By

from apps.twip.app import Twip
from pequod import Client, ServerFault, SourceDown, TooLarge
from tests.apps.browser import log_in, needs_browser
from tests.apps.browser import until as until_shown
from tests.apps.live import Visitor, running, small_world
from tests.live import LiveServer, LoopThread, until


@pytest.fixture(scope="module")
def world():
    with small_world() as one:
        yield one


@pytest.fixture
def ann(world):
    visitor = Visitor(world.twip)
    assert visitor.log_in("ann").status == 200
    return visitor


def test_a_post_is_on_the_timeline_of_a_follower(world, ann):
    liz = Visitor(world.twip)
    liz.log_in("a_new_user")
    assert "Nothing here yet" in liz.get("/").text
    liz.get("/user/ann")
    assert "Unfollow" in liz.post("/follow", name="ann").text
    ann.post("/post", text="Hello, harbour!")
    page = liz.get("/")
    assert "Hello, harbour!" in page.text
    assert "<b>1</b> following" in page.text
    assert "<b>0</b> followers" in page.text
    liz.get("/user/ann")
    liz.post("/unfollow", name="ann")
    assert "Hello, harbour!" not in liz.get("/").text


def test_two_posts_within_a_second_are_two(world, ann):
    for text in ("first of two", "second of two"):
        ann.post("/post", text=text)
    page = ann.get("/user/ann").text
    assert "first of two" in page
    assert "second of two" in page


def test_posts_at_the_same_time_are_all_kept(world):
    crowd = []
    for _ in range(8):
        visitor = Visitor(world.twip)
        visitor.log_in("hasty")
        crowd.append(visitor)
    with ThreadPoolExecutor() as threads:
        list(
            threads.map(lambda one: one[1].post("/post", text=f"post {one[0]}."), enumerate(crowd))
        )
    page = crowd[0].get("/user/hasty").text
    assert [number for number in range(8) if f"post {number}." not in page] == []


def test_ones_own_post_is_on_ones_timeline(world):
    visitor = Visitor(world.twip)
    visitor.log_in("talks_to_itself")
    assert "Anybody here?" in visitor.post("/post", text="Anybody here?").text


def test_a_page_does_not_tell_the_token():
    with LiveServer(token="a token of enough characters") as pequod:
        address = f"pequod://:a%20token%20of%20enough%20characters@127.0.0.1:{pequod.port}"
        site, loop = Twip(address), LoopThread()
        with running(site, loop) as twip:
            page = Visitor(twip).get("/login")
        loop.close()
    assert page.status == 200
    assert f'href="http://127.0.0.1:{pequod.port}/?explain' in page.text
    assert "enough" not in page.text


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (SourceDown("the database is away"), 503, "tries again by itself"),
        (ServerFault("inner workings"), 500, "Something is wrong here"),
        (TooLarge("inner workings"), 500, "Something is wrong here"),
    ],
)
def test_what_is_not_the_visitors_fault(world, error, status, said):
    async def fails(request):
        raise error

    site, loop = Twip(world.pequod.url), LoopThread()
    site.app.router.add_get("/fails", fails)
    with running(site, loop) as twip:
        page = Visitor(twip).get("/fails")
    loop.close()
    assert (page.status, said in page.text) == (status, True)
    assert str(error) not in page.text


def test_who_leaves_does_not_watch_any_more(world, ann):
    def listeners() -> int:
        sessions = list(world.pequod.server._port.open)
        return sum(len(getattr(one, "_listeners", None) or ()) for one in sessions)

    before = listeners()  # the apps themselves watch whether the cache is prepared
    stream = HTTPConnection(world.twip, timeout=10)
    stream.request("GET", "/events", headers=ann.headers)
    with stream.getresponse() as events:
        assert events.readline() == b"event: init\n"
        assert listeners() == before + 1
    stream.close()
    until(lambda: listeners() == before)


def test_celebrities_are_not_copied(world, ann):
    with Client(world.pequod.url) as pq:
        names = [key.split("|")[1] for key, _ in pq.scan("c|", "c}")]
    name = next(name for name in names if name not in ("ann", "bob"))
    star = Visitor(world.twip)
    star.log_in(name)
    ann.get("/celebrities")
    ann.post("/follow", name=name)
    star.get("/")
    star.post("/post", text="My new record is out")
    assert "My new record is out" in ann.get("/").text
    assert "My new record is out" in ann.get("/celebrities").text
    assert "celebrity" in ann.get(f"/user/{name}").text


def test_what_a_page_cost(ann):
    page = ann.get("/").text
    assert "µs in the server" in page
    assert "scan [t|ann|, t|ann}), limit=40, reverse" in page
    assert "/?explain=t%7Cann%7C&amp;last=t%7Cann%7D" in page


def test_strangers_are_sent_to_the_login(world):
    page = Visitor(world.twip).get("/")
    assert "Who are you?" in page.text


@pytest.mark.parametrize(
    ("path", "fields", "status", "said"),
    [
        ("/post", {"text": ""}, 400, "says too little"),
        ("/post", {"text": "   "}, 400, "says too little"),
        ("/post", {}, 400, "says too little"),
        ("/post", {"text": "\u200b"}, 400, "says too little"),
        ("/post", {"text": "x" * 281}, 400, "at most 280"),
        ("/post", {"text": "x" * 40_000}, 413, "too long"),
        ("/post", {"text": "forged", "token": "0" * 64}, 403, "out of date"),
        ("/post", {"text": "forged", "token": "ö"}, 403, "out of date"),
        ("/follow", {"name": "nobody_at_all"}, 404, "no user"),
        ("/follow", {"name": "ann"}, 400, "yourself"),
        ("/follow", {"name": "s|x"}, 400, "small letters"),
        ("/login", {"name": "<script>"}, 400, "small letters"),
        ("/login", {"name": "x" * 31}, 400, "small letters"),
    ],
)
def test_bad_input_is_told_and_changes_nothing(world, ann, path, fields, status, said):
    with Client(world.pequod.url) as pq:
        before = pq.scan("", "~")
        ann.get("/")
        page = ann.post(path, **fields)
        assert (page.status, said in page.text) == (status, True), page.text
        assert pq.scan("s|", "t") == [row for row in before if "s|" <= row[0] < "t"]
        assert pq.scan("p|", "q") == [row for row in before if "p|" <= row[0] < "q"]


def test_what_was_written_is_not_lost_by_a_mistake(ann):
    ann.get("/")
    page = ann.post("/post", text="</textarea><b>" + "x" * 280)
    assert page.status == 400
    assert "&lt;/textarea&gt;&lt;b&gt;xxx" in page.text
    assert ann.post("/post", text="shorter now").status == 200  # by the form on that page
    assert "textarea" not in ann.post("/post", text="forged", token="0").text


def test_signs_that_control_are_left_out(ann):
    ann.get("/")
    page = ann.post("/post", text="so\0 much\x1b space" + "\r\n" * 9 + "below")
    assert "<p>so much space\n\nbelow</p>" in page.text


def test_who_logs_in_comes_back_to_where_it_was_asked(world):
    stranger = Visitor(world.twip)
    page = stranger.get("/user/ann")
    assert "/login?back=%2Fuser%2Fann" in page.text
    assert 'name="back" value="/user/ann"' in stranger.get("/login?back=/user/ann").text
    assert "Follow</button>" in stranger.post("/login", name="a_newcomer", back="/user/ann").text


@pytest.mark.parametrize("back", ["//example.org", "https://example.org", "/\\example.org", ""])
def test_a_login_leads_nowhere_else(world, back):
    visitor = Visitor(world.twip)
    visitor.get("/login")
    assert "What is new, bob?" in visitor.post("/login", name="bob", back=back).text


def test_older_posts_are_a_page_away(world):
    writer = Visitor(world.twip)
    writer.log_in("writes_a_lot")
    with Client(world.pequod.url) as pq:
        rows = {f"p|writes_a_lot|{second:010}": f"post {second}." for second in range(100, 150)}
        pq.put_many(rows)
    for path in ("/", "/user/writes_a_lot"):
        seen = writer.get(path).text
        assert "post 110." in seen
        assert "post 109." not in seen
        older = re.search(r'href="(\?before=0000000110-writes_a_lot)">Older', seen)
        page = writer.get(path + older[1]).text
        assert re.findall(r"post (\d+)\.", page) == [str(n) for n in range(109, 99, -1)]
        assert "Older posts" not in page
        assert "Newest posts" in page
    assert "data-events" not in writer.get("/?before=0000000110-writes_a_lot").text
    assert "post 149." in writer.get("/?before=nonsense").text


def test_only_what_the_page_shows_is_watched(world):
    writer = Visitor(world.twip)
    writer.log_in("long_history")
    with Client(world.pequod.url) as pq:
        pq.put_many({f"p|long_history|{second:010}": "hm" for second in range(500)})
    stream = HTTPConnection(world.twip, timeout=10)
    stream.request("GET", "/events", headers=writer.headers)
    with stream.getresponse() as events:
        assert events.readline() == b"event: init\n"
        assert events.readline().count(b"<li") == 40
        feeds = world.pequod.server._port.feeds._feeds
        [feed] = [feed for keys, feed in feeds.items() if keys.last == "t|long_history}"]
        assert feed.size == 40
    stream.close()


def test_what_strangers_write_is_text(world, ann):
    ann.get("/")
    ann.post("/post", text="<script>alert(1)</script> & 'quotes'")
    page = ann.get("/user/ann")
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#39;quotes&#39;" in page.text
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]


def test_what_is_not_there(ann):
    for path in (
        "/user/nobody_at_all",
        "/user/%3Cscript%3E",
        "/user/" + "x" * 5000,
        "/nowhere",
        "/static/../app.py",
    ):
        page = ann.get(path)
        assert page.status == 404
        assert "<script>" not in page.text
    assert ann.get("/post").status == 405


def test_a_forged_session_is_nobody(world):
    visitor = Visitor(world.twip)
    visitor._cookies["twip_session"] = "abc.ann.0000"
    assert "Who are you?" in visitor.get("/").text


def test_the_cache_is_down_and_comes_back():
    with small_world() as world:
        ann = Visitor(world.twip)
        ann.log_in("ann")
        world.pequod.stop()
        page = ann.get("/")
        assert page.status == 503
        assert "tries again by itself" in page.text
        assert page.headers["Retry-After"]
        page = ann.post("/post", text="Said into the void")
        assert page.status == 503
        assert "was not kept" in page.text
        assert 'http-equiv="refresh"' not in page.text  # it would not send the form again
        assert "Said into the void</textarea>" in page.text
        world.pequod.start()
        # It comes back empty, and the app puts joins and sample world again.
        with Client(world.pequod.url) as pq:
            until(lambda: pq.get("twip|ready"))
        assert ann.post("/post", text="Said into the void").status == 200
        assert "Said into the void" in ann.get("/").text


@needs_browser
def test_an_open_timeline_moves_by_itself(world, page):
    with Client(world.pequod.url) as pq:
        assert pq.get("c|bob") is None, "bob is no celebrity in this world"
    bob = Visitor(world.twip)
    bob.log_in("bob")
    log_in(page, world.twip, "reader")
    page.get(f"http://{world.twip}/user/bob")
    page.find_element(By.CSS_SELECTOR, ".profile button").click()
    until_shown(page, lambda: "Unfollow" in page.find_element(By.CSS_SELECTOR, ".profile").text)
    page.get(f"http://{world.twip}/")
    before = page.find_elements(By.CSS_SELECTOR, ".post")
    assert before
    until_shown(page, lambda: len(world.pequod.server._port.feeds))  # the page listens
    page.execute_script(
        "const link = list.querySelector('a'); link.focus();"
        "const told = JSON.stringify(list.innerHTML);"
        "events.dispatchEvent(new MessageEvent('init', { data: told }));"
    )
    focused = page.switch_to.active_element
    assert focused.get_attribute("class") == "poster"  # a stream that begins again is not felt
    bob.post("/post", text="Seen without reloading")
    begun = time.monotonic()
    until_shown(page, lambda: "Seen without reloading" in page.find_element(By.ID, "posts").text)
    assert time.monotonic() - begun < 1
    first = page.find_elements(By.CSS_SELECTOR, ".post p")[0]
    assert first.text == "Seen without reloading"
    assert page.switch_to.active_element == focused
    with Client(world.pequod.url) as pq:
        pq.remove_range("p|bob|", "p|bob}")
    until_shown(
        page, lambda: "Seen without reloading" not in page.find_element(By.ID, "posts").text
    )
    assert page.get_log("browser") == []
