"""Parties: tasks that stand in the queue together, as those of one process do, or of one user.

Among groups that are as important as each other, one goes first whose party has waited longest:
since its submission, or since a group of the party was last done, whichever is later. So a process
gets no more by opening more connections, nor a user by starting more processes; and where each task
is a process of its own, and asks when it is done, they go by submission, as ever.
"""

from __future__ import annotations


class Party:
    """A process, or a user."""

    __slots__ = ("last_ns", "members", "name", "ready")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members = 0
        self.ready = 0
        """Members with a group in the ready queue."""
        self.last_ns = 0
        """When a group of a member was last done."""

    def __repr__(self) -> str:
        return f"<party {self.name}>"


class Parties:
    """Users and processes that have tasks: the parties among which equals take turns."""

    def __init__(self) -> None:
        self._known: dict[str, Party] = {}

    def join(self, names: tuple[str, ...]) -> tuple[Party, ...]:
        """One more member of each of these, which are one within the other."""
        paths = ["/".join(names[: number + 1]) for number in range(len(names))]
        parties = tuple(self._known.setdefault(path, Party(path)) for path in paths)
        for party in parties:
            party.members += 1
        return parties

    def leave(self, parties: tuple[Party, ...]) -> None:
        """One member less."""
        for party in parties:
            party.members -= 1
            if not party.members:
                del self._known[party.name]
