"""The platform `v1`: programs that speak the OpenAI API. Nothing is sent to these: the request's row leads to its answer."""

from __future__ import annotations

from everturn.model import SessionSource
from everturn.platform.posted import fit_name, unique_id
from everturn.sessions.rules.keys import PROGRAMS, SINGLE_CALL

SESSION_CHARS = 200
KEY_CHARS = 255


class V1Platform:
    """One client is a chat, and each of its sessions a thread there: no client reaches another's."""

    name = PROGRAMS
    account = ""

    def session(self, client: str, name: str) -> SessionSource:
        """The source of a session that the client has named. Raises ValueError with what is wrong with the name."""
        return self._source(client, "session:" + fit_name("the session's name", name, SESSION_CHARS))

    def call(self, client: str, name: str) -> SessionSource:
        """The source of a call without a session."""
        return self._source(client, SINGLE_CALL + name)

    def stored_id(self, client: str, key: str) -> str:
        """The stored form of a client's Idempotency-Key, which is unique within the client."""
        return unique_id(client, fit_name("the Idempotency-Key", key, KEY_CHARS))

    def _source(self, client: str, thread: str) -> SessionSource:
        return SessionSource(platform=self.name, chat_id=client, thread_id=thread, user_id=client)
