"""Who may see a page: hosts, origins, tokens, addresses."""

import socket
from email.message import Message

import pytest

from watersmeet.page.address import Address, address_of, check_token, listening
from watersmeet.page.serving.requests import is_ours, refusal, shows_token

NAMES = ["localhost", "join.example", "box"]


def headers(*pairs):
    message = Message()
    for name, value in pairs:
        message[name] = value
    return message


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8321", "[::1]:8321", "127.9.9.9"])
def test_this_machine_is_meant(host):
    assert is_ours(host, True, NAMES) and is_ours(host, False, NAMES)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example:8321", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil", "localhost:",
     "[::1", "localhost:80:80", "localhost:8321/x", "[::1]x", "0x7f.1:80"],
)  # fmt: skip
def test_another_host_is_meant(host):
    assert not is_ours(host, True, NAMES) and not is_ours(host, False, NAMES)


def test_on_loopback_names_and_addresses_of_others_are_refused():
    assert not is_ours("box:8321", True, NAMES) and is_ours("box:8321", False, NAMES)
    assert not is_ours("10.0.0.7:8321", True, NAMES) and is_ours("10.0.0.7:8321", False, NAMES)


@pytest.mark.parametrize(
    "more, answered",
    [
        ([], True),
        ([("Origin", "http://localhost:8321")], True),
        ([("Origin", "http://localhost:3000")], False),
        ([("Origin", "https://localhost:8321")], False),
        ([("Origin", "http://evil.example")], False),
        ([("Origin", "null")], False),
        ([("Host", "localhost:8321")], False),  # twice
        ([("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "cors")], True),
        ([("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")], False),
        ([("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "cors")], False),
        ([("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")], True),  # a link was followed
    ],
)
def test_only_our_own_page_may_ask(more, answered):
    why = refusal(headers(("Host", "localhost:8321"), *more), True, NAMES)
    assert (why is None) == answered


def test_a_request_without_a_host_is_refused():
    assert refusal(headers(), True, NAMES)


def test_a_token_is_shown_in_the_address_a_cookie_or_a_header():
    token = "0123456789abcdef"
    assert shows_token(token, {"token": [token]}, headers(), "c")
    assert shows_token(token, {}, headers(("Cookie", f"other=1; c={token}")), "c")
    assert shows_token(token, {}, headers(("Authorization", f"Bearer {token}")), "c")
    for query, found in [
        ({}, headers()),
        ({"token": ["0123456789abcdee"]}, headers()),
        ({"token": [""]}, headers()),
        ({"token": ["\N{GREEK SMALL LETTER ALPHA}"]}, headers()),
        ({}, headers(("Cookie", f"d={token}"))),
        ({}, headers(("Cookie", "c=; ;;==;c"))),
        ({}, headers(("Authorization", f"Basic {token}"))),
    ]:
        assert not shows_token(token, query, found, "c")


@pytest.mark.parametrize(
    "given, address",
    [
        (None, Address("127.0.0.1", None)),
        ("", Address("127.0.0.1", None)),
        (0, Address("127.0.0.1", 0)),
        ("9000", Address("127.0.0.1", 9000)),
        ("0.0.0.0:9000", Address("0.0.0.0", 9000)),
        ("[::1]:9000", Address("::1", 9000)),
        ("localhost:9000", Address("localhost", 9000)),
    ],
)
def test_addresses(given, address):
    assert address_of(given) == address


@pytest.mark.parametrize(
    "given", ["job.toml", "localhost", "1:2:3", "::1:80", "70000", "-1", "http://localhost:80", "host:"]
)
def test_what_is_no_address(given):
    with pytest.raises(ValueError, match="--page must be a port .* or HOST:PORT, got"):
        address_of(given, "--page")


@pytest.mark.parametrize("given", [True, 1.5, b"80", ["80"]])
def test_what_is_no_address_at_all(given):
    with pytest.raises(TypeError, match="address must be a port"):
        address_of(given)


def test_an_address_that_others_reach_needs_a_token_and_says_why():
    with pytest.raises(ValueError, match="others than the users of this machine can see the page.*give a --page-token"):
        listening(Address("0.0.0.0", 0), None, "--page", "--page-token")
    with listening(Address("0.0.0.0", 0), "0123456789abcdef") as server:
        assert server.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("token", ["", "0123456789abcde", "0123456789abcdef\r\nSet-Cookie: x", "0123456789 abcdef"])
def test_tokens_that_are_none(token):
    with pytest.raises(ValueError, match="token must be at least 16 letters"):
        check_token(token)


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"address: port {port} of 127.0.0.1 is in use; give another, or 0"):
            listening(Address("127.0.0.1", port), None)


def test_without_a_port_another_is_taken_where_the_usual_one_is_in_use():
    with listening(Address("127.0.0.1", None), None) as first, listening(Address("127.0.0.1", None), None) as second:
        ports = {first.getsockname()[1], second.getsockname()[1]}
    assert len(ports) == 2 and all(ports)


@pytest.mark.parametrize(
    "address, message",
    [
        (Address("no-such-host.invalid", 0), "no machine is known as 'no-such-host.invalid'"),
        (Address("203.0.113.7", 0), "203.0.113.7 is no address of this machine"),
    ],
)
def test_addresses_of_nobody(address, message):
    with pytest.raises(ValueError, match=message):
        listening(address, "0123456789abcdef")
