"""The answers of a server that refuses: a status, and the error body of the API."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel, ValidationError

KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Error(BaseModel):
    """Why a request was refused."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every answer that is no success."""

    error: Error


class Refusal(Exception):
    """An answer with `status` and the error body of the API. Nothing of the machine is in it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def body(self) -> ErrorBody:
        """The body of the answer. A lone surrogate of a name becomes a question mark."""
        kind = KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message, param = (text and text.encode("utf-8", "replace").decode() for text in (self.message, self.param))
        return ErrorBody(error=Error(message=message or "", type=kind, param=param, code=self.code))


def busy(status: int, message: str, code: str, seconds: int = 1) -> Refusal:
    """A refusal that asks to try again in some seconds."""
    return Refusal(status, message, code=code, headers={"Retry-After": str(seconds)})


def wrong(param: str, message: str, code: str = "invalid_value") -> Refusal:
    """A refusal because of one field."""
    return Refusal(400, f"{param}: {message}", param=param, code=code)


def bug() -> Refusal:
    """The answer to a client after a bug; the traceback is in the log."""
    return Refusal(500, "the server has made a mistake", code="internal_error", headers={"x-should-retry": "false"})


def unknown(key: str) -> Refusal:
    """The refusal of a field that the API does not have."""
    param = key[:64]
    return Refusal(400, f"Unrecognized request argument supplied: {param}", param=param, code="unknown_parameter")


def of_validation(error: ValidationError) -> Refusal:
    """The first complaint about a request, in the words of the API."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = found[0]
    param = str(first["loc"][0])[:64] if first["loc"] else None
    if first["type"] == "missing":
        return Refusal(400, f"{param} is missing", param=param, code="missing_parameter")
    same = [one for one in found if one["loc"][:1] == first["loc"][:1]]
    said = "; or ".join(dict.fromkeys(str(one["msg"]) for one in same))
    return Refusal(400, f"{param or 'the request'}: {said}", param=param, code="invalid_value")
