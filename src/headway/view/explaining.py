"""What `headway explain` says: sentences for the facts that the daemon sends."""

from __future__ import annotations

from typing import Any

from headway.engine.model import BACKGROUND_LEVEL
from headway.engine.units import NS_PER, format_ns
from headway.view.advice import about_mps

Facts = dict[str, Any]
NAMED_CAUSES = 3
UNCONFINED = {
    1: "the driver makes no green contexts, or none here",
    2: "the program makes green contexts itself",
    3: "it is in a context that is not its device's primary one",
    4: "the program has more streams and devices than are followed",
}
"""Why work is not confined to a share, as the interposer says (`Unconfined`)."""
SMALL = 0.005
"""Parts below this are not worth words."""


def sentences(facts: Facts) -> list[str]:
    """Now, the last seconds, and what else is to be known."""
    lines = [_now(facts), _lately(facts)]
    if facts.get("gpu_in_jobs") is not None:
        lines.append(_jobs(facts))
    if facts.get("share_told", 1000) < 1000:
        lines.append(_share(facts))
    if advice := about_mps(facts):
        lines.append(f"Note: {advice}.")
    if facts["note"]:
        lines.append(f"Note: {facts['note']}.")
    if facts["expected"] is not None and facts["expected"]["cost_ns"]:
        lines.append(_expected(facts["expected"]))
    if facts.get("predictions") is not None:
        lines.append(_predictions(facts["predictions"]))
    return lines


def _predictions(found: Facts) -> str:
    """How good the predictions of the task's costs are, and what they leave out."""
    text = (
        f"Predictions (cost model {found['model']}): half of its last {found['groups']} groups were"
        f" within {percent(found['median'])} of them, the mean error was {percent(found['mean'])},"
        f" and {percent(found['over_bound'])} took longer than the bound."
    )
    if found["unfollowed"]:
        text += f" What is not seen: {'; '.join(found['unfollowed'])}."
    return text


def _share(facts: Facts) -> str:
    """Which part of the multiprocessors it may use beside others, and whether it keeps to that."""
    told, kept = facts["share_told"] / 1000, facts["share_kept"] / 1000
    given = f"Beside others it may use {percent(told)} of the multiprocessors"
    why = UNCONFINED.get(facts.get("unconfined", 0), "it cannot be while it runs")
    if not kept:
        return f"{given}; its work is not confined, for {why}: it is gated in time."
    if kept > told + SMALL:
        held = f"its work still has {percent(kept)}, or the GPU has no smaller part"
    elif told - kept > SMALL:
        held = f"and has {percent(kept)}, which is as near as the GPU's parts come"
    else:
        held = "and keeps to that while it runs"
    if not facts.get("share_whole"):
        return f"{given}, {held}."
    reason = f" ({why})" if facts.get("unconfined") else ""
    return f"{given}, {held}; {facts['share_whole']} of its groups had the whole GPU{reason}."


def _jobs(facts: Facts) -> str:
    """How busy the GPU is in its jobs, and whether others may be there as well."""
    waits = f"Its jobs wait for the GPU for {percent(facts['gpu_in_jobs'])} of their time"
    if not facts["corun"]:
        return f"{waits}; it has the GPU for itself meanwhile."
    if facts["corun"] >= 1:
        return f"{waits}; less important programs may run beside it."
    part = percent(facts["corun"])
    return f"{waits}; less important programs may run beside it for {part} of that."


def _expected(expected: Facts) -> str:
    """What the group or turn that waits will cost, by the task's cost model."""
    cost, bound = rough(expected["cost_ns"]), rough(expected["bound_ns"])
    return f"The group is expected to take {cost}, at most {bound} ({expected['model']})."


def rough(duration_ns: int) -> str:
    """A duration with three digits, which is what a person reads."""
    for unit in ("s", "ms", "us"):
        if duration_ns >= NS_PER[unit]:
            value = duration_ns / NS_PER[unit]
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{duration_ns} ns" if duration_ns > 0 else "0"


def percent(part: float) -> str:
    return "under 1 %" if 0 < part < SMALL else f"{part:.0%}".replace("%", " %")


# -- now -----------------------------------------------------------------------------------------


def _now(facts: Facts) -> str:
    place = f", on GPU {facts['gpu']}" if facts.get("gpu") else ""
    who = f"{facts['task']} ({_level(facts)}{place})"
    if facts["why"] is not None:
        return f"{who} has waited {rough(facts['waiting_ns'])}: {_why(facts, facts['why'])}."
    state = {
        "leased": "does not wait: it has the GPU until somebody wants it who may go first (a lease)"
        ", and passes without asking",
        "running": "does not wait: it is on the GPU now",
    }.get(facts["state"], "does not wait: it wants nothing of the GPU now")
    return f"{who} {state}. {_could(facts)}"


def _level(facts: Facts) -> str:
    if facts["background"]:
        own = "Background, the lowest priority"
        return own if facts["effective"] == facts["base"] else f"{own}, raised for a client"
    if facts["effective"] != facts["base"]:
        return f"priority {facts['effective']} for a client, its own is {facts['base']}"
    return f"priority {facts['effective']}"


def _why(facts: Facts, why: Facts) -> str:
    kind = why["kind"]
    if kind == "budget":
        return _out_of_budget(facts, why)
    text = {"own": _behind_itself, "holdoff": _held_off, "policy": _policy}.get(kind, _holder)(
        facts, why
    )
    if why["ahead"]:
        others = "1 other goes" if why["ahead"] == 1 else f"{why['ahead']} others go"
        text += f"; {others} before it"
    return text


