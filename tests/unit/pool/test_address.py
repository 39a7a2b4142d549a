import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.pool.address import Address, outside_address, parse_address

SINFUL = "<10.77.1.10:9618?addrs=10.77.1.10-9618&alias=ap.lab&noUDP&sock=collector>"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ap.lab", Address("ap.lab", 9618)),
        ("ap.lab:9618?sock=ap_collector", Address("ap.lab", 9618, "ap_collector")),
        ("cm1.example.org:9620, cm2.example.org", Address("cm1.example.org", 9620)),
        (SINFUL, Address("10.77.1.10", 9618, "collector", "ap.lab")),
        ("[2001:db8::1]:9618", Address("2001:db8::1", 9618)),
        ("", None),
        ("<>", None),
        ("host:99999", None),
    ],
)
def test_every_spelling_of_an_address_is_read(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


def test_an_ipv6_address_is_written_with_brackets() -> None:
    assert str(Address("2001:db8::1", 9618, "s")) == "[2001:db8::1]:9618?sock=s"


@pytest.mark.parametrize(
    ("configured", "advertised", "told"),
    [
        ("ap.lab:9618", SINFUL, "ap.lab:9618"),
        ("ap.lab:9618?sock=ap_collector", SINFUL, "ap.lab:9618?sock=ap_collector"),
        ("ap.lab", "", "ap.lab:9618"),
        ("127.0.0.1", SINFUL, "ap.lab:9618"),
        ("localhost:9618", SINFUL, "ap.lab:9618"),
        ("ap:0", SINFUL, "ap.lab:9618"),
        ("ap:9618", "<192.0.2.7:9618?alias=ap&sock=collector>", "192.0.2.7:9618"),
        ("127.0.0.1:9618", "<127.0.0.1:9618?alias=localhost>", "127.0.0.1:9618"),
        ("", SINFUL, "ap.lab:9618"),
        ("", "", ""),
    ],
)
def test_eps_are_told_an_address_that_can_mean_something_elsewhere(configured: str, advertised: str, told: str) -> None:
    assert outside_address(configured, advertised) == told


@given(st.text(), st.text())
def test_no_text_is_an_exception(configured: str, advertised: str) -> None:
    assert isinstance(outside_address(configured, advertised), str)
