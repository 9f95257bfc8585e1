"""The HTTP API, the command line, and what starts and watches the processes."""
