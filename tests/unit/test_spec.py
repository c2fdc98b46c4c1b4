"""Spec files: two forms that mean the same, and mistakes that are all found where they stand."""

import json
import tomllib
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.reading import BadInput, Path, locate
from headway.engine.reserves import ReserveSpec
from headway.engine.settings import ReserveOptions
from headway.engine.spec import Entry, Spec, is_line_form, parse_spec
from headway.sim.outcome import simulate
from headway.sim.scenario import parse_scenario, parse_variants, read_scenario

US = 1_000


def facts(spec: Spec) -> list[tuple[str, str, str, ReserveOptions]]:
    """What the entries say, in a form that can be compared."""
    return [(e.pattern, e.policy, str(e.priority), e.reserve) for e in spec.entries]


def problems(text: str) -> list[tuple[int | None, str, str]]:
    """(line, key, found) of every mistake."""
    with pytest.raises(BadInput) as caught:
        parse_spec(text, "the.spec")
    return [(p.line, p.key, p.found) for p in caught.value.problems]


def matched(spec: Spec, name: str) -> Entry:
    entry = spec.match(name)
    assert entry is not None
    return entry


# -- both forms ------------------------------------------------------------------------------


def test_the_papers_line_is_read() -> None:
    spec = parse_spec("mplayer:prt:pe:5:10000:40000\n")
    reserve = ReserveOptions(ReserveSpec("pe", 10_000 * US, 40_000 * US))
    assert facts(spec) == [("mplayer", "prt", "5", reserve)]


def test_the_same_in_toml() -> None:
    spec = parse_spec("""
[[task]]
name = "mplayer"
policy = "prt"
priority = 5
reserve = { policy = "pe", capacity = "10ms", period = "40ms" }
""")
    assert facts(spec) == facts(parse_spec("mplayer:prt:pe:5:10000:40000"))


def test_lines_may_be_empty_or_commented_and_fields_spaced_or_in_capitals() -> None:
    spec = parse_spec("""
# name:sched:resv:prio:C:T
   # indented

  game : HT : AE : 9 : 5000 : 10000   # the one that matters
\t
X:PRT:-:RM:-:-
""")
    reserve = ReserveOptions(ReserveSpec("ae", 5_000 * US, 10_000 * US))
    assert facts(spec) == [("game", "ht", "9", reserve), ("X", "prt", "rm", ReserveOptions())]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a:-:-:-:-:-", ("a", "prt", "0", ReserveOptions())),
        ("a:::::", ("a", "prt", "0", ReserveOptions())),
        ("a:none:none:none:none:none", ("a", "prt", "0", ReserveOptions())),
        ("a:ht:-:*:-:-", ("a", "ht", "*", ReserveOptions())),
        ("a:ht:-:edf@3:0:0", ("a", "ht", "edf@3", ReserveOptions())),
        ("a:fifo:background:-7:-:-", ("a", "fifo", "-7", ReserveOptions(background=True))),
        ("*:prt:pe:*:1:1", ("*", "prt", "*", ReserveOptions(ReserveSpec("pe", US, US)))),
    ],
)
def test_a_field_may_be_left_out(line: str, expected: tuple[Any, ...]) -> None:
    assert facts(parse_spec(line)) == [expected]


NAMES = st.from_regex(r"[A-Za-z*?][A-Za-z0-9_.*? -]{0,8}[A-Za-z0-9*]", fullmatch=True)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """One task of a spec, in microseconds."""
    period = draw(st.integers(1, 10**9))
    return {
        "name": draw(NAMES),
        "policy": draw(st.sampled_from(("prt", "ht", "fifo", "germ", None))),
        "priority": draw(
            st.none()
            | st.integers(-1_000_000, 1_000_000)
            | st.sampled_from(("*", "rm", "edf", "*@4", "rm@-2"))
        ),
        "kind": draw(st.sampled_from(("pe", "ae", "background", None))),
        "C": draw(st.integers(1, period)),
        "T": period,
    }


