"""Twip's pages, for visitors without scripts, with bad manners, and in a real browser."""

import time

import pytest
from selenium.webdriver.common.by import By

from pequod import Client
from tests.apps.browser import browser, log_in, needs_browser, until
from tests.apps.live import Visitor, small_world


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
    assert "following 1, followed by 0" in page.text
    liz.get("/user/ann")
    liz.post("/unfollow", name="ann")
    assert "Hello, harbour!" not in liz.get("/").text


def test_two_posts_within_a_second_are_two(world, ann):
    for text in ("first of two", "second of two"):
        ann.post("/post", text=text)
    page = ann.get("/user/ann").text
    assert "first of two" in page
    assert "second of two" in page


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
        ("/post", {"text": "x" * 281}, 400, "at most 280"),
        ("/post", {"text": "x" * 20_000}, 413, "too long"),
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


def test_what_strangers_write_is_text(world, ann):
    ann.get("/")
    ann.post("/post", text="<script>alert(1)</script> & 'quotes'")
    page = ann.get("/user/ann")
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#39;quotes&#39;" in page.text
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]


def test_what_is_not_there(ann):
    for path in ("/user/nobody_at_all", "/user/%3Cscript%3E", "/nowhere", "/static/../app.py"):
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
        world.pequod.start()
        end = time.monotonic() + 20
        while ann.get("/celebrities").status != 200:
            assert time.monotonic() < end
            time.sleep(0.05)


@needs_browser
def test_an_open_timeline_moves_by_itself(world):
    with Client(world.pequod.url) as pq:
        assert pq.get("c|bob") is None, "bob is no celebrity in this world"
    bob = Visitor(world.twip)
    bob.log_in("bob")
    with browser() as page:
        log_in(page, world.twip, "reader")
        page.get(f"http://{world.twip}/user/bob")
        page.find_element(By.CSS_SELECTOR, ".profile button").click()
        until(page, lambda: "Unfollow" in page.find_element(By.CSS_SELECTOR, ".profile").text)
        page.get(f"http://{world.twip}/")
        before = page.find_elements(By.CSS_SELECTOR, ".post")
        assert before
        until(page, lambda: len(world.pequod.server._port.feeds))  # the page listens
        bob.post("/post", text="Seen without reloading")
        begun = time.monotonic()
        until(page, lambda: "Seen without reloading" in page.find_element(By.ID, "posts").text)
        assert time.monotonic() - begun < 1
        first = page.find_elements(By.CSS_SELECTOR, ".post p")[0]
        assert first.text == "Seen without reloading"
        with Client(world.pequod.url) as pq:
            pq.remove_range("p|bob|", "p|bob}")
        until(page, lambda: "Seen without reloading" not in page.find_element(By.ID, "posts").text)
        assert page.get_log("browser") == []
