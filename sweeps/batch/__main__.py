"""``python -m sweeps.batch``: the batch command where the service's packages are not installed."""

import sys

from sweeps.batch.run import main

sys.exit(main())
