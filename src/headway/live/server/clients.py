"""The connections of programs, from the door to their end, whatever that is.

A client that misbehaves loses its connection; nothing a client does can make the daemon wait,
because every socket is non-blocking and every message is small.
"""

from __future__ import annotations

import contextlib
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from headway.engine.turns import leases
from headway.live.devices.discovery import Found
from headway.live.gate.channel import Channel, Peer
from headway.live.server.loop import describe_failure, log
from headway.live.server.newcomers import Newcomers
from headway.live.server.report import sample
from headway.live.server.scout import Sight
from headway.live.wire.pages import Heart, Pages
from headway.live.wire.protocol import (
    ENTER,
    GRANT,
    LEAVE,
    MESSAGE_SIZE,
    SUBMIT,
    TURNS,
    Message,
    ProtocolError,
    build_message,
    build_welcome,
    parse_hello,
    parse_message,
)

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

SAMPLES_A_BEAT = 64
"""Pages that are read with one heartbeat, about: reading all of very many would take too long."""
LIVELY = 30
"""For so many heartbeats after its last word a program's page is read."""
A_TURN = 4
"""Messages that are read from one before the others are heard."""


class Clients:
    """Lets programs in, hears them and lets them go; the daemon's channels are those there are."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.newcomers = Newcomers(daemon, self._arrived)
        self.came = 0
        """How many there were so far, and the number of the last."""
        self.heard_ns = 0
        """When a program that takes turns was last heard."""
        self._beats = 0
        self._hearts: dict[Channel, Heart] = {}
        self._lively: dict[Channel, int] = {}
        """Programs that said something lately, and with which heartbeat."""

    def _arrived(self, connection: socket.socket, peer: Peer, data: bytes) -> None:
        """Somebody has said the first words."""
        daemon = self._daemon
        if not daemon.registry.rights.arrive(peer):
            daemon.refused += 1
            connection.close()
            return
        self.came += 1
        channel = Channel(self.came, connection, peer, time.monotonic_ns())
        daemon.channels[channel.number] = channel
        drop = partial(self.drop, channel)
        daemon.loop.watch(connection.fileno(), partial(self._readable, channel), drop)
        try:
            self._greet(channel, data)
        except (ProtocolError, OSError):
            daemon.refused += 1
            self.drop(channel)
        except Exception as error:
            log(describe_failure(error))
            self.drop(channel)

    def _readable(self, channel: Channel) -> None:
        """Read what is there, but not for ever: the others want to be heard too. After asking most
        programs wait for the answer."""
        channels = self._daemon.channels
        for _ in range(A_TURN):
            if channel.number not in channels:
                return
            try:
                data = channel.socket.recv(MESSAGE_SIZE + 1)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.drop(channel)
                return
            try:
                message = parse_message(data)
                self._hear(channel, message)
            except (ProtocolError, OSError):
                self._daemon.refused += 1
                self.drop(channel)
                return
            if message.type == SUBMIT:
                return

    def _hear(self, channel: Channel, message: Message) -> None:
        daemon, now_ns = self._daemon, time.monotonic_ns()
        self._lively[channel] = self._beats
        if channel.turns:
            self.heard_ns = now_ns
        try:
            if message.type in (ENTER, LEAVE):
                daemon.servers.heard(channel, message, now_ns)
                daemon.schedulers.decide(now_ns)
            else:
                if message.type == TURNS:
                    daemon.registry.takes_turns(channel, now_ns)
                daemon.schedulers.of(channel).arbiter.heard(channel, message, now_ns)
        except ProtocolError:
            raise
        except Exception as error:
            daemon.doubt(error)

    def _greet(self, channel: Channel, data: bytes) -> None:
        daemon, hello = self._daemon, parse_hello(data)
        daemon.refresh_spec()
        now_ns = time.monotonic_ns()
        if not daemon.conduct.admits(channel.identity, now_ns):
            raise ProtocolError("its process is unmanaged for now")
        pages = channel.pages = Pages(channel.peer.pid)
        pages.heart.value = now_ns
        scheduler = daemon.schedulers.place(Found(hello.model, hello.uuid, hello.pci))
        channel.device = scheduler.device.index
        pages.set_slice(scheduler.arbiter.profile.slice_ns)
        self._hearts[channel] = pages.heart
        channel.task = daemon.registry.enrol(channel, hello, now_ns)
        scheduler.arbiter.add(channel)
        daemon.servers.arrived(channel)
        scheduler.windows.arrived(channel)  # before it can ask for anything
        daemon.directory.arrived(channel)
        daemon.pages.arrived(channel)
        welcome = [build_welcome(channel.number)]
        socket.send_fds(channel.socket, welcome, [pages.daemon_fd, pages.client_fd])
        pages.close_fds()
        pidfd = channel.open_pidfd()
        if pidfd >= 0:
            drop = partial(self.drop, channel)
            daemon.loop.watch(pidfd, drop, drop)
        daemon.foreground.arrived(channel)
        daemon.scout.look(channel.peer, partial(self._seen, channel))

    def _seen(self, channel: Channel, sight: Sight) -> None:
        """What was seen of a program counts from now on."""
        if channel.number in self._daemon.channels:
            channel.company.side_by_side = sight.side_by_side
            self._daemon.servers.shows_on(channel, sight.display)

    def grant(self, channel: Channel) -> None:
        """It may go."""
        try:
            channel.socket.send(build_message(Message(GRANT, channel.request.seq)))
        except OSError:  # gone, or it reads nothing of what it asks for
            drop = partial(self.drop, channel)
            self._daemon.loop.soon(drop, drop)

    def expel(self, channel: Channel) -> None:
        """Its process is unmanaged from now on."""
        drop = partial(self.drop, channel)
        self._daemon.loop.soon(drop, drop)

    def beat(self, now_ns: int) -> None:
        """Show programs that the daemon lives, and see what they say."""
        daemon, beats = self._daemon, self._beats
        self._beats = beats = beats + 1
        for heart in self._hearts.values():
            heart.value = now_ns
        for scheduler in daemon.schedulers:
            for holder in list(scheduler.arbiter.online.clients):
                leases.report_passed(scheduler.engine, holder, now_ns)
                if isinstance(holder, Channel):
                    self._lively[holder] = beats
        rounds = len(self._lively) // SAMPLES_A_BEAT + 1
        for channel, heard in list(self._lively.items()):
            if (channel.number + beats) % rounds == 0:
                sample(daemon, channel, now_ns)
            if beats - heard > LIVELY:
                del self._lively[channel]
        daemon.pages.publish(now_ns)
        self.newcomers.tick(now_ns)

    def drop(self, channel: Channel) -> None:
        """A connection is over, by whatever cause."""
        daemon = self._daemon
        if daemon.channels.pop(channel.number, None) is None:
            return
        self._hearts.pop(channel, None)
        self._lively.pop(channel, None)
        daemon.loop.unwatch(channel.socket.fileno())
        if channel.pidfd >= 0:
            daemon.loop.unwatch(channel.pidfd)
        daemon.registry.rights.leave(channel.peer)
        # The other side hears it now, though the descriptor goes at the end of the turn.
        with contextlib.suppress(OSError):
            channel.socket.shutdown(socket.SHUT_RDWR)
        daemon.loop.close_later(channel.close)
        now_ns, scheduler = time.monotonic_ns(), daemon.schedulers.of(channel)
        if channel.task is not None and channel.port is not None:
            sample(daemon, channel, now_ns)
            daemon.accounts.ended(channel, scheduler.stats.tasks.get(channel.task), now_ns)
        try:
            scheduler.arbiter.remove(channel, now_ns)
            daemon.servers.gone(channel, now_ns)
        except Exception as error:
            daemon.doubt(error)
        scheduler.windows.gone(channel)
        daemon.directory.gone(channel)
        daemon.pages.gone(channel)
