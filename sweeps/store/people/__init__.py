"""Tokens, sessions, public links and the audit log."""
