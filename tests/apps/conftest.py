"""One browser for all tests of the pages: to start one takes longer than most of them."""

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.apps.browser import browser


@pytest.fixture(scope="session")
def _browser() -> Iterator[webdriver.Chrome]:
    with browser() as one:
        yield one


@pytest.fixture
def page(_browser: webdriver.Chrome) -> webdriver.Chrome:
    """A browser that has been nowhere."""
    _browser.get("about:blank")
    _browser.execute_cdp_cmd("Network.clearBrowserCookies", {})
    _browser.get_log("browser")
    return _browser