def as_line(entry: dict[str, Any], *, none: str) -> str:
    numbers = entry["kind"] in ("pe", "ae")
    fields = [
        entry["name"],
        entry["policy"],
        entry["kind"],
        entry["priority"],
        entry["C"] if numbers else None,
        entry["T"] if numbers else None,
    ]
    return ":".join(none if field is None else str(field) for field in fields)


def as_toml(entry: dict[str, Any]) -> str:
    lines = ["[[task]]", f"name = {json.dumps(entry['name'])}"]
    lines += [
        f"{key} = {json.dumps(entry[key])}"
        for key in ("policy", "priority")
        if entry[key] is not None
    ]
    if entry["kind"] == "background":
        lines.append('reserve = "background"')
    elif entry["kind"] is not None:
        lines += ["[task.reserve]", f'policy = "{entry["kind"]}"']
        lines += [f'capacity = "{entry["C"]}us"', f'period = "{entry["T"]}us"']
    return "\n".join(lines)


@settings(database=None, deadline=None)
@given(
    st.lists(entries(), max_size=5, unique_by=lambda entry: entry["name"]),
    st.sampled_from(("", "-", "none")),
    st.sampled_from(("", "\n", "# a: comment: of\n", "   \n\n")),
)
def test_both_forms_give_the_same(tasks: list[dict[str, Any]], none: str, between: str) -> None:
    lines = parse_spec(between + between.join(as_line(task, none=none) + "\n" for task in tasks))
    toml = parse_spec(between + f"\n{between}".join(as_toml(task) + "\n" for task in tasks))
    assert facts(lines) == facts(toml)
    assert [e.pattern for e in lines.entries] == [task["name"] for task in tasks]


def test_which_form_it_is_shows_in_the_first_line_that_says_something() -> None:
    assert is_line_form("# x = 1\n\na:prt:-:1:-:-\n")
    assert not is_line_form("# a:prt:-:1:-:-\n[[task]]\n")
    assert not is_line_form('title = "a:b"')
    assert not is_line_form("")


# -- matching --------------------------------------------------------------------------------


def test_the_first_entry_that_matches_counts() -> None:
    spec = parse_spec("glx*:prt:-:1:-:-\nglxgears:prt:-:2:-:-\n?:prt:-:3:-:-\n*:prt:-:4:-:-\n")
    found = {name: str(matched(spec, name).priority) for name in ("glxgears", "x", "xy", "")}
    assert found == {"glxgears": "1", "x": "3", "xy": "4", "": "4"}


def test_case_counts() -> None:
    spec = parse_spec("Xorg:prt:-:1:-:-")
    assert spec.match("xorg") is None


def test_what_no_entry_matches_is_left_to_background() -> None:
    spec = parse_spec("game*:prt:-:1:-:-")
    assert spec.match("bomb") is None
    assert spec.match("mygame") is None
    assert Spec().match("anything") is None
    assert parse_spec("").match("anything") is None


def test_brackets_in_a_name_are_ordinary_characters() -> None:
    spec = parse_spec('[[task]]\nname = "worker[1]"\n')
    assert spec.match("worker1") is None
    assert matched(spec, "worker[1]").pattern == "worker[1]"


def test_a_spec_rules_a_simulation() -> None:
    # As the file has it, a goes first; the spec says b.
    scenario = {
        "task": [
            {"name": name, "priority": priority, "groups": [{"at": "0ms", "cost": "1ms"}]}
            for name, priority in (("a", 5), ("b", 1))
        ]
    }
    spec = parse_spec("a:prt:-:1:-:-\nb:prt:-:5:-:-\n")
    statistics = simulate(read_scenario(scenario, "scenario"), spec=spec).statistics
    tasks = statistics.by_name()
    assert tasks["b"].responses.max < tasks["a"].responses.max


def test_settings_come_with_the_spec() -> None:
    spec = parse_spec("""
[admission]
limit = 33.3
[background]
capacity = "1ms"
period = "100ms"
[policy.germ]
tick = "2ms"
""")
    assert spec.settings.limit is not None
    assert spec.settings.limit * 1000 == 333, "a decimal, not a float near it"
    assert spec.settings.background.capacity_ns == 1_000_000
    engine = Engine(named=spec.settings.named)
    assert engine.policy("germ").wake_ns(0) == 2_000_000


