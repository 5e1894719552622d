"""Messages between a caller and the process of a core: Python objects, with descriptors of memory attached."""

from __future__ import annotations

import array
import pickle
import socket
import struct
from typing import Any

_HEAD = struct.Struct("<QI")  # bytes that follow, descriptors that come along
_MOST_DESCRIPTORS = 64


def packed(message: Any) -> bytes:
    """A message as it is sent."""
    return pickle.dumps(message)


class Gone(Exception):
    """The other end is not there any more."""


class Channel:
    """One end of a socket."""

    def __init__(self, connected: socket.socket):
        self._socket = connected

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def wait(self, seconds: float | None) -> None:
        """How long `receive` waits for a message to begin; then it raises TimeoutError."""
        self._socket.settimeout(seconds)

    def send(self, message: Any, descriptors: tuple[int, ...] = ()) -> None:
        self.send_packed(packed(message), descriptors)

    def send_packed(self, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """What `packed` has made, once for several ends."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            sent = self._socket.sendmsg([_HEAD.pack(len(data), len(descriptors)), data], rights) - _HEAD.size
            if sent < len(data):  # never within the head, which is a few bytes of an empty socket
                self._socket.sendall(memoryview(data)[sent:])
        except OSError as error:
            raise Gone from error

    def receive(self) -> tuple[Any, list[int]]:
        """The next message and its descriptors, which are the receiver's now."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, _HEAD.size, _MOST_DESCRIPTORS)
            if not head:
                raise Gone
            size, expected = _HEAD.unpack(head + self._exactly(_HEAD.size - len(head)))
            data = self._exactly(size)
        except TimeoutError:
            raise
        except OSError as error:
            raise Gone from error
        assert len(descriptors) == expected, f"{len(descriptors)} descriptors came, {expected} were sent"
        return pickle.loads(data), list(descriptors)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray(size)
        view = memoryview(parts)
        while view.nbytes:
            n = self._socket.recv_into(view)
            if not n:
                raise Gone
            view = view[n:]
        return bytes(parts)
