"""Which requests are answered.

A page on this machine can be asked for by any site that a browser of this machine has open: it may send requests to
127.0.0.1, and it may give 127.0.0.1 a name of its own (DNS rebinding), for which the browser then takes us to be that
site. So a request must name us as nobody else can be named: as localhost, by an address, or by a name of this machine;
and if it says which page it comes from, that must be ours.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any


def host_name(host: str) -> str | None:
    """The name in "name:port"; None if it is none.

    >>> host_name("localhost:80"), host_name("[::1]:80"), host_name("10.0.0.1"), host_name("a:b:c")
    ('localhost', '::1', '10.0.0.1', None)
    """
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name if bracket and (not rest or rest[0] == ":" and rest[1:].isdecimal()) else None
    name, colon, port = host.partition(":")
    return name.lower() if name and (not colon or port.isdecimal()) else None


def is_ours(host: str, loopback: bool, names: list[str]) -> bool:
    """Whether a request to this host may be meant for us. The port may be another, that of a tunnel."""
    name = host_name(host)
    if name is None:
        return False
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" if loopback else name in names
    return address.is_loopback or not loopback


def refusal(headers: Any, loopback: bool, names: list[str]) -> str | None:
    """Why a request is not answered, whatever it wants; None: it is."""
    hosts = headers.get_all("Host") or []
    if len(hosts) != 1 or not is_ours(hosts[0], loopback, names):
        return "this is not the host that was asked for"
    origins = headers.get_all("Origin") or []
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
        return "pages of other sites may not ask"
    if headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and headers.get("Sec-Fetch-Mode") != "navigate":
        return "pages of other sites may not ask"
    return None


def shows_token(token: str, query: Mapping[str, list[str]], headers: Any, cookie: str) -> bool:
    """Whether a request has the token: in its address, in its cookie, or as "Authorization: Bearer"."""
    shown = list(query.get("token", []))
    kind, _, bearer = headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        shown.append(bearer.strip())
    try:
        cookies = SimpleCookie(headers.get("Cookie", ""))
    except CookieError:
        cookies = SimpleCookie()
    if cookie in cookies:
        shown.append(cookies[cookie].value)
    return any(hmac.compare_digest(one.encode(), token.encode()) for one in shown)
