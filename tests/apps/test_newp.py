"""Newp's pages: an article page by one scan, votes that move karma, and it all without joins."""

import re

import pytest
from selenium.webdriver.common.by import By

from pequod import Client
from tests.apps.browser import log_in, needs_browser, until
from tests.apps.live import Visitor, small_world


@pytest.fixture(scope="module", params=[False, True], ids=["interleaved", "separate"])
def world(request):
    with small_world(separate=request.param) as one:
        yield one


@pytest.fixture
def ann(world):
    visitor = Visitor(world.newp)
    visitor.log_in("ann")
    return visitor


def submit(visitor: Visitor, title: str) -> re.Match[str]:
    """The author and the number of a new article."""
    visitor.get("/submit")
    page = visitor.post("/submit", title=title, body="https://example.org/whales")
    return re.search(r'name="author" value="(\w+)".*?name="id" value="(\d+)"', page.text, re.DOTALL)


def test_an_article_with_votes_comments_and_karma(world, ann):
    author, number = submit(ann, "Show Newp: a very small boat").groups()
    path = f"/article/{author}/{number}"
    ann.post("/comment", author=author, id=number, text="My own boat")
    for name in ("bob", "cleo"):
        voter = Visitor(world.newp)
        voter.log_in(name)
        voter.get(path)
        voter.post("/vote", author=author, id=number)
        voter.post("/vote", author=author, id=number)  # a second vote of one voter is none
    page = ann.get(path).text
    assert '<b class="votes">2</b>' in page
    assert "My own boat" in page
    with Client(world.pequod.url) as pq:
        karma = pq.get("karma|ann")
    assert f'data-user="ann">{karma}</span>' in page
    front = ann.get("/").text
    assert "Show Newp: a very small boat" in front
    assert "1 comment<" in front


def test_one_scan_or_many_reads_give_the_same_page():
    with small_world(False) as once, small_world(True) as piecemeal:
        pages = []
        for world in (once, piecemeal):
            visitor = Visitor(world.newp)
            with Client(world.pequod.url) as pq:
                most = max(pq.scan("comment|", "comment}"), key=lambda row: row[0].split("|")[:3])
            _, author, number, *_ = most[0].split("|")
            text = visitor.get(f"/article/{author}/{number}").text
            pages.append((re.findall(r'class="karma".*?</span>|<p>.*?</p>', text), text))
        assert [len(page[0]) > 0 for page in pages] == [True, True]
        assert "1 read," in pages[0][1]
        assert "1 read," not in pages[1][1]


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/submit", {"title": ""}, 400),
        ("/submit", {"title": "x" * 121}, 400),
        ("/submit", {"title": "forged", "token": "0"}, 403),
        ("/vote", {"author": "nobody", "id": "1"}, 404),
        ("/vote", {}, 404),
        ("/comment", {"author": "nobody", "id": "1", "text": "hm"}, 404),
        ("/comment", {"text": ""}, 400),
    ],
)
def test_bad_input(ann, path, fields, status):
    ann.get("/submit")
    assert ann.post(path, **fields).status == status


def test_a_link_is_a_web_address(world, ann):
    ann.get("/submit")
    page = ann.post("/submit", title="Click me", body="javascript:alert(1)")
    assert 'href="javascript' not in page.text
    assert "javascript:alert(1)" in page.text


def test_a_link_may_be_nonsense(world, ann):
    ann.get("/submit")
    page = ann.post("/submit", title="Oops", body="http://[oops")
    assert page.status == 200
    assert "http://[oops" in page.text


def test_a_stranger_who_votes_logs_in_and_comes_back(world, ann):
    author, number = submit(ann, "For strangers").groups()
    stranger = Visitor(world.newp)
    stranger.get(f"/article/{author}/{number}")
    page = stranger.post("/vote", author=author, id=number)
    assert f'name="back" value="/article/{author}/{number}"' in page.text


def test_older_articles_are_a_page_away(world, ann):
    with Client(world.pequod.url) as pq:
        pq.put_many({f"article|old|{second:010}": f"Old {second}." for second in range(100, 200)})
    page = ann.get("/")
    seen = re.findall(r">Old (\d+)\.", page.text)
    while older := re.search(r'href="(\?before=\d+-\w+)">Older', page.text):
        page = ann.get("/" + older[1])
        seen += re.findall(r">Old (\d+)\.", page.text)
    assert seen == [str(second) for second in range(199, 99, -1)]
    assert "Newest articles" in page.text


def test_comments_within_a_second_are_all_kept(world, ann):
    author, number = submit(ann, "Discuss").groups()
    for text in ("one thing", "another thing", "a third thing"):
        page = ann.post("/comment", author=author, id=number, text=text)
    assert all(text in page.text for text in ("one thing", "another thing", "a third thing"))


def test_the_longest_text_may_be_of_any_signs(ann):
    ann.get("/submit")
    page = ann.post("/submit", title="🐋" * 120, body="鯨" * 1000 + "🐋" * 1000)
    assert page.status == 200
    assert "鯨🐋" in page.text


def test_what_is_not_there(world):
    visitor = Visitor(world.newp)
    for path in (
        "/article/nobody/1",
        "/article/a%7Cb/1",
        "/article/ann/" + "1" * 5000,
        "/user/nobody",
        "/nowhere",
    ):
        assert visitor.get(path).status == 404


@needs_browser
def test_a_vote_moves_the_karma(ann, world, page):
    log_in(page, world.newp, "voter")
    author, number = submit(ann, "Vote for me").groups()
    ann.post("/comment", author=author, id=number, text="Please do")
    page.get(f"http://{world.newp}/article/{author}/{number}")
    karma = int(page.find_element(By.CSS_SELECTOR, '.karma[data-user="ann"]').text)
    page.find_element(By.CSS_SELECTOR, '[title="vote for it"]').click()
    until(page, lambda: page.find_element(By.CLASS_NAME, "votes").text == "1")
    moved = page.find_element(By.CSS_SELECTOR, '.karma[data-user="ann"]').text
    assert int(moved) == karma + 1
    assert page.get_log("browser") == []
