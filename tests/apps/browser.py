"""A real browser without a screen: Debian's Chromium, or whatever is on PATH, by selenium."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=900,1000",
)

needs_browser = pytest.mark.skipif(
    not (PROGRAM and DRIVER),
    reason="no chromium and chromedriver on PATH: apt-get install chromium chromium-driver",
)


def until(page: webdriver.Chrome, condition: Callable[[], object]) -> None:
    """Wait until something is so, which it soon is."""
    ignored = [StaleElementReferenceException]
    WebDriverWait(page, 10, 0.02, ignored).until(lambda _: condition())


def log_in(page: webdriver.Chrome, address: str, name: str) -> None:
    page.get(f"http://{address}/login")
    page.find_element(By.ID, "name").send_keys(name)
    page.find_element(By.CSS_SELECTOR, ".login form button").click()
    until(page, lambda: page.current_url == f"http://{address}/")


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAM or ""
    for flag in FLAGS:
        options.add_argument(flag)
    service = Service(DRIVER, log_output=os.devnull)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.implicitly_wait(5)
        yield driver
    finally:
        driver.quit()
