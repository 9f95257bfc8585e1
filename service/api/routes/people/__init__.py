"""Routes about people: signing in and out, tokens, public links, the audit log."""
