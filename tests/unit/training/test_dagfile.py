from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.training.dag.dagfile import Command, Place, read_commands, render, unquote
from siteannex.training.dag.dagvars import quoted, read_pairs, vars_line
from tests.unit.training.mldag_twin import campaign, twin

LINES = st.sampled_from(
    [
        *("JOB A a.sub", "PARENT A CHILD B \\", "  CHILD B", "# note \\", "// note", "", "SUBMIT-DESCRIPTION s {", "}"),
        *('VARS A x = "1 \\" 2" y=\'z\'', 'VARS A x="open', "@=end", "JOB B @=end", "@end DIR d", "\t\\", "é\x00\r"),
    ]
)
DAGS = st.lists(st.one_of(LINES, st.text(max_size=20)), max_size=30).map("\n".join)


def commands(text: str) -> list[Command]:
    return [command for command in read_commands(text) if command.logical]


@given(DAGS)
def test_whatever_the_text_nothing_is_lost_and_nothing_raised(text: str) -> None:
    assert render(read_commands(text)) == text


@given(st.binary(max_size=200))
def test_bytes_that_are_not_utf8_are_kept(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert render(read_commands(text)).encode("utf-8", "surrogateescape") == data


@pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])
def test_every_file_of_a_campaign_is_read_without_a_problem_and_kept_byte_for_byte(files: dict[str, str]) -> None:
    for text in files.values():
        read = read_commands(text)
        assert render(read) == text
        assert [command for command in read if command.problem] == []


def test_a_backslash_joins_lines_and_comments_between_them_are_skipped() -> None:
    [command] = commands("PARENT A \\\n# note\n\n   CHILD B\n")
    assert [word.text for word in command.words] == ["PARENT", "A", "CHILD", "B"]
    assert command.place(3) == Place(4, 10)
    assert command.place(4) == Place(4, 11)


def test_a_comment_is_never_continued() -> None:
    assert [command.keyword for command in commands("# note \\\nJOB A a.sub\n")] == ["JOB"]


def test_a_backslash_at_the_end_of_the_file_loses_its_line_and_that_is_said() -> None:
    assert "drops this line" in commands("PARENT A CHILD B \\\n# end\n")[0].problem


def test_an_inline_description_ends_at_its_brace_and_is_never_continued() -> None:
    job, other = commands('JOB A {\n  # }\n  arguments = a \\\n}  DIR "d e"\nJOB B b.sub\n')
    assert job.body == "arguments = a \\"
    assert [word.text for word in job.words[3:]] == ["DIR", '"d e"']
    assert job.place(4) == Place(4, 8)
    assert other.line == 5


def test_an_inline_description_may_be_closed_by_a_word_of_its_own() -> None:
    [job] = commands("JOB A @=end\nx = }\n@end DIR d\n")
    assert (job.body, job.words[-1].text) == ("x = }", "d")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("JOB A {\nx = 1\n", "a line } ends it"),
        ("JOB A @=\nx\n", "@= needs a word"),
        ('VARS A x="1', "a quote is not closed"),
    ],
)
def test_what_is_never_closed_is_a_problem(text: str, says: str) -> None:
    assert says in commands(text)[0].problem


def test_keywords_ignore_case_and_the_kind_of_dash() -> None:
    assert commands("submit_Description s {\n}\n")[0].keyword == "SUBMIT_DESCRIPTION"
    assert commands("Abort-Dag-On A 1\n")[0].keyword == "ABORT_DAG_ON"


def test_vars_are_read_in_every_way_htcondor_takes_them() -> None:
    [command] = commands('VARS A append a=1 b = \'2 "\' c ="x\\"y\\\\z"d +e="" f=\n')
    pairs = read_pairs(command)
    assert pairs.values == {"a": "1", "b": '2 "', "c": 'x"y\\zd', "My.e": ""}
    assert pairs.placement == "APPEND"
    assert [problem.message for problem in pairs.problems] == ['VARS takes key="value" pairs']


@settings(max_examples=200)
@given(
    st.dictionaries(st.from_regex(r"[a-zA-Z_]{1,8}", fullmatch=True), st.text(st.characters(codec="ascii")), min_size=1)
)
def test_what_is_written_as_vars_is_read_back_the_same(values: dict[str, str]) -> None:
    wanted = {key: text.replace("\n", " ") for key, text in values.items() if not key.lower().startswith("queue")}
    if not wanted:
        return
    [command] = commands(vars_line("A", wanted))
    assert command.problem == ""
    assert dict(read_pairs(command).values) == wanted


def test_quoting_uses_the_two_escapes_all_parsers_know() -> None:
    assert quoted('a\\b"c') == '"a\\\\b\\"c"'
    assert unquote(quoted('a\\b"c')) == 'a\\b"c'
