"""Serving: trained models over HTTP, by the API that clients of language models speak, and routes for other tasks."""
