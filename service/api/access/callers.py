"""Finds out who asks: by a token, a browser's session, a proxy that vouches, or a public link."""

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from service.api.access.wrong_tokens import WrongTokens
from service.settings import Settings, TrustedProxy, is_loopback
from sweeps.errors import LinkNotFound, StoreUnavailable
from sweeps.store.database.people import SETTINGS_TOKEN, Actor, Scope, Token, acting_as
from sweeps.store.people.tokens import is_token
from sweeps.store.store import Store

log = logging.getLogger(__name__)

COOKIE = "ndsweep_session"
LINK_COOKIE = "ndsweep_link"
#: Owner of what is done with the token of the settings.
SETTINGS_OWNER = "admin"
#: Seconds for which a token that was looked up counts; a revoked one is refused after them.
CACHE_SECONDS = 3.0
#: Seconds for which others go on while one request looks a token up again.
GRACE_SECONDS = 1.0
#: Seconds between two looks whether a service that is open to this machine has tokens by now.
OPEN_SECONDS = 15.0
#: ``last_used_at`` is written no more often.
USED_EVERY = timedelta(minutes=1)
SESSION = timedelta(days=7)
MOST_KNOWN = 4096

#: Key of the connection's own peer, before a proxy's headers are believed.
_PEER = "ndsweep.peer"
#: What cookies hold.
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
#: What a public link may show; the first group is a sweep's id.
_LINKED = re.compile(r"(?:/api/v1)?/(?:sweeps|matches)/([0-9a-f]{12})(?:/.*)?|/static/.*")


class NotKnown(Exception):
    """Nothing in the request says who asks."""


