"""Who may ask: token, Host and Origin."""

from __future__ import annotations

import httpx
import openai
import pytest
from starlette.datastructures import Headers

from engine.server.guard import Access, is_loopback, refuse
from tests.engine.server.conftest import running

LOOPBACK = Access(token="", host="127.0.0.1", loopback=True)
NETWORK = Access(token="secret", host="0.0.0.0", loopback=False)
TOKEN = {"authorization": "Bearer secret"}


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "127.0.0.1:8437", "127.0.0.53", "[::1]:8437", "[::1]"],
)
def test_loopback_names_pass(host: str) -> None:
    assert refuse(Headers({"host": host}), "/health", LOOPBACK) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8437", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("192.168.1.5", "[::2]", "", "[", "user@evil.example", "169.254.0.1", "0.0.0.0"),
    ],
)
def test_other_names_do_not(host: str) -> None:
    refusal = refuse(Headers({"host": host}), "/health", LOOPBACK)
    assert refusal is not None and (refusal.status, refusal.code) == (403, "host_not_allowed")


def test_a_missing_or_second_host_does_not_pass() -> None:
    assert refuse(Headers({}), "/health", LOOPBACK) is not None
    two = Headers(raw=[(b"host", b"localhost"), (b"host", b"evil.example")])
    assert refuse(two, "/health", LOOPBACK) is not None


@pytest.mark.parametrize(
    ("origin", "fine"),
    [
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:5173", True),
        ("https://evil.example", False),
        ("http://localhost.evil.example", False),
        ("null", False),
        ("file://", False),
        ("http://[", False),
    ],
)
def test_origin(origin: str, fine: bool) -> None:
    refusal = refuse(Headers({"host": "localhost", "origin": origin}), "/budget", LOOPBACK)
    assert (refusal is None) == fine
    if refusal is not None:
        assert (refusal.status, refusal.code) == (403, "origin_not_allowed")


def test_off_loopback_any_name_passes_with_the_token() -> None:
    there = {"host": "my-server.lan:8437"}
    assert refuse(Headers({**there, **TOKEN}), "/health", NETWORK) is None
    own = Headers({**there, **TOKEN, "origin": "http://my-server.lan:8437"})
    assert refuse(own, "/health", NETWORK) is None
    other = Headers({**there, **TOKEN, "origin": "http://other.lan:8437"})
    assert refuse(other, "/health", NETWORK) is not None
    missing = refuse(Headers(there), "/health", NETWORK)
    assert missing is not None and missing.status == 401


@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({"authorization": "Bearer secret"}, True),
        ({"authorization": "bearer secret"}, True),
        ({"x-api-key": "secret"}, True),
        ({"authorization": "Bearer Secret"}, False),
        ({"authorization": "Bearer secretx"}, False),
        ({"authorization": "Bearer "}, False),
        ({"authorization": "Basic secret"}, False),
        ({"authorization": "Bearer s\xe9cret"}, False),
        ({}, False),
    ],
)
def test_token(headers: dict[str, str], fine: bool) -> None:
    access = Access(token="secret", host="localhost", loopback=True)
    found = refuse(Headers({"host": "localhost", **headers}), "/v1/models", access)
    assert (found is None) == fine
    assert found is None or (found.status, found.code) == (401, "invalid_api_key")


def test_loopback_names() -> None:
    assert is_loopback("127.9.9.9") and is_loopback("::1") and is_loopback("localhost")
    assert not any(map(is_loopback, ("", "::", "0.0.0.0", "localhost.", "10.0.0.1")))


def test_over_the_wire() -> None:
    with running(token="secret") as server:
        with server.openai() as client:
            assert client.models.list().data[0].id == "fake"
        with httpx.Client(base_url=server.url) as stranger:
            assert stranger.get("/livez").status_code == 200
            for path in ("/health", "/events", "/budget", "/v1/models", "/nothing"):
                response = stranger.get(path)
                assert response.status_code == 401, path
                assert response.json()["error"]["code"] == "invalid_api_key"
            rebound = stranger.get("/livez", headers={"Host": "evil.example"})
            assert rebound.status_code == 403
        wrong = openai.OpenAI(base_url=server.url + "/v1", api_key="guess", max_retries=0)
        with wrong, pytest.raises(openai.AuthenticationError, match="missing or wrong"):
            wrong.models.list()