# -- mistakes --------------------------------------------------------------------------------


def test_every_mistake_of_a_toml_file_is_reported_at_its_line() -> None:
    assert problems("""\
[admission]
limit = 101
[[task]]
name = "a"
policy = "ptr"
priority = "high"
slowdown = "0%"
[[task]]
name = "a"
reserve = { policy = "xe", capacity = "5", period = "1ms" }
colour = 1
[[task]]
priority = 3
[other]
""") == [
        (2, "admission.limit", "101"),
        (5, "task[0].policy", "'ptr'"),
        (6, "task[0].priority", "'high'"),
        (7, "task[0].slowdown", "'0%'"),
        (9, "task[1].name", "the name 'a' a second time (line 4 has it already)"),
        (10, "task[1].reserve.policy", "'xe'"),
        (10, "task[1].reserve.capacity", "'5'"),
        (11, "task[1].colour", "the unknown key 'colour'"),
        (12, "task[2].name", "nothing"),
        (14, "other", "the unknown key 'other'"),
    ]


def test_every_mistake_of_a_line_file_is_reported_at_its_line() -> None:
    found = problems("""\
# comment
a:prt:pe:5:10000:40000

b:ptr:-:1:-:-
c:prt:pe
d:prt:pe:1:ten:20
e:prt:-:high:-:-
f:prt:-:1:5:10
a:prt:-:1:-:-
g:prt:pe:1:20:10
h:prt:xe:1:1:1
""")
    assert [line for line, _, _ in found] == [4, 5, 6, 7, 8, 9, 10, 11]
    by_line = {line: (key, what) for line, key, what in found}
    assert by_line[4] == ("task[1].policy", "'ptr'")
    assert by_line[5][1].startswith("3 fields")
    assert by_line[6] == ("C", "'ten'")
    assert by_line[9][1].startswith("the name 'a' a second time")
    assert by_line[10][1] == "20us"


def test_a_mistake_says_file_line_key_and_what_was_expected() -> None:
    with pytest.raises(BadInput, match=r"^my\.spec:3: task\[0\]\.policy: found 'ptr', expected"):
        parse_spec('[[task]]\nname = "a"\npolicy = "ptr"\n', "my.spec")


def test_text_that_is_not_toml_is_reported_at_its_line() -> None:
    assert [line for line, _, _ in problems('[[task]]\nname = "a"\npolicy = \n')] == [3]


def test_members_of_a_pe_pool_may_predict_by_models_of_their_own() -> None:
    """A PE reserve asks for no prediction. An AE reserve does, and says by which model."""
    pool = '{ policy = "%s", capacity = "2ms", period = "10ms", shared = "p" }'
    text = """
[[task]]
name = "a"
reserve = %s
[[task]]
name = "b"
predict = "history"
reserve = %s
"""
    spec = parse_spec(text % (pool % "pe", pool % "pe"))
    assert [entry.predict for entry in spec.entries] == [None, "history"]
    assert spec.entries[0].reserve == spec.entries[1].reserve
    with pytest.raises(BadInput, match=r"found ae 2ms every 10ms by history .* expected ae 2ms"):
        parse_spec(text % (pool % "ae", pool % "ae"))


def test_members_of_a_pool_must_agree() -> None:
    text = "".join(
        f'[[task]]\nname = "{name}"\n'
        f'reserve = {{ capacity = "{c}ms", period = "10ms", shared = "p" }}\n'
        for name, c in (("a", 1), ("b", 2), ("c", 1))
    )
    assert [(line, key) for line, key, _ in problems(text)] == [(6, "task[1].reserve")]


def test_variants_of_text_that_is_not_toml_are_bad_input() -> None:
    with pytest.raises(BadInput):
        parse_variants("not toml")


