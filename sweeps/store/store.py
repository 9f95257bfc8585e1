"""``Store``: the record of every sweep, in SQLite or PostgreSQL.

Each group of verbs has its file. In ``commands``: requests of users (``sweeps``, ``growth``),
leases of drivers (``leases``), writes of drivers (``trials``, ``attempts``, ``reports``), requests
of agents (``agents``), imports (``imports``), the mirror's queue (``outbox``), retention
(``retention``), views (``views``). In ``queries``: reads for pages and routes (``trials``,
``across`` several sweeps, ``sweeps``, ``curves``, ``timeline``, ``monitoring``). In ``people``:
tokens, sessions, links and the audit log. Copies of all of it: ``database.copying``.

Rules that no type can express: a Store may be shared by threads and opened by several processes,
but not carried through a fork. Every verb is one transaction: it happens completely or not at all.
Verbs raise StoreUnavailable when the database cannot be reached, and may then be repeated.
"""

from sweeps.store.commands.agents import AgentVerbs
from sweeps.store.commands.attempts import AttemptVerbs
from sweeps.store.commands.growth import GrowthVerbs
from sweeps.store.commands.imports import ImportVerbs
from sweeps.store.commands.leases import ClaimVerbs
from sweeps.store.commands.outbox import MirrorVerbs
from sweeps.store.commands.reports import RecordVerbs
from sweeps.store.commands.retention import RetentionVerbs
from sweeps.store.commands.sweeps import SweepVerbs
from sweeps.store.commands.trials import TrialVerbs
from sweeps.store.commands.views import ViewVerbs
from sweeps.store.database.copying import CopyVerbs
from sweeps.store.database.schema import is_up_to_date, migrate, require_known
from sweeps.store.people.listings import PeopleReads
from sweeps.store.people.tokens import PeopleVerbs
from sweeps.store.queries.across import AcrossVerbs
from sweeps.store.queries.curves import CurveVerbs
from sweeps.store.queries.monitoring import MonitoringVerbs
from sweeps.store.queries.sweeps import LookupVerbs
from sweeps.store.queries.timeline import TimelineVerbs
from sweeps.store.queries.trials import ReadVerbs


class Store(
    SweepVerbs,
    GrowthVerbs,
    ImportVerbs,
    LookupVerbs,
    RetentionVerbs,
    ClaimVerbs,
    TrialVerbs,
    AttemptVerbs,
    AgentVerbs,
    RecordVerbs,
    ReadVerbs,
    CurveVerbs,
    TimelineVerbs,
    MirrorVerbs,
    ViewVerbs,
    AcrossVerbs,
    MonitoringVerbs,
    PeopleVerbs,
    PeopleReads,
    CopyVerbs,
):
    """The record of every sweep. ``Store(url)``, then ``migrate()`` once per new version."""

    def migrate(self) -> None:
        """Create the tables, or bring them to this version. Safe from several processes at once."""
        with self._writing() as write:
            migrate(write.conn)

    def is_up_to_date(self) -> bool:
        """Whether the tables are those of this version. Raises StoreUnavailable, StoreIsNewer."""
        with self._reading() as conn:
            return is_up_to_date(conn)

    def require_known_tables(self) -> None:
        """Raise StoreIsNewer for a database that a newer version of this program has changed."""
        with self._reading() as conn:
            require_known(conn)
