"""The placer: an actor of Ray that decides which GPU of which node takes a claim.

It asks the nodes' agents, and they the daemons. What a node notes of its claims is the truth; the
placer's books are made of that at its start, and again at each look, so it may be killed whenever.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headway import __version__
from headway.fleet import joining
from headway.fleet.agent import Agent
from headway.fleet.books import Place
from headway.fleet.claims import Claim, ClaimError, read_claim, written
from headway.fleet.facts import NodeFacts, NoteFacts
from headway.fleet.placement import Placement, Refused, Waits

LOOK_S = 0.5
ANSWER_S = 3.0
"""How long an agent may take to answer before its GPUs take no new claims."""
START_S = 30.0
"""The same, for one that has never answered."""
EVICT_S = 2.0
"""Who makes room leaves when the claim's own worker is asked for, or after so long."""
REGISTERED_S = 10.0
"""How long Ray may take to know an actor that a driver has asked for."""
ENDED_S = 120.0
STARTS_S = 20.0
"""How long Ray may take to start a worker before people are told."""
TRIES = 3


@dataclass(eq=False, slots=True)
class Ticket:
    """One claim."""

    claim: Claim
    job: str = ""
    """The driver that made it, as Ray calls it."""
    actor: str = ""
    at: Place | None = None
    """Where a node's note says that the claim is held."""
    fresh_s: float = 0.0
    """When that became so; what was seen before is older."""
    running: bool = False
    pid: int = 0
    plain: bool = False
    created_s: float = 0.0
    """When an actor was made for it."""
    misfit: str = ""
    evict_s: float | None = None
    """When its worker has to leave, to make room."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class Member:
    """One node of the cluster."""

    key: str
    ray_id: str
    agent: Any
    facts: NodeFacts | None = None
    problem: str = ""
    since_s: float = 0.0
    labels: list[dict[str, str]] = field(default_factory=list)


class Placer:
    """Serves drivers that want claims placed, and commands that look."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._ray = joining.ray()
        self._look_s = look_s
        self._placement = Placement()
        self._tickets: dict[str, Ticket] = {}
        self._members: dict[str, Member] = {}
        """By Ray's number of the node."""
        self._strangers: dict[str, str] = {}
        """Nodes that cannot take part, and why."""
        self._ready = asyncio.Event()
        self._ended: dict[str, float] = {}
        """Claims that are over, and since when: what a node said before that counts no more."""
        self._placed = 0
        loop = asyncio.get_event_loop()
        self._watching = loop.create_task(self._repeat(self._look_at_all))
        self._burying = loop.create_task(self._repeat(self._bury))

    # -- what drivers ask --------------------------------------------------------------------

    async def place(
        self, ticket: str, words: dict[str, Any], job: str, *, waits: bool = False
    ) -> dict[str, Any]:
        """Find a GPU for a claim. The answer is `node` and `gpu`, or `refused`, or, unless the
        caller waits, `waits`; each with words. The same ticket asks again."""
        await self._ready.wait()
        try:
            claim = read_claim(words)
        except ClaimError as error:
            return {"refused": str(error)}
        tries = 0
        while waits or tries < TRIES:
            if tries:
                await asyncio.sleep(self._look_s)
            tries += 1
            held = self._tickets.setdefault(ticket, Ticket(claim, job))
            if held.at is None:
                submitted = self._placement.submit(ticket, claim)
                if isinstance(submitted, Refused):
                    del self._tickets[ticket]
                    return {"refused": f"headway claim: {submitted.why}"}
                self._plan_evictions()
            while isinstance(decision := self._decided(ticket), Waits):
                if not waits:
                    return {"waits": decision.why}
                held.changed.clear()
                await held.changed.wait()
                if ticket not in self._tickets:
                    return {"refused": "headway claim: it was withdrawn"}
            assert isinstance(decision, Place)
            if held.at == decision or await self._hold(ticket, held, decision):
                return self._answer(decision)
        return {"waits": "its node changed meanwhile"}

    async def created(self, ticket: str, actor: str) -> None:
        """The driver has asked Ray for the claim's worker: who makes room for it leaves now."""
        held = self._tickets.get(ticket)
        if held is None:
            return
        held.actor, held.created_s = actor, time.monotonic()
        if held.at is not None:
            for other in self._tickets.values():
                if other.evict_s is not None and other.at == held.at:
                    other.evict_s = 0.0
            if actor and (member := self._member(held.at.node)) is not None:
                await self._quietly(member.agent.created.remote(ticket, actor))
        await self._evict()

    async def release(self, ticket: str) -> None:
        """The claim is over."""
        await self._end([ticket])

    async def find(self, name: str) -> list[str]:
        """The tickets of claims with this name."""
        return [ticket for ticket, held in self._tickets.items() if held.claim.name == name]

    async def ready(self) -> int:
        """Once the books are made: how many nodes there are."""
        await self._ready.wait()
        return len(self._members)

    # -- what commands ask -------------------------------------------------------------------

    async def view(self) -> dict[str, Any]:
        """Everything that `headway fleet status` shows."""
        await self._ready.wait()
        nodes = []
        for member in sorted(self._members.values(), key=lambda m: m.key):
            facts: Any = {} if member.facts is None else msgspec.to_builtins(member.facts)
            for gpu in facts.get("gpus", ()):
                books = self._placement.books.gpus.get(Place(member.key, gpu["index"]))
                gpu["reserved"] = 0 if books is None else books.units / 10_000
                gpu["claims"] = 0 if books is None else len(books.held)
            facts.pop("notes", None)
            told = {"node": member.key, "ray": member.ray_id, "problem": member.problem}
            nodes.append({**facts, **told})
        claims = [self._describe(ticket, held) for ticket, held in self._tickets.items()]
        return {
            "schema": 1,
            "version": __version__,
            "placer": os.getpid(),
            "nodes": nodes,
            "strangers": [{"node": n, "problem": why} for n, why in self._strangers.items()],
            "claims": sorted(claims, key=lambda c: (str(c["node"]), str(c["name"]))),
            "placed": self._placed,
        }

    def _describe(self, ticket: str, held: Ticket) -> dict[str, Any]:
        gpu = self._placement.books.where.get(ticket)
        waiting = self._placement.waiting.get(ticket)
        why = held.misfit or ("" if waiting is None else waiting.why)
        if held.misfit:
            state = "behind"
        elif held.evict_s is not None:
            state = "moving"
        elif held.at is None:
            state = "pending" if gpu is None else "restarting"
        else:
            state = "running" if held.running else "placed"
            waited_s = time.monotonic() - held.fresh_s
            if not held.running and waited_s > STARTS_S:
                why = f"for {waited_s:.0f} s Ray has not started its worker; ray status may say why"
        place = held.at or (None if gpu is None else gpu.place)
        return {
            "ticket": ticket,
            "name": held.claim.name,
            "claim": held.claim.describe(),
            "node": None if place is None else place.node,
            "gpu": None if place is None else place.gpu,
            "state": state,
            "why": why,
            "actor": held.actor,
            "plain": held.plain,
        }

    # -- holding and ending ------------------------------------------------------------------

    def _decided(self, ticket: str) -> Place | Waits:
        held, gpu = self._tickets[ticket], self._placement.books.where.get(ticket)
        if held.at is not None:
            return held.at
        if gpu is not None:
            return gpu.place
        waiting = self._placement.waiting.get(ticket)
        return Waits(ticket, "" if waiting is None else waiting.why)

    def _answer(self, place: Place) -> dict[str, Any]:
        member = self._member(place.node)
        assert member is not None
        return {"node": member.ray_id, "gpu": place.gpu, "place": str(place)}

    def _member(self, key: str) -> Member | None:
        return next((m for m in self._members.values() if m.key == key), None)

    async def _hold(self, ticket: str, held: Ticket, place: Place) -> bool:
        """Have the node note the claim; False if it cannot, and the books know why."""
        member = self._member(place.node)
        gpu = self._placement.books.gpus.get(place)
        why = "its node is gone"
        if member is not None and gpu is not None:
            known = [*gpu.held, *(t for t, o in self._tickets.items() if o.evict_s is not None)]
            words = written(held.claim)
            ref = member.agent.hold.remote(ticket, words, place.gpu, held.job, known)
            answer = await self._quietly(ref)
            why = "its node does not answer" if answer is None else answer
        if why:
            self._placement.release(ticket)
            if member is not None:
                await self._look(member)
            self._wake()
            return False
        held.at, held.fresh_s = place, time.monotonic()
        self._placed += 1
        return True

    async def _end(self, tickets: list[str]) -> None:
        """Claims are over: their room is free, and their nodes forget them."""
        by_node: dict[str, list[str]] = {}
        for ticket in tickets:
            held = self._tickets.pop(ticket, None)
            self._ended[ticket] = time.monotonic()
            if held is None:
                continue
            self._placement.release(ticket)
            if held.at is not None:
                by_node.setdefault(held.at.node, []).append(ticket)
            held.changed.set()
        for key, gone in by_node.items():
            if (member := self._member(key)) is not None:
                await self._quietly(member.agent.drop.remote(gone))
        self._plan_evictions()
        self._wake()

    def _wake(self) -> None:
        """Those who wait look again."""
        for held in self._tickets.values():
            if held.at is None:
                held.changed.set()

    def _forget_ended(self) -> None:
        before_s = time.monotonic() - ENDED_S
        self._ended = {t: s for t, s in self._ended.items() if s > before_s}

    def _plan_evictions(self) -> None:
        """Who runs where the books do not have the claim any more has to leave."""
        for ticket, held in self._tickets.items():
            if held.at is None or held.misfit or held.evict_s is not None:
                continue
            gpu = self._placement.books.where.get(ticket)
            if gpu is None or gpu.place != held.at:
                held.evict_s = time.monotonic() + EVICT_S

    async def _evict(self) -> None:
        now_s = time.monotonic()
        for ticket, held in list(self._tickets.items()):
            if held.evict_s is None or held.evict_s > now_s or held.at is None:
                continue
            member = self._member(held.at.node)
            held.at, held.evict_s, held.running = None, None, False
            held.fresh_s = now_s
            if member is not None:
                await self._quietly(member.agent.evict.remote([ticket]))

    async def _quietly(self, ref: Any, timeout_s: float = ANSWER_S) -> Any:
        """What an agent answers; None if it does not."""
        try:
            return await asyncio.wait_for(ref, timeout_s)
        except (TimeoutError, self._ray.exceptions.RayError):
            return None

    # -- looking -----------------------------------------------------------------------------

    async def _repeat(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await look()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # whatever it is: claims are looked after at the next look
                print(f"headway placer: {type(error).__name__}: {error}", flush=True)
            await asyncio.sleep(self._look_s)

    async def _alive(self) -> dict[str, dict[str, Any]]:
        known = await asyncio.to_thread(self._ray.nodes)
        return {n["NodeID"]: n for n in known if n["Alive"]}

    async def _bury(self) -> None:
        """Nodes that Ray says are dead; nobody waits for the answers of others meanwhile."""
        alive = await self._alive()
        for ray_id in [r for r in self._members if r not in alive]:
            self._gone(self._members.pop(ray_id))

    async def _look_at_all(self) -> None:
        alive = await self._alive()
        self._strangers = {}
        for ray_id, told in alive.items():
            self._meet(ray_id, told)
        await asyncio.gather(*(self._look(member) for member in list(self._members.values())))
        await self._end(await asyncio.to_thread(self._over))
        self._forget_ended()
        self._plan_evictions()
        await self._evict()
        self._wake()
        self._ready.set()

    def _meet(self, ray_id: str, told: dict[str, Any]) -> None:
        labels = told.get("Labels", {})
        name = labels.get(joining.LABEL_NODE, told.get("NodeManagerHostname", ray_id[:6]))
        version = labels.get(joining.LABEL_VERSION)
        if version != __version__:
            runs = "does not run Headway" if version is None else f"runs Headway {version}"
            expected = f"expected {__version__} by headway fleet up there"
            self._strangers[name] = f"node {name} {runs}, {expected}; it takes no claims"
            return
        if ray_id in self._members:
            return
        if any(member.key == name for member in self._members.values()):
            name = f"{name}-{ray_id[:6]}"
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        agent = (
            self._ray.remote(Agent)
            .options(
                name=f"headway-node-{ray_id}",
                namespace=joining.NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                num_cpus=0,
                max_concurrency=8,
                scheduling_strategy=strategy(ray_id, soft=False),
                runtime_env={"headway": None},
            )
            .remote()
        )
        self._members[ray_id] = Member(name, ray_id, agent, since_s=time.monotonic())

    def _gone(self, member: Member) -> None:
        """A node is dead: its claims look for another place, and Ray starts their actors again."""
        for held in self._tickets.values():
            if held.at is not None and held.at.node == member.key:
                held.at, held.running, held.evict_s = None, False, None
                held.fresh_s = time.monotonic()
        self._placement.node_gone(member.key)
        self._wake()

    async def _look(self, member: Member) -> None:
        began_s = time.monotonic()
        is_new = member.facts is None
        facts: NodeFacts | None = await self._quietly(
            member.agent.look.remote(), START_S if is_new else ANSWER_S
        )
        if self._members.get(member.ray_id) is not member:
            return  # it is dead
        if facts is None:
            member.problem = f"the agent of node {member.key} does not answer"
            for gpu in [] if member.facts is None else member.facts.gpus:
                self._placement.gpu_down(Place(member.key, gpu.index), member.problem)
            return
        if is_new:
            member.labels = await self._quietly(member.agent.labels.remote()) or []
            if len(member.labels) != len(facts.gpus):
                return
            longest_ns = max((gpu.longest_ns for gpu in facts.gpus), default=0)
            self._placement.node_came(member.key, member.labels, longest_ns)
        member.facts, member.problem = facts, ""
        for gpu in facts.gpus:
            place = Place(member.key, gpu.index)
            if gpu.problem:
                self._placement.gpu_down(place, gpu.problem)
            else:
                self._placement.gpu_up(place)
        self._take_up(member, facts, began_s)

    def _take_up(self, member: Member, facts: NodeFacts, began_s: float) -> None:
        """Make the books say what the node's notes say."""
        seen = set()
        for note in facts.notes:
            seen.add(note.ticket)
            self._found(member, note, began_s)
        for ticket, held in list(self._tickets.items()):
            if held.at is None or held.at.node != member.key or ticket in seen:
                continue
            if held.fresh_s >= began_s:
                continue
            if held.plain or not (held.actor or held.job):
                del self._tickets[ticket]
                self._placement.release(ticket)
            else:  # its worker is being started again, somewhere
                held.at, held.running, held.misfit = None, False, ""

    def _found(self, member: Member, note: NoteFacts, began_s: float) -> None:
        if note.ticket in self._ended:
            if self._ended[note.ticket] < began_s:  # its node has not heard of the end
                member.agent.drop.remote([note.ticket])
            return
        held = self._tickets.get(note.ticket)
        if held is None:
            claim = read_claim(note.claim)
            held = self._tickets[note.ticket] = Ticket(claim, note.job, plain=note.plain)
        if held.fresh_s >= began_s or held.evict_s is not None:
            return
        held.actor, held.job = held.actor or note.actor, held.job or note.job
        held.running, held.misfit, held.pid = note.running, note.misfit, note.pid
        place = Place(member.key, note.gpu)
        if held.at not in (None, place) and not note.running:
            return  # what another node still has of it
        held.at = place
        if note.misfit:  # its node gives it the reserve as soon as there is room
            self._placement.withdraw(note.ticket)
        else:
            self._placement.found(note.ticket, held.claim, place)
        if held.actor and not note.actor:
            member.agent.created.remote(note.ticket, held.actor)

    def _over(self) -> list[str]:
        """Claims whose actor or driver is gone for good, by Ray's word."""
        from ray._private import state

        now_s = time.monotonic()
        told_of = state.actors()
        actors = {number: told["State"] for number, told in told_of.items()}
        # An actor that Ray started again while no placer was there to say whose claim it has.
        by_process = {
            (told["Address"]["NodeID"], told["Pid"]): number
            for number, told in told_of.items()
            if told["State"] == "ALIVE"
        }
        for held in self._tickets.values():
            if held.at is not None and held.running and not (held.actor or held.plain):
                member = self._member(held.at.node)
                if member is not None:
                    held.actor = by_process.get((member.ray_id, held.pid), "")
        dead = {job["JobID"] for job in state.jobs() if job["IsDead"]}
        found = []
        for ticket, held in list(self._tickets.items()):
            if held.plain:
                continue
            if held.actor:
                told = actors.get(held.actor)
                if told == "DEAD" or (told is None and now_s - held.created_s > REGISTERED_S):
                    found.append(ticket)
            elif held.job in dead:
                found.append(ticket)
        return found
