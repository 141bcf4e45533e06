"""An answer that is an error: its status, its name for programs, and a sentence for people."""

from __future__ import annotations

from kafkalite.client.blocking_client import Unanswered
from kafkalite.client.offset_reset import NotReset
from kafkalite.common.errors import ConfigError
from kafkalite.common.text import printable

WRITE_SETTING = "console.write=true (--write)"


class ApiError(Exception):
    """Becomes {"error": name, "message": message}."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message

    def body(self) -> dict[str, str]:
        return {"error": self.name, "message": printable(self.message)}


def invalid(message: str) -> ApiError:
    return ApiError(400, "INVALID_REQUEST", message)


def not_found(message: str) -> ApiError:
    return ApiError(404, "NOT_FOUND", message)


def refused(message: str) -> ApiError:
    """The broker's own sentence."""
    return ApiError(409, "REFUSED", message)


def too_many(message: str) -> ApiError:
    return ApiError(429, "TOO_MANY", message)


def read_only() -> ApiError:
    return ApiError(403, "READ_ONLY", f"this console changes nothing; start it with {WRITE_SETTING}")


def of_client(fault: Unanswered | ConfigError) -> ApiError:
    """The fault of a client of brokers: something that is not there, a permission, or a broker out of reach."""
    text = str(fault)
    if isinstance(fault, ConfigError):
        return not_found(text)
    if isinstance(fault, NotReset):
        return refused(text)
    if "AUTHORIZATION_FAILED" in text:
        return ApiError(403, "NOT_PERMITTED", f"the access control lists do not allow it: {text}")
    return ApiError(502, "UNREACHABLE", text)
