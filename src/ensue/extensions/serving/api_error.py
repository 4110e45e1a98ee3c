"""Error responses of the API: exceptions with a status and a JSON body."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel, ValidationError

ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Error(BaseModel):
    """The error of a request."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of each error response."""

    error: Error


class APIError(Exception):
    """An exception that becomes an error response. Its message has no details of the machine, such as paths."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def body(self) -> ErrorBody:
        """Return the body of the response, with question marks for lone surrogates."""
        kind = ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message, param = (text and text.encode("utf-8", "replace").decode() for text in (self.message, self.param))
        return ErrorBody(error=Error(message=message or "", type=kind, param=param, code=self.code))


def retry_later(status: int, message: str, code: str, seconds: int = 1) -> APIError:
    """Return the error for a request that may succeed after some seconds."""
    return APIError(status, message, code=code, headers={"Retry-After": str(seconds)})


def invalid(param: str, message: str, code: str = "invalid_value") -> APIError:
    """Return the error (400) for an invalid value of the field `param`."""
    return APIError(400, f"{param}: {message}", param=param, code=code)


def internal_error() -> APIError:
    """Return the response for a bug, whose traceback is in the log."""
    return APIError(500, "internal error", code="internal_error", headers={"x-should-retry": "false"})


def unknown_field(key: str) -> APIError:
    """Return the error for an unknown field, with the message of OpenAI's API."""
    param = key[:64]
    return APIError(400, f"Unrecognized request argument supplied: {param}", param=param, code="unknown_parameter")


def from_validation_error(error: ValidationError) -> APIError:
    """Return the error for the first invalid field."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = errors[0]
    param = str(first["loc"][0])[:64] if first["loc"] else None
    if first["type"] == "missing":
        return APIError(400, f"{param} is missing", param=param, code="missing_parameter")
    messages = [str(other["msg"]) for other in errors if other["loc"][:1] == first["loc"][:1]]
    message = "; or ".join(dict.fromkeys(messages))
    return APIError(400, f"{param or 'the request'}: {message}", param=param, code="invalid_value")
