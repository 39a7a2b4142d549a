"""Expressions taken apart mean the same as whole; HTCondor's own evaluation is the judge."""

import re
from typing import Any

import classad2
from hypothesis import given
from hypothesis import strategies as st

from siteannex.pool.clauses import conjuncts, expanded, names


def test_requirements_come_apart_at_every_and_through_parentheses() -> None:
    text = '(TARGET.Arch == "X86_64") && ((TARGET.Memory >= RequestMemory) && (A || B && C))'
    assert conjuncts(text) == ['TARGET.Arch == "X86_64"', "TARGET.Memory >= RequestMemory", "(A || B && C)"]


def test_an_and_inside_a_string_a_list_a_call_or_a_nested_ad_is_none() -> None:
    for text in ('A == "x && y"', "f(A && B, C)", "{ A && B }", "[ a = B && C ]", '"\\" && "', "'odd && name' == 1"):
        assert conjuncts(text) == [text]


def test_what_binds_looser_than_and_keeps_the_whole_together() -> None:
    for text in ("A && B || C", "A ? B && C : D", "A ?: B && C"):
        assert conjuncts(text) == [text]


def test_meta_comparisons_are_not_mistaken_for_a_choice() -> None:
    assert conjuncts("A =?= undefined && B =!= 1") == ["A =?= undefined", "B =!= 1"]


def test_what_is_not_balanced_is_left_whole() -> None:
    for text in ("(A && B", "A && B)", "A && ", "&& A", "", "({)}"):
        assert conjuncts(text) == [text.strip()]


def test_a_condition_that_only_names_an_attribute_stands_for_that_one() -> None:
    sources = {"Start": "A && MY.Open", "open": "B < 1 && C", "Limits": "D"}
    assert expanded("Start && limits && E", sources) == ["A", "B < 1", "C", "D", "E"]


def test_attributes_that_name_each_other_end() -> None:
    assert expanded("A", {"A": "B", "B": "A"}) == ["A"]


def test_names_are_attributes_only() -> None:
    text = 'ifThenElse(TARGET.Foo =?= undefined, true, "Bar && Baz" == MY.Qux) && time() < 5'
    assert names(text) == {"foo", "qux"}


_ATOMS = st.sampled_from(
    ["true", "false", "undefined", "error", "A", "B", "C", '"x && y" == D', "E =?= undefined", "{A && B}[0]"]
)
_EXPRESSIONS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"{t[0]} && {t[1]}"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
        inner.map(lambda t: f"!({t})"),
    ),
    max_leaves=12,
)


def _true(text: str) -> bool:
    scope: Any = classad2.ClassAd('[ A = true; B = false; C = true; D = "x && y" ]')
    return classad2.ExprTree(text).eval(scope) is True


@given(_EXPRESSIONS)
def test_the_whole_is_true_exactly_when_every_part_is(text: str) -> None:
    # a && b ? c : d of the generator binds differently from what it looks like, to both readers alike
    assert _true(text) == all(_true(part) for part in conjuncts(text))


@given(st.text(alphabet="()[]{}&|?:\"\\' =!ab1.", max_size=40))
def test_foreign_text_never_breaks_it_and_loses_nothing(text: str) -> None:
    parts = conjuncts(text)
    assert parts
    kept = re.sub(r"[()&\s]", "", "".join(parts))
    assert kept == re.sub(r"[()&\s]", "", text)
