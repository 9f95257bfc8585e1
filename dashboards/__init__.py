"""The web pages and reports over the store."""
