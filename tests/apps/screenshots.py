"""Makes the pictures of the README: `python -m tests.apps.screenshots`."""

import time
from pathlib import Path

from selenium.webdriver.common.by import By

from pequod import Client
from tests.apps.browser import browser, log_in
from tests.apps.live import small_world

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def main() -> None:
    with small_world() as world, browser() as page, Client(world.pequod.url) as pq:
        page.set_window_size(820, 900)
        log_in(page, world.twip, "ann")
        page.refresh()  # the first visit computed it
        page.find_element(By.CSS_SELECTOR, ".costs summary").click()
        page.save_screenshot(str(IMAGES / "twip.png"))
        comments = [key.split("|")[1:3] for key, _ in pq.scan("comment|", "comment}")]
        author, number = max(comments, key=comments.count)
        log_in(page, world.newp, "ann")
        page.get(f"http://{world.newp}/article/{author}/{number}")
        page.refresh()
        page.find_element(By.CSS_SELECTOR, ".costs summary").click()
        page.save_screenshot(str(IMAGES / "newp.png"))
        page.set_window_size(1000, 900)
        page.get(f"{world.pequod.http}/?explain=t|ann|")
        time.sleep(2)
        page.execute_script("document.getElementById('explain-part').scrollIntoView()")
        time.sleep(1)
        page.save_screenshot(str(IMAGES / "console.png"))


if __name__ == "__main__":
    main()
