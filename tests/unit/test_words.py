"""The words on stderr of launched programs: what counts, and that all else goes on as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.live.launched.words import Words


def read(*chunks: bytes) -> tuple[str, bytes]:
    words = Words()
    told = [*map(words.feed, chunks), words.flush()]
    return "".join(jobs for jobs, _ in told), b"".join(rest for _, rest in told)


@pytest.mark.parametrize(
    ("said", "jobs", "rest"),
    [
        (b"missed\npass\n", "mp", b""),
        (b"pass\r\n", "p", b""),
        (b"missed", "m", b""),
        (b"missedmissedpass", "mmp", b""),
        (b"pass missed\n", "pm", b""),
        (b"missed the train\n", "", b"missed the train\n"),
        (b"a pass\n", "", b"a pass\n"),
        (b"passed\n", "", b"passed\n"),
        (b"pa", "", b"pa"),
        (b"Missed\n", "", b"Missed\n"),
        (b"warning: x\nmissed\nerror\n", "m", b"warning: x\nerror\n"),
        (b"50 %\rmissed\n", "", b"50 %\rmissed\n"),
        (b"\n\n", "", b"\n\n"),
        (b"", "", b""),
        (b"\xff\xfe\npass\n", "p", b"\xff\xfe\n"),
    ],
)
def test_words_are_counted_and_all_else_goes_on(said: bytes, jobs: str, rest: bytes) -> None:
    assert read(said) == (jobs, rest)


LINE = st.one_of(
    st.sampled_from((b"missed", b"pass", b"miss", b"pass the salt", b"", b"m")),
    st.binary(max_size=90).map(lambda data: data.replace(b"\n", b"")),
)


@given(st.lists(LINE, max_size=20), st.data())
def test_it_does_not_matter_how_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    said = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=8)))
    chunks = [said[a:b] for a, b in zip([0, *cuts], [*cuts, len(said)], strict=True)]
    whole = read(said)
    assert read(*chunks) == whole
    assert len(whole[0]) >= sum(line in (b"missed", b"pass") for line in lines)
    kept = [line for line in lines if line.strip(b"\0 \t\r\f\v") not in (b"missed", b"pass")]
    words_alone = all(b"pass" not in line and b"missed" not in line for line in kept)
    if words_alone:
        assert whole[1] == b"".join(line + b"\n" for line in kept)


def test_a_program_that_says_other_things_is_heard_at_once() -> None:
    words = Words()
    assert words.feed(b"progress 10 %") == ("", b"progress 10 %")
    assert not words.holds
    assert words.feed(b"missed\n") == ("", b"missed\n"), "in the middle of a line"
    assert words.feed(b"mis") == ("", b"")
    assert words.holds
    assert words.feed(b"take\n") == ("", b"mistake\n")


def test_a_program_that_never_ends_a_line_is_heard_word_for_word() -> None:
    """As CudaMon's own tasks write them (§4.4), with no pause between."""
    words = Words()
    told = [words.feed(word) for word in 100 * (b"pass", b"missed", b"pass ")]
    assert len("".join(jobs for jobs, _ in told)) > 280, "while it speaks, not at the end"
    told.append(words.flush())
    assert "".join(jobs for jobs, _ in told) == 100 * "pmp"
    assert not any(rest for _, rest in told)


@given(st.binary(max_size=200).map(lambda data: 30 * b"pass" + data))
def test_garbage_after_words_is_neither_lost_nor_counted(said: bytes) -> None:
    jobs, rest = read(said)
    if b"pass" not in said[120:] and b"missed" not in said[120:]:
        assert len(jobs) <= 30
        blanks = b"\0 \t\r\n\f\v"  # which may be dropped, also between a word and what follows
        assert 4 * len(jobs) + len(rest) >= len(said.translate(None, blanks))


def test_what_is_held_back_is_bounded() -> None:
    words = Words()
    for _ in range(100):
        words.feed(b" ")
        words.feed(b"\0")
    assert not words.holds
    for _ in range(100):
        words.feed(b"pass" + 200 * b" ")
    words.flush()
    assert not words.holds
