"""Who may ask: the bearer token, and the Host and Origin checks against web pages.

A page on the internet can make a browser talk to 127.0.0.1, under its own name too (DNS rebinding).
So a server on loopback answers only to loopback names, and no server answers pages of other sites.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.server.errors import ApiError
from engine.server.wire import error_response

ALIVE_PATH = "/livez"  # says only that the process runs; needs no token
METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class Access:
    """The rules in force. `host` is the name that the server was told to listen on; on loopback's
    `metrics_port` nothing but the metrics is to be had, without a token."""

    token: str
    host: str
    loopback: bool
    metrics_port: int = 0


class Guard:
    """ASGI middleware that refuses what `Access` does not allow."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            access, path = self._access, scope["path"]
            if access.metrics_port and scope["server"][1] == access.metrics_port:
                access = Access("", "127.0.0.1", True)
                path = path if path == METRICS_PATH else ""
            refusal = refuse(Headers(scope=scope), path, access)
            if refusal is not None:
                await error_response(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refuse(headers: Headers, path: str, access: Access) -> ApiError | None:
    """Why a request is refused; None when it is not. An empty path is one that is not there."""
    hosts = headers.getlist("host")
    if access.loopback and not (hosts and all(_own_host(host, access) for host in hosts)):
        return ApiError(
            403,
            f"The Host {', '.join(hosts)!r} is not this computer",
            "Use http://127.0.0.1 or http://localhost",
            code="host_not_allowed",
        )
    for origin in headers.getlist("origin"):
        if not _own_origin(origin, hosts, access):
            return ApiError(
                403, f"Web pages of {origin!r} may not use this server", code="origin_not_allowed"
            )
    if not path:
        return ApiError(404, f"There is only {METRICS_PATH} on this port", code="not_found")
    if access.token and path != ALIVE_PATH and not _has_token(headers, access.token):
        return ApiError(
            401,
            "The token is missing or wrong",
            "Send it as Authorization: Bearer TOKEN",
            code="invalid_api_key",
        )
    return None


def _has_token(headers: Headers, token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        given = headers.get("x-api-key", "")  # what Anthropic's clients send
    return hmac.compare_digest(given.strip().encode(), token.encode())


def _own_host(host: str, access: Access) -> bool:
    name = _hostname("//" + host)
    return is_loopback(name) or name == access.host.lower()


def _own_origin(origin: str, hosts: list[str], access: Access) -> bool:
    """A page that this computer serves, or one of the very host that is asked."""
    if not origin.startswith(("http://", "https://")):
        return False
    return is_loopback(_hostname(origin)) or origin.partition("//")[2] in hosts


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as an open bracket
        return ""


def is_loopback(name: str) -> bool:
    """Whether a host name or address always means this computer."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
