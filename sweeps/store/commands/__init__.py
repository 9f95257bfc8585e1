"""Writes of the store: states, leases, reports, growth, imports."""
