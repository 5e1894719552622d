"""Where a page listens, and who may see it.

A page shows predicates, names of columns and values of keys, without encryption. So it is for this machine alone,
unless a token is given that a browser must show.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

HOST = "127.0.0.1"
#: Taken if it is free and no other was asked for.
PORT = 8321
SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Address:
    host: str
    port: int | None  # None: PORT, or any other

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def address_of(given: str | int | None, parameter: str = "address") -> Address:
    """HOST:PORT, PORT or nothing as an address.

    >>> address_of(9000), address_of("[::1]:0"), address_of(None)
    (Address(host='127.0.0.1', port=9000), Address(host='::1', port=0), Address(host='127.0.0.1', port=None))
    """
    if given is None or given == "":
        return Address(HOST, None)
    text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(text, str):
        raise TypeError(f"{parameter} must be a port or 'HOST:PORT', got {given!r}")
    found = re.fullmatch(r"(?:(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):)?(\d{1,5})", text)
    if found is None or int(found[2]) > 65535:
        raise ValueError(f"{parameter} must be a port (0 to 65535; 0: any that is free) or HOST:PORT, got {given!r}")
    return Address((found[1] or HOST).strip("[]"), int(found[2]))


def check_token(token: str | None, parameter: str = "token") -> str | None:
    if token is not None and not re.fullmatch(rf"[A-Za-z0-9._~-]{{{SHORTEST_TOKEN},}}", str(token)):
        raise ValueError(
            f"{parameter} must be at least {SHORTEST_TOKEN} letters, digits or . _ ~ -, got {len(str(token))} "
            f'characters; make one with: python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    return token


def listening(
    address: Address, token: str | None, parameter: str = "address", token_parameter: str = "token"
) -> socket.socket:
    """A socket that listens there."""
    host = address.host
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, address.port or 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"{parameter}: no machine is known as {host!r} ({error.strerror})") from None
    if token is None and not is_loopback(str(place[0])):
        raise ValueError(
            f"{parameter}: at {host} others than the users of this machine can see the page, with predicates, names of "
            f"columns and values of keys: give a {token_parameter} that they must show, or leave out the host and let "
            f"them come by ssh -L"
        )
    ports = [PORT, 0] if address.port is None else [address.port]
    for port in ports:
        server = socket.socket(family, kind, protocol)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((place[0], port, *place[2:]))
            server.listen(128)
            return server
        except OSError as error:
            server.close()
            if port == ports[-1]:
                raise ValueError(f"{parameter}: {_why(error, host, port)}") from None
    raise AssertionError(ports)


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; give another, or 0 for any that is free"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; give one that is, or leave it out"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} is not for everyone; give one from 1024 on, or 0 for any that is free"
    return f"cannot listen at port {port} of {host}: {error.strerror}"
