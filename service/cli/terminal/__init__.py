"""How the command prints, shows progress and fails."""
