"""What can be wrong with a device, in words for users."""

from __future__ import annotations


class NoDevice(RuntimeError):
    """A device was asked for, and there is none that could be used."""


class DeviceFull(MemoryError):
    """What is to be kept on a device does not fit there."""


def gib(nbytes: float) -> str:
    """Bytes for a reader: "12.3 GiB", "4.0 KiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"
