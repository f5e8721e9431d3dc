"""The console in a real browser."""

import pytest
from selenium.webdriver.common.by import By

from apps.twip import JOINS
from pequod import Client
from pequod.cluster.partition import ClusterMap
from tests.apps.browser import needs_browser, until
from tests.cluster.live import running, write_map
from tests.live import LiveServer, LoopThread

TOKEN = "a token of enough characters"


@pytest.fixture
def live():
    with LiveServer() as one, Client(one.url) as pq:
        pq.add_join(JOINS)
        pq.put_many({"s|ann|bob": "1", "p|bob|0000000100": "<b>Hi</b>"})
        yield one


@needs_browser
def test_the_console(live, page):
    with Client(live.url) as pq:
        page.get(f"{live.http}/?prefix=t|ann|")
        assert not page.find_element(By.ID, "access").is_displayed()
        rows = page.find_element(By.ID, "rows")
        until(page, lambda: "<b>Hi</b>" in rows.text)  # as text, not as HTML
        assert "timeline" in page.find_element(By.ID, "joins").text
        assert page.find_elements(By.CSS_SELECTOR, "#tables meter")
        page.find_element(By.ID, "watch").click()
        until(page, lambda: "watching" in page.find_element(By.ID, "browser-note").text)
        pq.put("p|bob|0000000120", "moves by itself")
        until(page, lambda: "moves by itself" in rows.text)
        pq.remove("p|bob|0000000100")
        until(page, lambda: "<b>Hi</b>" not in rows.text)
        page.find_element(By.ID, "explain").click()
        picture = page.find_element(By.ID, "picture")
        until(page, lambda: "fresh" in picture.text)
        assert picture.find_elements(By.CSS_SELECTOR, "svg rect.fresh")
        area = page.find_element(By.ID, "join-text")
        area.send_keys("t|<user> = cpoy p|<user>")
        page.find_element(By.CSS_SELECTOR, "#addjoin button").click()
        answer = page.find_element(By.ID, "join-answer")
        until(page, lambda: "Did you mean copy?" in answer.text)
        marked = page.execute_script(
            "const a = document.getElementById('join-text');"
            "return a.value.slice(a.selectionStart, a.selectionEnd)"
        )
        assert marked == "cpoy"
        area.clear()
        area.send_keys("n|<poster> = count p|<poster>|<time>")
        page.find_element(By.CSS_SELECTOR, "#addjoin button").click()
        until(page, lambda: "installed n#1" in answer.text)
        assert pq.get("n|bob") == "1"
        errors = [entry["message"] for entry in page.get_log("browser")]
        assert all("400 (Bad Request)" in error for error in errors), errors


@needs_browser
def test_an_empty_server_and_one_that_is_away(page):
    with LiveServer() as live, Client(live.url) as pq:
        page.get(live.http)
        until(page, lambda: page.find_element(By.ID, "joins").text == "none yet")
        pq.put("k|1", "one")
        until(page, lambda: "k" in page.find_element(By.ID, "tables").text.split())
        live.stop()
        trouble = page.find_element(By.ID, "trouble")
        until(page, lambda: "does not answer" in trouble.text)
        live.start()
        until(page, lambda: not trouble.is_displayed())


@needs_browser
def test_a_token_is_asked_for(page):
    with LiveServer(token=TOKEN) as live:
        page.get(live.http)
        until(page, lambda: page.find_element(By.ID, "access").is_displayed())
        page.find_element(By.ID, "token").send_keys(TOKEN)
        page.find_element(By.CSS_SELECTOR, "#access button").click()
        until(page, lambda: "connection" in page.find_element(By.ID, "summary").text)
        assert not page.find_element(By.ID, "access").is_displayed()


@needs_browser
def test_what_has_not_changed_keeps_the_focus(live, page):
    with Client(live.url) as pq:
        page.get(live.http)
        link = page.find_element(By.LINK_TEXT, "s")
        page.execute_script("arguments[0].focus()", link)
        pq.put("s|ann|liz", "1")
        until(page, lambda: link.find_element(By.XPATH, "../following-sibling::td").text == "2")
        assert page.switch_to.active_element == link
        pq.put("new|1", "1")  # another table, and so other rows
        until(page, lambda: page.find_elements(By.LINK_TEXT, "new"))


@needs_browser
def test_a_node_of_a_cluster_shows_its_links(tmp_path, page):
    path = write_map(tmp_path / "cluster.toml", "ab")
    url = ClusterMap.read(str(path)).nodes["a"]
    loop = LoopThread()
    cluster = running(path, "ab")
    loop.run(cluster.__aenter__())
    try:
        page.get(url.replace("pequod", "http", 1))
        picture = page.find_element(By.ID, "cluster-picture")
        until(page, lambda: "home of 0 rows" in picture.text)
        assert not page.find_element(By.ID, "trouble").is_displayed()
        assert page.get_log("browser") == []
    finally:
        loop.run(cluster.__aexit__(None, None, None))
        loop.close()


@needs_browser
def test_many_sources_are_pieces_of_one_bar(live, page):
    with Client(live.url) as pq:
        pq.put_many({f"s|ann|u{number}": "1" for number in range(9)})
        pq.scan("t|ann|", "t|ann}")
        page.get(f"{live.http}/?explain=t|ann|")
        picture = page.find_element(By.ID, "picture")
        until(page, lambda: "10 ranges" in picture.text)
        assert len(page.find_elements(By.CSS_SELECTOR, "#picture .join:first-child .source")) == 11
        page.find_element(By.CSS_SELECTOR, "#picture summary").click()
        assert "[p|u3|, p|u3})" in picture.text


@needs_browser
def test_without_scripts_it_says_so(live, page):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.get(live.http)
        assert "needs JavaScript" in page.find_element(By.TAG_NAME, "main").text
        assert not page.find_element(By.ID, "tables-part").is_displayed()
        assert page.get_log("browser") == []
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@needs_browser
def test_a_link_to_explain_leads_there(live, page):
    page.get(f"{live.http}/?explain=t|ann|")
    part = page.find_element(By.ID, "explain-part")

    def is_in_view() -> bool:
        top = page.execute_script("return arguments[0].getBoundingClientRect().top", part)
        height = page.execute_script("return innerHeight")
        return part.is_displayed() and 0 <= top < height

    until(page, is_in_view)
