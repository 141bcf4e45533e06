"""Programs in other languages as they log in; the same in Python: `tests/compatibility/clients/login_clients.py`."""

from __future__ import annotations

from tests.compatibility.clients.login_clients import GROUP, Login
from tests.compatibility.interop.asked_program import AskedProgram


class LoginProgram(AskedProgram):
    """A command is a `Login` with the topic, the group, and the value to write."""

    def exchange(self, login: Login, topic: str, value: str) -> list[bytes]:
        return self.ask(topic=topic, value=value, group=GROUP, **login._asdict())

    def words_of(self, error: Exception) -> str:
        return str(error)
