"""The messages and pages that a program and the daemon share are described here, and only here.

The build makes the interposer's `protocol.h` of this file (header.py), with an assertion for the
place of each field; the daemon, tests and benchmarks take places and structures from the same
tables (protocol.py, pages.py). All times are CLOCK_MONOTONIC nanoseconds, which the processes of a
machine share. What a client writes is a hint: it may write anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from headway.live.wire.records import FLAG, TEXT, U32, U64, Field, Record

MEANING: Final = 1
"""Counted up when a field or a message comes to mean something else in the same place."""

MAGIC: Final = 0x59574448
PAGE: Final = 8192
NAME: Final = 64
TOKEN: Final = 64
UUID: Final = 48
PCI: Final = 16
METHODS: Final = 32
LANES: Final = 64
JOBS: Final = 32
PAUSES: Final = 48
ROWS: Final = 32
COEFFICIENTS: Final = 64
LAUNCHES: Final = 32
CONSTANTS: Final = {
    "MAGIC": (MAGIC, '"HDWY"'),
    "PAGE": (PAGE, "bytes of a page"),
    "NAME": (NAME, "bytes of a program's name"),
    "TOKEN": (TOKEN, "bytes of a launch's token"),
    "UUID": (UUID, "bytes of a GPU's identifier"),
    "PCI": (PCI, "bytes of a GPU's place on the bus"),
    "MATRIX": (METHODS, "methods of a group that are counted"),
    "LANES": (LANES, "streams of a program that are told apart"),
    "JOBS": (JOBS, "jobs of which a program keeps records"),
    "PAUSES": (PAUSES, "classes of a pause's length"),
    "ROWS": (ROWS, "kinds of commands of a group whose features are told apart"),
    "COEFFICIENTS": (COEFFICIENTS, "kinds of commands whose cost is published"),
    "LAUNCHES": (LAUNCHES, "launches and copies of which a program keeps records"),
}


class Numbers(IntEnum):
    """Numbers with a meaning each."""

    doc: str

    def __new__(cls, value: int, doc: str) -> Numbers:
        self = int.__new__(cls, value)
        self._value_ = value
        self.doc = doc
        return self


class Type(Numbers):
    """What a message is."""

    SUBMIT = 1, "client: a group waits at the gate"
    COMPLETE = 2, "client: the granted group is done"
    RELEASE = 3, "client: the lease that was taken back is no longer used"
    WITHDRAW = 4, "client: it went without a grant (the daemon did not answer)"
    ENTER = 5, "client: it asks a server for something: `units` is its pid, 0 its X server's"
    LEAVE = 6, "client: the server has answered"
    TURNS = (
        7,
        "client: its groups are turns: a grant is a lease, which it gives back with RELEASE, "
        "`frame` saying that it has nothing more to do for now",
    )
    GRANT = 16, "daemon: this group may go"


class Server(Numbers):
    """What a swap asks of a window server, as the daemon wants it done."""

    AWAIT = 1, "wait until the server has answered, with the group still open: it pays for that"
    TELL = 2, "say enter before and leave after it"
    YIELD = 4, "end the group before: the server needs the GPU itself to answer"


class Wanted(Numbers):
    """What is wanted of a turn that others wait for."""

    ITS_END = 1, "to be told when its program has seen that all is done,"
    ITS_MARK = 2, "and before, by the GPU: who waits may go on beside the rest"


class Unfollowed(Numbers):
    """What a context monitor could not follow; a program's page has these added up."""

    NO_GEOMETRY = 1, "geometry, tessellation or mesh shaders, which make vertices"
    NO_FEEDBACK = 2, "transform feedback"
    NO_INDIRECT = 4, "draws whose counts are in a buffer of the GPU"
    NO_LISTS = 8, "display lists and glBegin"
    NO_PROGRAM = 16, "draws without a program, or with one whose source was not seen"
    NO_POSITION = 32, "positions that are computed in a way that is not understood"
    NO_VERTICES = 64, "vertices that were not seen, or cannot be read"
    NO_NAMES = 128, "more objects than are kept"
    NO_ROOM = 256, "more kinds of draws in a group than are told apart"


class Unconfined(Numbers):
    """Why work cannot be confined to a share of the multiprocessors."""

    NO_GREEN = 1, "the driver makes no green contexts, or none here"
    OWN_GREEN = 2, "the program makes green contexts itself"
    OTHER_CONTEXT = 3, "it is in a context that is not its device's primary one"
    NO_ROOM_LEFT = 4, "the program has more streams and devices than are followed"


ENUMS: Final = (Type, Server, Wanted, Unfollowed, Unconfined)

HELLO: Final = Record(
    "hello",
    "First message of a client. Who it is comes from the kernel; the name is only a name.",
    (
        Field("magic", U32),
        Field("version", U32),
        Field("name", TEXT, "of the program", NAME),
        Field("token", TEXT, "of its launch, for which the daemon keeps what was wanted", TOKEN),
        # of the GPU that its work goes to, as far as it can say
        Field("model", TEXT, "its name, as the driver has it", NAME),
        Field("uuid", TEXT, 'its identifier, as "GPU-0a1b…"', UUID),
        Field("pci", TEXT, 'its place on the bus, as "0000:19:00.0"', PCI),
    ),
)