def _out_of_budget(facts: Facts, why: Facts) -> str:
    reserve = facts["reserve"]
    if reserve is None:
        return "its budget is used up"
    whose = "the budget" if reserve["members"] > 1 or reserve["background"] else "its budget"
    if reserve["background"]:
        whose += " of all Background programs together,"
    elif reserve["members"] > 1:
        whose += f" of its pool {reserve['name']} ({reserve['members']} members),"
    else:
        whose += ","
    text = f"{whose} {_numbers(reserve)}, "
    if reserve["budget_ns"] < 0:
        text += f"is used up, with {rough(-reserve['budget_ns'])} of debt to be paid first"
    elif reserve["kind"] == "ae" and reserve["budget_ns"] > 0:
        left, cost = rough(reserve["budget_ns"]), rough(reserve["predicted_ns"] or 0)
        text += f"has {left} left, and the group is predicted to take {cost}"
    else:
        text += "is used up"
    if why["in_ns"] is not None:
        text += f"; it may go {_soon(why['in_ns'])}"
    return text


def _numbers(reserve: Facts) -> str:
    return f"{format_ns(reserve['capacity_ns'])} every {format_ns(reserve['period_ns'])}"


def _soon(in_ns: int) -> str:
    return f"in {rough(in_ns)}" if in_ns > 0 else "at any moment"


def _holder(facts: Facts, why: Facts) -> str:
    text = f"{_named(why)} is on the GPU"
    if why["kind"] == "gpu":
        text = f"{_named(why)} has been on the GPU for {rough(why['for_ns'])}"
    elif why["revoked"]:
        text += ", finishing what it began under a lease that was taken back"
    elif why["busy"]:
        text += " under a lease that it goes on using"
    else:
        text = f"{_named(why)} used the GPU just now and keeps its lease for a moment (hold-off)"
    if why["share"] is not None:
        text += f", and had it for {percent(why['share'])} of the last {rough(facts['span_ns'])}"
    if why["compared"] > 0:
        return f"{text}; it is more important"
    equal = "it is as important and came first" if why["compared"] == 0 else "it is less important"
    return f"{text}; {equal}, but what runs is not interrupted"


def _behind_itself(facts: Facts, why: Facts) -> str:
    return "its own group before this one is still on the GPU"


def _held_off(facts: Facts, why: Facts) -> str:
    text = f"the GPU is idle, but kept for a moment for {_named(why)}, which is more important and"
    return f"{text} used it last (hold-off); it may go {_soon(why['in_ns'])}"


def _policy(facts: Facts, why: Facts) -> str:
    return f"the GPU is idle, and its policy {facts['policy']} does not let it go yet"


def _named(why: Facts) -> str:
    known = why["priority"] is not None
    return f"{why['task']} ({_priority(why['priority'])})" if known else str(why["task"])


def _priority(level: int) -> str:
    return "Background" if level == BACKGROUND_LEVEL else f"priority {level}"


def _could(facts: Facts) -> str:
    """What it would wait for if it wanted the GPU."""
    behind = [f"{entry['task']} ({_priority(entry['priority'])})" for entry in facts["above"]]
    more = facts["above_count"] - len(behind)
    if more > 0:
        behind.append(f"{more} more that are more important")
    if facts["equal_count"]:
        count = facts["equal_count"]
        behind.append("1 program of the same priority" if count == 1 else f"{count} of its own")
    text = f"It could wait for {_listed(behind)}" if behind else "Nobody goes before it"
    reserve = facts["reserve"]
    if reserve is not None:
        left = rough(max(reserve["budget_ns"], 0))
        text += f"; {left} are left of its budget, {_numbers(reserve)}"
        if reserve["background"]:
            text += " for all Background programs together"
    return text + "."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# -- the last seconds ----------------------------------------------------------------------------


def _lately(facts: Facts) -> str:
    span = rough(facts["span_ns"])
    used = f"it had {percent(facts['share'])} of the GPU"
    if not facts["waited_ns"]:
        return f"In the last {span} it never waited; {used}."
    waited = rough(facts["waited_ns"])
    text = f"In the last {span} it waited {waited} in all"
    if facts["wait_p50_ns"] is not None:
        half, most = (_no_longer(facts[f"wait_{key}_ns"]) for key in ("p50", "p99"))
        longest = rough(facts["wait_max_ns"])
        text += f" (half of its groups {half}, 99 % {most}, the longest {longest})"
    causes = facts["causes"]
    parts = [(cause, cause["ns"] / facts["waited_ns"]) for cause in causes]
    named = [f"{percent(part)} {_cause(cause)}" for cause, part in parts[:NAMED_CAUSES]]
    rest = sum(part for _, part in parts[NAMED_CAUSES:])
    if rest >= SMALL:
        named.append(f"{percent(rest)} for something else")
    return f"{text}: {_listed(named)}; {used}."


def _no_longer(ns: int) -> str:
    return f"at most {rough(ns)}" if ns else "not at all"


def _cause(cause: Facts) -> str:
    name = _named(cause)
    return {
        "gpu": f"for {name} on the GPU",
        "holdoff": f"while the GPU was kept for {name} (hold-off)",
        "budget": "for its budget",
        "own": "for its own group before",
        "free": "though the GPU was idle (its policy)",
    }.get(cause["kind"], "for others in quick succession")