class TooManyWrong(Exception):
    """Tokens of this address are not looked at for ``seconds``."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many wrong tokens came from this address; try again in {seconds} s")
        self.seconds = seconds


@dataclass
class _Known:
    """Who has shown a secret, and until when that counts."""

    actor: Actor
    until: float


class Access:
    """Knows who asks. For the threads of one event loop."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        wrong: WrongTokens | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._wrong = wrong or WrongTokens()
        secret = settings.secret()
        self._secret = None if secret is None else _digest(secret)
        # Stands for that token in the sessions of browsers: another token ends them.
        self._mark = None if secret is None else f"env:{_session_mark(secret)}"
        self._proxy = settings.trusted_proxy()
        guarded = secret is not None or self._proxy is not None or not is_loopback(settings.host)
        self._may_be_open = not guarded
        self._open_until = -1.0
        self._known: OrderedDict[tuple[str, bytes, str], _Known] = OrderedDict()
        self._noted: dict[str, datetime] = {}

    async def is_open(self) -> bool:
        """Whether this machine needs no token: none is set, and none was ever created.

        Raises StoreUnavailable.
        """
        if not self._may_be_open:
            return False
        now = self._clock()
        if now < self._open_until:
            return True
        if await run_sync(self._store.has_tokens):
            self.close()
            return False
        self._open_until = now + OPEN_SECONDS
        return True

    def close(self) -> None:
        """Ask for tokens from now on: there is one."""
        self._may_be_open = False

    def forget(self) -> None:
        """Look everybody up again: a token, a session or a link has ended."""
        self._known.clear()

    async def caller(self, scope: Connection, headers: Headers) -> Actor | None:
        """Who asks; None where everything is allowed.

        Raises NotKnown, TooManyWrong, StoreUnavailable.
        """
        if await self.is_open():
            return None
        if self._proxy is not None:
            vouched = _vouched(self._proxy, scope, headers)
            if vouched is not None:
                return vouched
        address = client_host(scope)
        given = bearer_token(headers)
        if given is not None:
            actor = await self.of_token(address, given)
            if actor is not None:
                return actor
        if "cookie" in headers:
            # Lenient, as browsers are: a host's other programs set cookies too.
            cookies = cookie_parser(headers["cookie"])
            if session := cookies.get(COOKIE):
                actor = await self._remembered("session", session, address, self._of_session)
                if actor is not None:
                    return actor
            if link := cookies.get(LINK_COOKIE):
                return await self._of_link(link, address, scope)
        raise NotKnown

    async def is_still_known(self, scope: Connection) -> bool:
        """Whether who opened a stream would be let in now. A store that is away ends no stream."""
        try:
            await self.caller(scope, Headers(scope=scope))
        except (NotKnown, TooManyWrong):
            return False
        except StoreUnavailable:
            pass
        return True

    async def of_token(self, address: str, given: str) -> Actor | None:
        """Who holds a token; None for a wrong one. Raises TooManyWrong, StoreUnavailable."""
        wait = self._wrong.seconds_to_wait(address)
        if wait:
            raise TooManyWrong(wait)
        if self._secret is not None and hmac.compare_digest(_digest(given), self._secret):
            actor: Actor | None = _of_settings(address)
        elif is_token(given):
            actor = await self._remembered("token", given, address, self._of_token)
        else:
            actor = None
        if actor is not None:
            self._wrong.note_right(address)
            return actor
        wait = self._wrong.note_wrong(address, given)
        if wait:
            raise TooManyWrong(wait)
        return None

    async def open_session(self, actor: Actor) -> tuple[str, int]:
        """Start a session of whoever showed a token: its cookie, and its seconds."""
        cookie, now = secrets.token_urlsafe(32), datetime.now(UTC)
        until = min(now + SESSION, actor.expires_at or now + SESSION)
        token = (self._mark or "") if actor.token == SETTINGS_TOKEN else actor.token
        with acting_as(actor):
            await run_sync(self._store.open_session, cookie, token, until)
        return cookie, int((until - now).total_seconds())

    async def end_session(self, scope: Connection) -> None:
        """End the session of the cookie that a request carries, if any."""
        headers = Headers(scope=scope)
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        if not cookie:
            return
        actor = await self._remembered("session", cookie, client_host(scope), self._of_session)
        with acting_as(actor):
            await run_sync(self._store.end_session, cookie)
        self.forget()

    async def _of_link(self, key: str, address: str, scope: Connection) -> Actor:
        place = _LINKED.fullmatch(scope["path"])
        if place is None or scope["method"] != "GET":
            raise NotKnown
        actor = await self._remembered("link", key, address, self._of_link_key)
        if actor is None or place[1] not in (None, actor.sweep_id):
            raise NotKnown
        return actor

    async def _remembered(
        self, kind: str, secret: str, address: str, load: Callable[[str, str], Actor | None]
    ) -> Actor | None:
        """What ``load`` returns, asked at most every CACHE_SECONDS."""
        if kind != "token" and not _SECRET.fullmatch(secret):
            return None
        key = (kind, _digest(secret), address)
        found, now = self._known.get(key), self._clock()
        if found is not None:
            if now < found.until:
                return found.actor
            found.until = now + GRACE_SECONDS
        actor = await run_sync(load, secret, address)
        if actor is None:
            self._known.pop(key, None)
            return None
        self._known[key] = _Known(actor, self._clock() + CACHE_SECONDS)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return actor

    # In a thread: these ask the store.

    def _of_token(self, text: str, address: str) -> Actor | None:
        token = self._store.token_of_text(text)
        return None if token is None else self._actor(token, address, has_session=False)

    def _of_session(self, cookie: str, address: str) -> Actor | None:
        found = self._store.session_of_cookie(cookie)
        if found is None:
            return None
        session, token = found
        if token is not None:
            return self._actor(token, address, has_session=True)
        if self._mark is None or not hmac.compare_digest(session.token, self._mark):
            return None
        return _of_settings(address, has_session=True)

    def _of_link_key(self, key: str, address: str) -> Actor | None:
        try:
            link = self._store.link_of_key(key)
        except LinkNotFound:
            return None
        return Actor("", Scope.LINK, f"link {link.id}", address=address, sweep_id=link.sweep_id)

    def _actor(self, token: Token, address: str, *, has_session: bool) -> Actor:
        self._note_use(token)
        return Actor(
            token.owner,
            token.scope,
            token.id,
            token.name,
            address,
            token.quotas,
            token.expires_at,
            has_session=has_session,
        )

    def _note_use(self, token: Token) -> None:
        """Record the use of a token, at most once a minute and behind the answer."""
        now, used = datetime.now(UTC), token.last_used_at
        noted = self._noted.get(token.id, used)
        if noted is None or now - noted > USED_EVERY:
            self._noted[token.id] = now
            threading.Thread(target=self._write_use, args=(token.id,), daemon=True).start()

    def _write_use(self, token_id: str) -> None:
        try:
            self._store.token_used(token_id)
        except StoreUnavailable as error:
            log.warning("the use of token %s was not recorded: %s", token_id, error)


class Peers:
    """ASGI middleware that notes who is really connected, before headers of proxies are read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        await self.app({**scope, _PEER: client_host(scope)}, receive, send)


def client_host(scope: Connection) -> str:
    """The address that a request comes from; "" where it has none."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def bearer_token(headers: Headers) -> str | None:
    """The bearer token of a request; None without one."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() or None if scheme.lower() == "bearer" else None


def _vouched(proxy: TrustedProxy, scope: Connection, headers: Headers) -> Actor | None:
    """Whom a listed proxy names; None where it names nobody. Raises NotKnown.

    From any other address the header is as if it were not there.
    """
    names = headers.getlist(proxy.user_header)
    if not names or not proxy.is_listed(str(scope.get(_PEER, ""))):
        return None
    name = names[0].strip()
    groups = [one.strip() for one in headers.get(proxy.groups_header, "").split(",")]
    allowed = proxy.scope_of(groups)
    if len(names) != 1 or not 0 < len(name) <= _MOST_LETTERS or not name.isprintable():
        raise NotKnown
    if allowed is None:
        raise NotKnown
    return Actor(name, allowed, "proxy", address=client_host(scope))


#: Of a name that a proxy gives.
_MOST_LETTERS = 200


def _of_settings(address: str, *, has_session: bool = False) -> Actor:
    return Actor(
        SETTINGS_OWNER, Scope.ADMIN, SETTINGS_TOKEN, address=address, has_session=has_session
    )


def _session_mark(secret: str) -> str:
    return hmac.new(secret.encode(), b"ndsweep browser session", hashlib.sha256).hexdigest()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