WELCOME: Final = Record(
    "welcome",
    "The answer, with two file descriptors: the daemon's page (read-only) and the client's page.",
    (
        Field("magic", U32),
        Field("version", U32),
        Field("channel", U32),
        Field("reserved", U32),
    ),
)

MESSAGE: Final = Record(
    "message",
    "Any later message.",
    (
        Field("type", U32, "of enum hw_type"),
        Field("seq", U32, "of the group; a grant names the group it is for"),
        Field("signature", U64, "hash over methods and data sizes"),
        Field("submit_ns", U64),
        Field("start_ns", U64),
        Field("finish_ns", U64),
        Field(
            "units",
            U64,
            "data sizes added up; of a turn that is not waited for: which of the page's `asks`",
        ),
        Field("frame", FLAG, "the group ends a frame"),
        Field("passed", U32, "groups that went under a lease since the last message"),
    ),
)

COEFFICIENT: Final = Record(
    "coefficient",
    "What a kind of command costs, in 1/1024 ns: once, for each vertex and for each fragment.",
    (
        Field("kind", U64, "0: this place is empty, or is being written"),
        Field("mesh", U64),
        Field("each", U64),
        Field("vertex", U64),
        Field("fragment", U64),
    ),
    shared=True,
)

DAEMON_PAGE: Final = Record(
    "daemon_page",
    "Written by the daemon alone. The client maps it read-only.",
    (
        Field("magic", U32),
        Field("version", U32),
        Field("heartbeat_ns", U64, "when the daemon last showed that it lives"),
        Field("lease", U32, "not 0: pass without asking; each lease is another number"),
        Field("server", U32, "of enum hw_server; 0: a swap concerns nobody else"),
        Field("split_ns", U64, "groups of more than this are split; 0: never"),
        # for turns
        Field("window_ns", U64, "no more predicted work than this in flight; 0: any"),
        Field("deadline_ns", U64, "of a job, from its first work; 0: none"),
        Field("wanted", U32, "others wait: say when a turn is over; of enum hw_wanted"),
        Field(
            "share",
            U32,
            "thousandths of the multiprocessors that the program may use beside others; 0: all",
        ),
        Field("at_once", FLAG, "a turn may begin with the asking for it"),
        Field("waits", FLAG, "the daemon knows that a turn is wanted: it need not be asked again"),
        Field(
            "polled",
            FLAG,
            "the daemon looks at the client's page all the time: who does not wait for an answer "
            "need not say what can be seen there",
        ),
        Field(
            "tell_after",
            U32,
            "with its so-manieth pause a job is taken to be over: say so if that is wanted; "
            "0: do not",
        ),
        # for pieces
        Field(
            "longest_ns",
            U64,
            "how long a piece may become while no more than a window of its work is in flight, "
            "because the program is slower than the GPU",
        ),
        Field("slice_ns", U64, "the GPU's time slice: no mark follows a longer group; 0: unknown"),
        # for jobs
        Field("rest_ns", U64, "a pause that is longer than this ends a job"),
        # for predictions of OpenGL's groups
        Field("group_cost", U64, "of every group, in 1/1024 ns; 0: no costs are published"),
        Field("coefficient", COEFFICIENT, "by a hash of kind and mesh", COEFFICIENTS),
    ),
    shared=True,
)

METHOD: Final = Record(
    "method",
    "A method of the group submitted last: how often it was used, with how much data.",
    (Field("method", U32), Field("count", U32), Field("size", U64)),
    shared=True,
)

ROW: Final = Record(
    "row",
    "Commands of one kind in the OpenGL group submitted last, added up: features of its cost.",
    (
        Field("kind", U64, "a clear's mask, a method, or a program with the state"),
        Field("mesh", U64, "which vertices it draws"),
        Field("commands", U64, "how many"),
        Field("vertices", U64, "and of methods their data sizes"),
        Field("fragments", U64, "estimated; of clears pixels"),
    ),
    shared=True,
)

JOB: Final = Record(
    "job",
    "A job: from the first work after a rest until the next rest.",
    (
        Field("begun_ns", U64, "when the program wanted the GPU for it"),
        Field("ended_ns", U64, "when it last had seen that all of its work is done"),
        Field("deadline_ns", U64, "as the program said; 0: it said nothing"),
        Field("waited_ns", U32, "for how long it waited for the GPU,"),
        Field("held_ns", U32, "and at the gate; each as far as that goes into 32 bits"),
        Field("groups", U32),
        Field("pauses", U32, "how often all of its work was done"),
        Field("closed", FLAG, "the program said that it is over"),
        Field("reserved", U32),
    ),
    shared=True,
)

LAUNCHED: Final = Record(
    "launched",
    "Launches of one kernel in one shape, or copies, that were measured together.",
    (
        Field("kernel", U64, "which one; of copies the way they go, a letter"),
        Field("items", U64, "threads of all blocks; of copies bytes"),
        Field("buffers", U64, "bytes of the buffers behind the arguments, as far as is known"),
        Field("took_ns", U64, "all of them together"),
        Field("block", U32, "threads of a block; 0: copies"),
        Field("shared", U32, "bytes of shared memory that the launch asks for"),
        Field("works", U32, "how many"),
        Field("share", U32, "thousandths of the multiprocessors that they might use; 0: all"),
    ),
    shared=True,
)

