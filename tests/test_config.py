"""The settings of a server: what they may be, and whom it may listen to."""

from dataclasses import FrozenInstanceError, fields

import pytest

from pequod.config import MIN_TOKEN, ServerConfig, size_of
from pequod.errors import BadRequest

TOKEN = "x" * MIN_TOKEN


def test_memory_is_a_shorter_name():
    assert ServerConfig.settings({"memory": "2GB"}) == {"memory_limit": 2 << 30}


def test_the_address_of_a_database_is_not_shown():
    config = ServerConfig(db="postgresql://app:secret@db/twip", tables="twip.toml")
    assert "secret" not in repr(config)


def test_the_defaults_are_fine():
    config = ServerConfig()
    assert config.is_loopback
    assert not config.insecure
    for one in fields(config):
        assert one.metadata["help"]
        assert one.metadata["kind"]
    with pytest.raises(FrozenInstanceError):
        config.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_addresses_of_this_machine(host):
    assert ServerConfig(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.1", "cache.example", "127.1"])
def test_addresses_of_others_need_a_token(host):
    with pytest.raises(BadRequest, match=r"host: .* can be reached from other machines"):
        ServerConfig(host=host)
    for permitted in ({"token": TOKEN}, {"tokens": "tokens.toml"}, {"insecure": True}):
        assert not ServerConfig(host=host, **permitted).is_loopback


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": 5}, "host: 5 is not a text"),
        ({"port": "7709"}, "port: '7709' is not a whole number"),
        ({"port": -1}, "port: -1 is not at least 0 and at most 65535"),
        ({"port": 65536}, "port: 65536"),
        ({"port": True}, "port: True is not a whole number"),
        ({"joins": "file.pq"}, "joins: 'file.pq' is not a list of paths"),
        ({"joins": (5,)}, "joins: 5 is not a text"),
        ({"memory_limit": 0}, "memory_limit: 0 is not at least 1"),
        ({"memory_limit": 1.5}, "memory_limit: 1.5 is not a size"),
        ({"insecure": "yes"}, "insecure: 'yes' is not true or false"),
        ({"token": "short"}, "fewer than 16 characters"),
        ({"token": ""}, "fewer than 16 characters"),
        ({"tls_key": "key.pem"}, "a key without a certificate"),
        ({"max_connections": 0}, "max_connections: 0"),
        ({"max_frame": 10}, "max_frame: 10 is not at least 1024"),
        ({"max_frame": 2**31}, "at most 1073741824"),
        ({"max_key": 5000}, "max_key: 5000"),
        ({"max_rows": None}, "max_rows: None is not a whole number"),
        ({"request_seconds": 0}, "request_seconds: 0"),
        ({"request_seconds": float("nan")}, "request_seconds: nan"),
        ({"stall_seconds": float("inf")}, "stall_seconds: inf"),
        ({"drain_seconds": -1}, "drain_seconds: -1"),
        ({"log_level": "loud"}, "log_level: 'loud' is none of debug, info, warning, error"),
        ({"subtables": {"t": "2"}}, "subtables: '2' is not a whole number"),
        ({"subtables": {"t": True}}, "subtables: True is not a whole number"),
        ({"subtables": {"t": -1}}, "subtables: -1"),
        ({"subtables": [1]}, "subtables: .* is not a table of whole numbers"),
    ],
)
def test_settings_that_are_wrong(settings, message):
    with pytest.raises(BadRequest, match=message):
        ServerConfig(**settings)


def test_a_token_is_not_shown_when_it_is_refused():
    with pytest.raises(BadRequest) as error:
        ServerConfig(token="tiny-secret")
    assert "tiny-secret" not in str(error.value)


def test_a_token_is_not_shown_with_the_settings():
    assert "secret" not in repr(ServerConfig(token="a-secret-of-many-letters"))


def test_settings_as_they_are_written():
    written = {"max_frame": "2MB", "joins": ["a.pq"], "port": 1, "memory_limit": 5000}
    found = ServerConfig.settings(written)
    assert found == {"max_frame": 2 << 20, "joins": ("a.pq",), "port": 1, "memory_limit": 5000}
    with pytest.raises(BadRequest, match="'max_row'; did you mean max_rows"):
        ServerConfig.settings({"max_row": 5})
    with pytest.raises(BadRequest, match="no setting is named 'zzz'; known: host, port"):
        ServerConfig.settings({"zzz": 5})
    with pytest.raises(BadRequest, match="max_frame: 'large' is not a size"):
        ServerConfig.settings({"max_frame": "large"})


@pytest.mark.parametrize("text", ["", "-1", "1e3", "5 PB", "MB", "1,5m", "0x10", "١"])
def test_sizes_that_are_none(text):
    with pytest.raises(BadRequest, match="is not a size"):
        size_of(text)


def test_sizes():
    sizes = {"0": 0, "1k": 1024, " 1 KB ": 1024, "1KiB": 1024, "0.5g": 1 << 29, "2t": 2 << 40}
    assert {text: size_of(text) for text in sizes} == sizes
