"""Every layer × every law (docs/architecture.md), and proof that each law detects a bug."""
