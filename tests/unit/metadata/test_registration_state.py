"""The table of a registration's states."""

from __future__ import annotations

from kafkalite.metadata.registration_state import DISCONNECTED, ENTERED_FROM, FENCED, MEMBER, RegistrationState


def test_every_state_can_be_entered_from_another_one() -> None:
    assert ENTERED_FROM.keys() == set(RegistrationState)
    for state, sources in ENTERED_FROM.items():
        assert sources and state not in sources


def test_only_a_member_loses_its_connection_and_only_a_new_registration_ends_a_fence() -> None:
    assert ENTERED_FROM[DISCONNECTED] == {MEMBER}
    assert {state for state, sources in ENTERED_FROM.items() if FENCED in sources} == {
        MEMBER, RegistrationState.UNREGISTERED,
    }  # fmt: skip