CLIENT_PAGE: Final = Record(
    "client_page",
    "Written by the client, but for `open`. To the daemon it is a hint.",
    (
        Field("magic", U32),
        Field("version", U32),
        Field("busy", FLAG, "something went to the GPU under a lease and may still be there"),
        Field("asks", U32, "turns that were asked for without waiting for the answer"),
        Field("passed", U64, "groups that went under a lease"),
        Field("frames", U64, "frames ended"),
        Field(
            "used_ns",
            U64,
            "GPU time of groups that went under a lease, predicted where not waited for",
        ),
        Field("last_ns", U64, "when the last of them was done"),
        Field("free_groups", U64, "groups that went with no daemon to ask"),
        Field(
            "implicit",
            U64,
            "submissions by the driver that the gate did not see coming, and work that went though "
            "the window was full of work that could not be done",
        ),
        Field("methods", U64, "entries of the matrix"),
        Field("matrix", METHOD, "of the group submitted last", METHODS),
        # for turns
        Field("paused", U64, "how often all of its work was done, and it had seen that"),
        Field("unmarked", FLAG, "work went that no mark stands behind yet"),
        Field("unknown", U32, "functions for GPU work that it found and that are not hooked"),
        # What is said above is read before the marks are.
        Field("issued", U32, "marks sent after work, by stream", LANES),
        Field("done", U32, "marks that the GPU has written", LANES),
        # for pieces, which wait on the GPU
        Field(
            "gated",
            FLAG,
            "this turn is one of pieces: work may wait behind them, and the turn is still wanted "
            "when the gate has closed",
        ),
        Field(
            "open",
            U32,
            "not 0: pieces may begin. Written by the daemon with the lease, and closed under one "
            "at times; by the client if the daemon is dead",
        ),
        Field(
            "piece_ns",
            U64,
            "what may be in flight of the piece to which work was added last: a window, or its "
            "longest group",
        ),
        Field("given", U32, "pieces that each stream got so far,", LANES),
        Field("ended", U32, "those to which nothing more is added,", LANES),
        Field("opened", U32, "those that the GPU has begun,", LANES),
        Field("closed", U32, "and those that it has done", LANES),
        Field("waiting", U32, "threads that wait for the GPU: the program lives, but says nothing"),
        Field(
            "end_marks", U32, "marks behind the last work of a job, or jobs that ended without one,"
        ),
        Field("end_marked", U32, "and the last of these marks that the GPU has written"),
        # for jobs
        Field("jobs", U32, "how many have begun"),
        Field("job", JOB, "the last of them: job n is in place n % JOBS", JOBS),
        Field(
            "pauses",
            U32,
            "pauses so far by how long they took: two places for each doubling, from 1 us on",
            PAUSES,
        ),
        # for predictions of OpenGL's groups
        Field("rows", U32, "entries of the next field; of who has no context monitor 0"),
        Field("unfollowed", U32, "what the context monitor could not follow, so far"),
        Field("row", ROW, "of the group submitted last", ROWS),
        # for predictions of launches and copies
        Field("launched", LAUNCHED, "those measured last: n is in place n % LAUNCHES", LAUNCHES),
        Field("launches", U32, "measured so far; of who is not run with --predict 0"),
        Field("reserved", U32),
        # for shares
        Field("share", U32, "thousandths of the multiprocessors that its work is confined to now"),
        Field("confined", U32, "groups that went under a share so far,"),
        Field("whole", U32, "groups that had all of them though they were to have fewer,"),
        Field("unconfined", U32, "and why the last that could not be confined could not"),
    ),
    shared=True,
)

RECORDS: Final = (
    HELLO, WELCOME, MESSAGE, COEFFICIENT, DAEMON_PAGE, METHOD, ROW, JOB, LAUNCHED,
    CLIENT_PAGE,
)  # fmt: skip


def version(records: Sequence[Record]) -> int:
    """Of everything that both sides must agree on; what is said about a field is not in it."""
    lines = [f"meaning {MEANING}"]
    lines += [f"{name} {value}" for name, (value, _) in CONSTANTS.items()]
    lines += [f"{enum.__name__}.{number.name} {number}" for enum in ENUMS for number in enum]
    for record in records:
        for field in record.fields:
            kind = field.type.name if isinstance(field.type, Record) else field.type
            place = f"{record.at(field.name)} {kind} {field.count}"
            lines.append(f"{record.name}.{field.name} {place}")
    return int.from_bytes(hashlib.sha256("\n".join(lines).encode()).digest()[:4], "little")


VERSION: Final = version(RECORDS)
"""Another description is another version: nobody can forget to count up. A hello has the magic and
the version at the same place in each."""

for _page in (DAEMON_PAGE, CLIENT_PAGE):
    if _page.size > PAGE:
        raise ValueError(f"{_page.name} has {_page.size} bytes, more than a page")
