"""The placer's policy: which GPU of which node takes a claim. Pure: facts in, decisions out.

The same books and rules serve the placer of a cluster and the study in virtual time. A claim goes
to the fullest GPU that has room and on which the engine proves all deadlines; a claim without a
reserve goes where the fewest of these are. Where nothing fits, a claim may move preemptible, less
important claims away; else the claim waits, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from headway.engine.admission import percent
from headway.fleet.books import LONGEST_NS, Books, Gpu, Place
from headway.fleet.claims import UNITS, Claim
from headway.fleet.proofs import fits, objection, objection_alone
from headway.fleet.waiting import Waiting, WaitingClaims

# -- decisions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """A preemptible claim made room. `to`: None if the claim waits now."""

    ticket: str
    origin: Place
    to: Place | None


@dataclass(frozen=True, slots=True)
class Placed:
    """The claim has a GPU."""

    ticket: str
    place: Place
    moved: tuple[Moved, ...] = ()


@dataclass(frozen=True, slots=True)
class Waits:
    """No GPU can take the claim now."""

    ticket: str
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No GPU of this cluster can ever take the claim."""

    ticket: str
    why: str


Decision = Placed | Waits | Refused


# -- the policy ------------------------------------------------------------------------------------


class Placement:
    """Books of a cluster, and the rules by which claims get GPUs."""

    def __init__(self, *, proves: bool = True, preempts: bool = True) -> None:
        """`proves` and `preempts` can be switched off, to see what they are good for."""
        self.books = Books()
        self.waiting = WaitingClaims()
        self._proves, self._preempts = proves, preempts
        self._count = 0

    # -- nodes -------------------------------------------------------------------------------

    def node_came(
        self, node: str, gpus: Sequence[Mapping[str, str]], longest_ns: int = LONGEST_NS
    ) -> list[Placed]:
        """A node with GPUs of these labels joined, or came back; who gets a place there."""
        for number, labels in enumerate(gpus):
            place = Place(node, number)
            if place not in self.books.gpus:
                self.books.add(Gpu(place, labels, longest_ns))
        return self.settle()

    def node_gone(self, node: str) -> list[Decision]:
        """A node is dead: its claims are given back and look for another place, the most important
        first."""
        lost: dict[str, Claim] = {}
        for gpu in [gpu for place, gpu in self.books.gpus.items() if place.node == node]:
            lost |= self.books.remove(gpu)
        decisions = self._again(lost, f"node {node} is gone")
        return [*decisions, *self.settle()]

    def gpu_down(self, place: Place, problem: str) -> None:
        """The daemon of a GPU does not answer: no new claims; those that are there go on."""
        gpu = self.books.gpus.get(place)
        if gpu is not None and gpu.problem != problem:
            self.books.trouble(gpu, problem)

    def gpu_up(self, place: Place) -> list[Placed]:
        gpu = self.books.gpus.get(place)
        if gpu is None or not gpu.problem:
            return []
        self.books.trouble(gpu, "")
        return self.settle()

    # -- claims ------------------------------------------------------------------------------

    def submit(self, ticket: str, claim: Claim) -> Decision:
        """Find a GPU for a claim, or keep it waiting; the same ticket again asks again."""
        if ticket in self.books.where:
            return Placed(ticket, self.books.where[ticket].place)
        why = self.never(claim)
        if why:
            self.waiting.take(ticket)
            return Refused(ticket, why)
        if ticket not in self.waiting:
            self._count += 1
            self.waiting[ticket] = Waiting(claim, self._count)
        decision = self._try(ticket)
        if isinstance(decision, Placed) and decision.moved:
            self.settle()  # who moved may have left more room than was needed
        return decision

    def release(self, ticket: str) -> list[Placed]:
        """A claim is over; who gets what it had."""
        if self.waiting.take(ticket) or ticket not in self.books.where:
            return []
        self.books.free(ticket)
        return self.settle()

    def withdraw(self, ticket: str) -> None:
        """The claim's task runs without what was claimed: nothing is promised to it, or wanted."""
        if ticket in self.books.where:
            self.books.free(ticket)
        self.waiting.pop(ticket, None)

    def found(self, ticket: str, claim: Claim, place: Place) -> bool:
        """The task of a claim runs there, whatever was decided. False: there is no such GPU."""
        gpu = self.books.gpus.get(place)
        if gpu is None:
            return False
        self.waiting.take(ticket)
        if self.books.where.get(ticket) is not gpu:
            if ticket in self.books.where:
                self.books.free(ticket)
            self.books.hold(ticket, claim, gpu)
        return True

    def settle(self) -> list[Placed]:
        """Try all that wait, the most important first and then the oldest. What is alike to one
        that did not fit is not tried."""
        placed: list[Placed] = []
        while found := self._settle_once():
            placed += found
            if not any(decision.moved for decision in found):
                break
        return placed

    def _settle_once(self) -> list[Placed]:
        decisions = (self._try(ticket) for ticket in self.waiting.candidates())
        return [decision for decision in decisions if isinstance(decision, Placed)]

    # -- rules -------------------------------------------------------------------------------

    def never(self, claim: Claim) -> str:
        """Why no GPU of this cluster can ever take a claim; nothing if one may, one day."""
        kinds = self.books.kinds()
        for key, value in claim.labels if kinds else ():
            known = sorted({kind[key] for kind in kinds if key in kind})
            if not known:
                names = ", ".join(sorted({key for kind in kinds for key in kind}))
                return f"labels: found {key!r}, expected a label that GPUs here have: {names}"
            if not any(claim.suits(kind) for kind in kinds):
                return f"labels: found {key}={value}, expected one of {', '.join(known)}"
        if self._proves and claim.deadline_ns is not None:
            return objection_alone(claim, 0)
        return ""

    def _try(self, ticket: str) -> Decision:
        waiting = self.waiting[ticket]
        claim = waiting.claim
        gpu = next((gpu for gpu in self._candidates(claim) if self._fits(gpu, claim)), None)
        if gpu is not None:
            return self._place(ticket, claim, gpu)
        if self._preempts and (found := self._by_moving(claim)) is not None:
            gpu, victims = found
            origin, lost = gpu.place, {v: self.books.free(v) for v in victims}
            placed = self._place(ticket, claim, gpu)
            self._again(lost, f"{claim.name}, more important, needed the room")
            moved = [
                Moved(v, origin, self.books.where[v].place if v in self.books.where else None)
                for v in victims
            ]
            return Placed(ticket, placed.place, tuple(moved))
        waiting.problem = self._why(claim)
        return Waits(ticket, waiting.why)

    def _place(self, ticket: str, claim: Claim, gpu: Gpu) -> Placed:
        del self.waiting[ticket]
        self.books.hold(ticket, claim, gpu)
        return Placed(ticket, gpu.place)

    def _again(self, lost: Mapping[str, Claim], why: str) -> list[Decision]:
        """Claims that lost their place look for another one; they move nobody away."""
        for ticket, claim in lost.items():
            self._count += 1
            self.waiting[ticket] = Waiting(claim, self._count, why)
        preempts, decisions = self._preempts, list[Decision]()
        order = sorted(lost, key=lambda t: (-lost[t].effective_level, self.waiting[t].number))
        for ticket in order:
            if ticket in self.waiting:
                self._preempts = preempts and not lost[ticket].preemptible
                decisions.append(self._try(ticket))
        self._preempts = preempts
        return decisions

    def _candidates(self, claim: Claim) -> Iterable[Gpu]:
        if claim.reserve is None:
            return self.books.least_shared_first(claim)
        return self.books.fullest_first(claim)

    def _fits(self, gpu: Gpu, claim: Claim, without: Sequence[str] = ()) -> bool:
        if self._proves:
            return fits(gpu, claim, without)
        return gpu.units - sum(gpu.held[v].units for v in without) + claim.units <= UNITS

    def _by_moving(self, claim: Claim) -> tuple[Gpu, list[str]] | None:
        """The GPU where the least has to move for a claim with a reserve, and what moves."""
        best: tuple[tuple[int, int], Gpu, list[str]] | None = None
        if claim.reserve is None:
            return None
        seen = set[object]()
        for gpu in self.books.suiting(claim):
            key = gpu.shape, tuple(sorted(c.units for c in gpu.held.values() if c.preemptible))
            if key in seen or not gpu.held:
                continue
            seen.add(key)
            victims = self._victims(gpu, claim)
            if victims:
                cost = sum(gpu.held[v].units for v in victims), len(victims)
                if best is None or cost < best[0]:
                    best = cost, gpu, victims
        return None if best is None else best[1:]

    def _victims(self, gpu: Gpu, claim: Claim) -> list[str]:
        """Who would have to leave this GPU; nobody if that would not help either."""
        weaker = [
            ticket
            for ticket, other in gpu.held.items()
            if other.preemptible and other.effective_level < claim.level
        ]
        weaker.sort(key=lambda t: (gpu.held[t].effective_level, -gpu.held[t].units))
        leaving: list[str] = []
        for ticket in weaker:
            leaving.append(ticket)
            if self._fits(gpu, claim, leaving):
                break
        else:
            return []
        for ticket in leaving[:-1]:  # may stay, if those after it are enough
            rest = [other for other in leaving if other != ticket]
            if self._fits(gpu, claim, rest):
                leaving = rest
        return leaving

    # -- words -------------------------------------------------------------------------------

    def _why(self, claim: Claim) -> str:
        """Why nothing fits, of the GPU that is nearest to it."""
        suiting = [gpu for gpu in self.books.gpus.values() if claim.suits(gpu.labels)]
        if not suiting:
            return "no node with such a GPU is there"
        able = [gpu for gpu in suiting if not gpu.problem]
        if not able:
            return f"{suiting[0].place}: {suiting[0].problem}"
        roomy = [gpu for gpu in able if gpu.room >= claim.units]
        if not roomy:
            least = min(gpu.units for gpu in able)
            return (
                f"it asks for {_percent(claim.units)} of a GPU, and {_percent(least)} or more is "
                f"reserved already on each of {len(able)} that suit it"
            )
        nearest = min(roomy, key=lambda gpu: (gpu.units, gpu.place))
        return f"on {nearest.place} {objection(nearest, claim)}"


def _percent(units: int) -> str:
    return percent(Fraction(units, UNITS))
