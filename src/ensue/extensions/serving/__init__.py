"""Models over HTTP."""
