"""Addresses of servers."""

import ssl

import pytest

from pequod import BadRequest
from pequod.client.address import address_of


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    monkeypatch.delenv("PEQUOD_URL", raising=False)
    monkeypatch.delenv("PEQUOD_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, "pequod://127.0.0.1:7709"),
        ("pequod://cache", "pequod://cache:7709"),
        ("pequod://cache:1/", "pequod://cache:1"),
        ("cache:1", "pequod://cache:1"),
        ("pequod://[::1]:5", "pequod://[::1]:5"),
        ("pequods://cache", "pequods://cache:7709"),
    ],
)
def test_addresses(url, shown):
    assert str(address_of(url, None, None)) == shown


def test_the_variables_are_the_default(monkeypatch):
    monkeypatch.setenv("PEQUOD_URL", "pequod://elsewhere:99")
    monkeypatch.setenv("PEQUOD_TOKEN", "secret")
    assert str(address_of(None, None, None)) == "pequod://elsewhere:99"
    assert address_of(None, None, None).token == "secret"
    assert address_of("pequod://here", "mine", None)[:2] == ("here", 7709)
    assert address_of("pequod://here", "mine", None).token == "mine"


def test_a_token_in_the_address_is_not_shown():
    address = address_of("pequod://:se%20cret@cache", None, None)
    assert address.token == "se cret"
    assert "cret" not in f"{address} {address!r}"
    assert address_of("pequod://:theirs@cache", "mine", None).token == "mine"
    for wrong in ("redis://:secret@cache", "pequod://:secret@cache/path", "pequod://:secret@:x"):
        with pytest.raises(BadRequest) as caught:
            address_of(wrong, None, None)
        assert "secret" not in str(caught.value)


def test_tls_by_scheme():
    assert isinstance(address_of("pequods://cache", None, None).tls, ssl.SSLContext)
    assert address_of("pequod://cache", None, None).tls is None


@pytest.mark.parametrize(
    "url",
    [
        "http://cache",
        "pequod://",
        "pequod://cache:port",
        "pequod://cache/path",
        "pequod://cache?x=1",
        "pequod://cache:0",
        "",
        7,
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(BadRequest, match="no address"):
        address_of(url, None, None)
