"""``make test`` runs six kills and the signals; ``make faults`` (FAULTS=all) runs everything."""

import os

collect_ignore = [] if os.environ.get("FAULTS") == "all" else ["test_outages.py", "test_soak.py"]
