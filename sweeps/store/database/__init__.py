"""Connection, tables, rows and paging of the store's database."""
