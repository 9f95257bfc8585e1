"""Speed of the built-in training: what several of its benchmarks share, and parts of packages."""
