"""Submit language as text: what is a command, what uses a variable, what a later text replaces."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.training.experiment.secrets import secret_in
from siteannex.training.rendering.submit_commands import SUBMIT_COMMANDS
from siteannex.training.rendering.submit_language import arguments, check, effective, environment, parse, references

REAL = """
universe = container
+JobDurationCategory = "Long"
request_disk = 80GB
extra = data.tar
transfer_input_files = pretrain.sh, $(extra)
if defined resume
    transfer_input_files = $(transfer_input_files), output/$(run_id)
endif
arguments = pretrain.sh $(epoch) $(lr:0.1) $INT(seed) $$(Machine) \\
    --more
request_tapes = 2
queue
"""


def codes(text: str, *variables: str) -> list[tuple[int, str]]:
    return [(each.line, each.code) for each in check(parse(text), variables)]


def test_a_real_template_is_taken_as_it_is() -> None:
    assert check(parse(REAL), ["epoch", "run_id", "seed"]) == []


def test_lines_are_counted_in_the_text_with_its_comments_and_continuations() -> None:
    assert codes("# first\n\nrequest_cpus = \\\n  $(nothing)\nrequest_dsk = 1\n") == [
        (5, "submit-command-unknown"),
        (3, "variable-unknown"),
    ]


def test_a_macro_that_something_uses_is_no_unknown_command() -> None:
    assert codes("mine = 3\nrequest_cpus = $(mine)") == []
    assert codes("mine = 3\nrequest_cpus = 3") == [(1, "submit-command-unknown")]


@pytest.mark.parametrize("line", ["$$(Memory)", "$(x:default)", "$(Cluster).$(Process)", "$(DOLLAR)", "$(MY.Owner)"])
def test_what_htcondor_defines_or_defaults_is_not_asked_for(line: str) -> None:
    assert codes(f"output = {line}") == []


def test_known_commands_have_no_near_misses_of_their_own() -> None:
    assert {"request_memory", "gpus_minimum_memory", "checkpoint_exit_code", "max_retries"} <= SUBMIT_COMMANDS
    assert {"request_gpu", "job_ad_file", "queue", "kvm"}.isdisjoint(SUBMIT_COMMANDS)


def test_a_later_text_replaces_what_an_earlier_one_says_unconditionally() -> None:
    first = parse("request_cpus = 1\nrequest_disk = 1GB\nif defined x\nrequest_gpus = 1\nendif")
    merged = [line.text for line in effective(first, parse("request_cpus = 2"), parse("request_disk = 2GB"))]
    assert merged == ["if defined x", "request_gpus = 1", "endif", "request_cpus = 2", "request_disk = 2GB"]


def unquoted(text: str) -> list[str]:
    """What condor_submit makes of the new syntax: doubled quotes halved, then words with single quotes."""
    assert text[0] == text[-1] == '"'
    plain, words, word, inside, started = text[1:-1].replace('""', '"'), [], "", False, False
    at = 0
    while at < len(plain):
        char = plain[at]
        if char == "'" and inside and plain[at + 1 : at + 2] == "'":
            word, at = word + "'", at + 1
        elif char == "'":
            inside, started = not inside, True
        elif char.isspace() and not inside:
            words += [word] if started or word else []
            word, started = "", False
        else:
            word += char
        at += 1
    return [*words, *([word] if started or word else [])]


WORDS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12)


@settings(deadline=None)
@given(st.lists(WORDS, max_size=5))
def test_any_words_come_through_quoting_unchanged(words: list[str]) -> None:
    assert unquoted(arguments(words)) == words


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), WORDS, max_size=4))
def test_any_environment_comes_through_quoting_unchanged(variables: dict[str, str]) -> None:
    assert unquoted(environment(variables)) == [f"{name}={value}" for name, value in variables.items()]


@settings(deadline=None)
@given(st.text())
def test_any_text_can_be_parsed_and_checked(text: str) -> None:
    lines = parse(text)
    assert all(each.line >= 1 for each in check(lines, ["run"]))
    assert all(name == name.lower() for line in lines for name in references(line))


@pytest.mark.parametrize(
    "line",
    [
        "WANDB_API_KEY=0123456789abcdef",
        'environment = "HF_TOKEN=abcdefgh1234"',
        "--password: hunter2hunter2",
        "AKIAIOSFODNN7EXAMPLE",
        "https://alice:wonderland@host/x",
        "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
        "-----BEGIN RSA PRIVATE KEY-----",
    ],
)
def test_secrets_are_seen(line: str) -> None:
    assert secret_in(line) is not None


@pytest.mark.parametrize(
    "line",
    [
        "max_tokens = 10240000",
        "tokenizer = bert-base-uncased",
        "s3_secret_access_key_file = /home/alice/key",
        "WANDB_API_KEY=$(key)",
        "--num-token 512000000",
        "SECRET_FILE=secrets/file.txt",
        "osdf:///ospool/ap40/data/alice/model.sif",
        *(f"{name} = some-longer-value" for name in sorted(SUBMIT_COMMANDS) if name.endswith("_file")),
    ],
)
def test_what_only_sounds_secret_is_not(line: str) -> None:
    assert secret_in(line) is None


def test_shell_words_with_variables_stay_one_word() -> None:
    assert arguments(["--", *shlex.split("run --name '$(kind)'")]) == "\"-- run --name '$(kind)'\""