# -- the line of a key -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("a = 1\nb = 2\n", ("b",), 2),
        ("\r\n\r\na = 1\r\n", ("a",), 3),
        ("a = [\n  1,\n  # 2,\n  3,\n]\nb = 1", ("b",), 6),
        ("a = [\n  1,\n  # 2,\n  3,\n]\nb = 1", ("a", 1), 4),
        ("a = [ [1, 2],\n [3,\n 4] ]", ("a", 1, 1), 3),
        ("a = [\n { x = 1 },\n { x = 2, y = 3 },\n]", ("a", 1, "y"), 3),
        ("a = { b = { c = 1 } }\n", ("a", "b", "c"), 1),
        ('a = "]]\\"["\nb = 1', ("b",), 2),
        ("a = ']]['  # [[[\nb = 1", ("b",), 2),
        ('a = """\n[[x]]\nb = 1\n"""\nb = 1', ("b",), 5),
        ("a = '''\n'a' = '''\nb = 1", ("b",), 3),
        ('a = """x""""\nb = 1', ("b",), 2),
        ("a.b.c = 1\n", ("a", "b", "c"), 1),
        ('a."b.c" . d = 1\n', ("a", "b.c", "d"), 1),
        ('"\\u0061b" = 1\n', ("ab",), 1),
        ("[t]\na = 1\n[t.u]\na = 1\n", ("t", "u", "a"), 4),
        ("[[t]]\na = 1\n[[t]]\na = 1\n", ("t", 1, "a"), 4),
        ("[[t]]\n[[t.u]]\na = 1\n[[t]]\n[[t.u]]\n[[t.u]]\na = 1\n", ("t", 1, "u", 1, "a"), 7),
        ("[[t]]\n[t.u]\na = 1\n[[t]]\n[t.u.v]\na = 1\n", ("t", 1, "u", "v", "a"), 6),
        ("[ t . 'u' ]\na = 1979-05-27T07:32:00.5+01:00\nb = -1.5e+3\nc = inf", ("t", "u", "c"), 4),
        ("[[t]]\n\n[[t]]", ("t", 1), 3),
    ],
)
def test_a_key_is_found_on_its_line(text: str, path: Path, line: int) -> None:
    tomllib.loads(text)
    assert locate(text)[path] == line


KEYS = st.sampled_from(("k{}", '"k{}"', "'k{}'", '"[k{}]"', "'k{}.x'", '"k{} = \\"#\\" "', "-{}_"))
SCALARS = st.sampled_from(
    (
        "1",
        "-2.5",
        "1e6",
        "0xff_ff",
        "true",
        "inf",
        "2020-01-02",
        "2020-01-02T03:04:05.6Z",
        "07:32:00",
        '""',
        '"]"',
        "'[['",
        '"a = \\"{\\" # no comment"',
        "'\\'",
        '"""one line"""',
        '"""\n[[t]]\nk = 1 \\"\\"\\" # {\n"""',
        "'''\n]] '' k = {\n'''",
        '"""quotes""""',
    )
)
TRAILERS = st.sampled_from(("", "  ", " # [x] = {", "\t# k = 1"))


