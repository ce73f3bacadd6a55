"""Valid bytes made wrong: flipped, cut, doubled, with numbers that nobody can mean."""

from __future__ import annotations

from hypothesis import strategies as st

ODD = (
    *(b"-1", b"0", b"1e999", b"NaN", b"null", b"[]", b"{}", b'""', b"true", b"\n", b'"', b"../../x"),
    *(b"99999999999999999999", b"9" * 400, b"9" * 5000, b"0x" + b"f" * 4000, b"[" * 3000, b"{" * 3000),
    *(b"\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\x00" * 8, b"\xc3\x28"),
)

_places = st.integers(0, 1 << 20)
_edits = st.one_of(
    st.tuples(st.just("flip"), _places, st.integers(1, 255)),
    st.tuples(st.just("cut"), _places, st.integers(0, 64)),
    st.tuples(st.just("end"), _places, st.just(0)),
    st.tuples(st.just("double"), _places, st.integers(1, 64)),
    st.tuples(st.just("odd"), _places, st.integers(0, len(ODD) - 1)),
    st.tuples(st.just("instead"), _places, st.integers(0, len(ODD) - 1)),
)
edits = st.lists(_edits, min_size=1, max_size=4)
"""What is done to a file, one after the other."""


def mutated(content: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    """The content with changes; places count from the start again where they lie beyond the end."""
    for kind, place, value in changes:
        at = place % (len(content) + 1)
        head, tail = content[:at], content[at:]
        if kind == "flip" and tail:
            content = head + bytes([tail[0] ^ value]) + tail[1:]
        elif kind == "cut":
            content = head + tail[value:]
        elif kind == "end":
            content = head
        elif kind == "double":
            content = head + tail[:value] + tail
        elif kind == "odd":
            content = head + ODD[value] + tail
        elif kind == "instead":
            content = head + ODD[value] + tail[len(ODD[value]) :]
    return content
