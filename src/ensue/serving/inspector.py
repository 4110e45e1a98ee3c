"""The inspector at `/`: a page that asks the server what happens in its models with what is typed."""

from __future__ import annotations

from starlette.responses import Response

from ensue.inspection.page import live_page, policy

HEADERS = {
    "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def inspector() -> Response:
    """The page. It has nothing of the models, so that it needs no key."""
    return Response(live_page(), headers=HEADERS, media_type="text/html")