@dataclass
class Writer:
    """Writes a TOML text and notes on which line it put each key."""

    draw: st.DrawFn
    text: str = ""
    count: int = 0

    def __post_init__(self) -> None:
        self.lines: dict[Path, int] = {}

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def key(self) -> tuple[str, str]:
        """A key never used before: as written and as read."""
        self.count += 1
        written = self.draw(KEYS).format(self.count)
        (read,) = tomllib.loads(f"{written} = 1") if written[0] in "\"'" else (written,)
        return written, read

    def pair(self, base: Path, depth: int) -> None:
        written, path = [], base
        at = self.line
        for _ in range(self.draw(st.sampled_from((1, 1, 1, 2, 3)))):
            key, read = self.key()
            written.append(key)
            path = (*path, read)
        self.lines[path] = at
        self.text += self.draw(st.sampled_from((".", " . "))).join(written)
        self.text += self.draw(st.sampled_from((" = ", "=")))
        self.value(path, depth)

    def value(self, path: Path, depth: int) -> None:
        kind = self.draw(st.sampled_from(("scalar", "scalar", "array", "table")))
        if depth == 0 or kind == "scalar":
            self.text += self.draw(SCALARS)
        elif kind == "array":
            self.text += "["
            for index in range(self.draw(st.integers(0, 3))):
                self.gap()
                self.lines[(*path, index)] = self.line
                self.value((*path, index), depth - 1)
                self.gap()
                self.text += ","
            self.gap()
            self.text += "]"
        else:
            self.text += "{ "
            for number in range(self.draw(st.integers(0, 3))):
                self.text += ", " if number else ""
                self.pair(path, depth - 1)
            self.text += " }"

    def gap(self) -> None:
        self.text += self.draw(st.sampled_from(("", " ", "\n", " # ], [\n  ", "\n\n")))

    def body(self, base: Path) -> None:
        for _ in range(self.draw(st.integers(0, 3))):
            self.pair(base, 2)
            self.text += self.draw(TRAILERS) + self.draw(st.sampled_from(("\n", "\n\n", "\r\n")))

    def header(self, written: str, path: Path, *, array: bool) -> None:
        self.lines[path] = self.line
        self.text += f"[[{written}]]" if array else f"[{written}]"
        self.text += self.draw(TRAILERS) + "\n"
        self.body(path)

    def section(self) -> None:
        written, read = self.key()
        if self.draw(st.booleans()):
            self.header(written, (read,), array=False)
            inner, name = self.key()
            self.header(f"{written} . {inner}", (read, name), array=False)
            return
        inner, name = self.key()
        deeper, sub = self.key()
        for index in range(self.draw(st.integers(1, 3))):
            self.header(written, (read, index), array=True)
            if self.draw(st.booleans()):
                self.header(f"{written}.{inner}", (read, index, name), array=False)
            for place in range(self.draw(st.integers(0, 2))):
                path = (read, index, sub, place)
                self.header(f"{written}.{deeper}", path, array=True)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Path, int]]:
    writer = Writer(draw)
    writer.body(())
    for _ in range(draw(st.integers(0, 3))):
        writer.section()
    return writer.text, writer.lines


def value_at(document: Any, path: Path) -> Any:
    for part in path:
        document = document[part]
    return document


@settings(database=None, deadline=None, max_examples=200)
@given(documents())
def test_every_key_is_located_on_the_line_where_it_was_written(
    document: tuple[str, dict[Path, int]],
) -> None:
    text, written = document
    data = tomllib.loads(text)
    for path in written:
        value_at(data, path)  # the writer and TOML agree on what it is called
    found = locate(text)
    assert {path: found.get(path) for path in written} == written


def test_a_scenarios_mistakes_are_found_on_their_lines_too() -> None:
    text = """\
[[task]]
name = "a"
groups = [
  { at = "0ms", cost = "1ms" },
  { at = "0", cost = "1ms" },
  { at = "1ms", cost = "0ms" },
]
[[event]]
at = "1ms"
focus = "b"
"""
    with pytest.raises(BadInput) as caught:
        parse_scenario(text)
    assert [(p.line, p.key) for p in caught.value.problems] == [
        (5, "task[0].groups[1].at"),
        (6, "task[0].groups[2].cost"),
        (10, "event[0].focus"),
    ]


# -- what others may do ------------------------------------------------------------------------


def test_the_rights_of_others_are_read() -> None:
    allowed = parse_spec("""
[allow]
uids = [1000]
users = ["anna"]
groups = ["video"]
priority = 5
channels = 20
policies = ["fifo"]
pools = ["bombs"]
reserves = 3
limit = 12.5
nice = true
[[task]]
name = "bomb"
reserve = { capacity = "1ms", period = "10ms", shared = "bombs" }
""").allowed
    expected = (1000,), ("anna",), ("video",), 5, 20, ("fifo",), ("bombs",), 3, Fraction(1, 8), True
    assert astuple(allowed) == expected
    assert parse_spec("[allow]\n").allowed.limit is None


def test_mistakes_in_the_rights_of_others_are_told_with_their_lines() -> None:
    found = problems("""
[allow]
uids = ["ann"]
policies = ["fast"]
pools = ["nobody's"]
limit = 101
reserves = 0
nice = 1
""")
    keys = ["uids", "policies", "pools", "limit", "reserves", "nice"]
    assert sorted(found) == sorted(
        (line, f"allow.{key}", shown)
        for line, key, shown in zip(
            range(3, 9), keys, ["['ann']", "'fast'", '"nobody\'s"', "101", "0", "1"], strict=True
        )
    )
