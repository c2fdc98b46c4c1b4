"""What tests read of a channel's pages, and write into them, by the names of the layout."""

from __future__ import annotations

import mmap
import os

from headway.live.gate.channel import Channel
from headway.live.wire.layout import CLIENT_PAGE, DAEMON_PAGE, PAGE


def page(channel: Channel, name: str) -> int:
    """What the daemon wrote for the client."""
    assert channel.pages is not None
    return DAEMON_PAGE.read(os.pread(channel.pages.daemon_fd, PAGE, 0), name)


def said(channel: Channel, name: str) -> int:
    """What the client wrote for the daemon."""
    assert channel.pages is not None
    return CLIENT_PAGE.read(os.pread(channel.pages.client_fd, PAGE, 0), name)


def say(channel: Channel, name: str, value: int, index: int = 0) -> None:
    """Write what a client does."""
    assert channel.pages is not None
    with mmap.mmap(channel.pages.client_fd, PAGE) as memory:
        CLIENT_PAGE.write(memory, name, value, index)
