"""Why a file could not be written at a site, out of the far side's words and its df."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.transport.room import room_text, with_room, write_failure

DF = "tmpfs 1024 1024 0 100% /home/alice\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("cat: write error: Disk quota exceeded", "quota-exceeded"),
        ("mkdir: cannot create directory '/home/alice/.siteannex': Disk quota exceeded", "quota-exceeded"),
        ("cat: write error: No space left on device", "site-disk-full"),
        ("tar: ./ep.conf: Cannot write: No space left on device", "site-disk-full"),
        ("mkdir: cannot create directory 'x': Read-only file system", "home-unwritable"),
        ("sh: 1: cannot create /home/x: Permission denied", "home-unwritable"),
        ("cat: write error: Input/output error", "ship-failed"),
        ("", "ship-failed"),
    ],
)
def test_the_far_sides_words_name_the_cause(words: str, code: str) -> None:
    seen = Evidence("cat", words)
    failure = write_failure("lab", "a file could not be written", words, [seen], needed_bytes=17_700_000).failure
    assert failure.code == code
    assert failure.evidence == (seen,)
    assert ("it needs 17.7 MB" in failure.summary) == (code in ("quota-exceeded", "site-disk-full"))


def test_where_room_is_missing_what_is_free_is_told() -> None:
    asked: list[str] = []

    def ask(script: str) -> str:
        asked.append(script)
        return DF + "/home 950M* 900M 1000M\n"

    full = with_room(fail("site-disk-full", "lab", "no room"), "'/home/alice'", ask).failure
    assert asked[0].startswith("set -- '/home/alice'\n")
    assert full.evidence[-1].text == "0 B of 1.0 MB free on /home/alice\n/home 950M* 900M 1000M"
    assert with_room(fail("link-broken", "lab", "gone"), "x", ask).failure.evidence == ()
    assert len(asked) == 1


def test_a_site_that_cannot_be_asked_any_more_changes_nothing() -> None:
    def ask(script: str) -> str:
        raise fail("link-broken", "lab", "gone")

    error = fail("quota-exceeded", "lab", "no room")
    assert isinstance(error, AnnexError)
    assert with_room(error, "x", ask) is error


@given(st.text())
def test_any_line_of_df_is_read(line: str) -> None:
    assert room_text(line) == line.strip() or " free on " in room_text(line)
