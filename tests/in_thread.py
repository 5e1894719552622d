"""Cores that are threads of this process: they start at once, and there may be many."""

import socket
import threading
from collections import deque

from watersmeet.engine.cores import process
from watersmeet.engine.cores.channel import Channel


class InThread(process.Process):
    pid = 0
    idle = deque()

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        threading.Thread(target=self._serve, args=(Channel(theirs),), daemon=True).start()

    def _serve(self, channel):
        process.serve_joins(channel)
        channel.close()

    def how_it_ended(self):
        return "it has ended"

    def end(self):
        self.channel.close()
