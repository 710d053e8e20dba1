"""Every error Everturn raises, named after the reaction it demands.

EverturnError
├── ConfigError            a setting is wrong; the message names it and the remedy (exit code 78)
├── HomeLocked             another gateway runs on this home; the message says which
├── InstanceClosed         other instances took us for dead: stop every turn, start again under a new number
├── StoreError
│   ├── StoreUnavailable   the database cannot be reached or written now; it may be later
│   ├── StoreUnusable      the database must not be touched: corrupt, newer than we are, read-only
│   └── FenceLost          somebody else owns the key now: stop, write nothing more
├── Damaged                what is stored makes no sense: suspend that session alone, and name the row
├── Conflict               the same message id came with another text
├── TooLong                a message is longer than we take
│   └── Unkeepable         its ids are: not even its arrival can be stored
├── TooLarge               a file is larger than we take
├── NoRoom                 there is no room for another file
├── Full                   a bound was reached; `retry_after_s` says when to try again
├── Spent                  a spending limit is reached: no model call; the message says which and until when
├── ToolFailed             a tool call failed; the message is its result, for the model
├── Unanswerable           the agent cannot answer this turn; the message is for the user, `kind` for the journal
└── PlatformError
    ├── TryLater           nothing was sent; try again after `delay_s`
    ├── Refused            it will never be accepted; the reply is a dead letter
    └── OutcomeUnknown     delivery unknown: repeat with the key, look it up, or follow the policy
"""

from __future__ import annotations


class EverturnError(Exception):
    """The base of all our errors."""


class ConfigError(EverturnError):
    """A setting is wrong. The message names the key and the remedy."""


class HomeLocked(EverturnError):
    """Another gateway holds this home."""


class InstanceClosed(EverturnError):
    """Another instance declared this one dead and took over its work."""


class StoreError(EverturnError):
    """The database could not do what was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be reached or written at the moment."""


class StoreUnusable(StoreError):
    """The database must not be touched by this program; the message says why and what to do."""


class FenceLost(StoreError):
    """The key has another owner now; this writer's late writes are refused."""


class Damaged(EverturnError):
    """Rows of one session contradict each other; the message names them."""


class Conflict(EverturnError):
    """An id was used again: that of a message for another text, or that of a call for another call."""


class TooLong(EverturnError):
    """A message is longer than we take; the message says the limit."""


class Unkeepable(TooLong):
    """The ids of a message are longer than a database index takes."""


class TooLarge(EverturnError):
    """A file is larger than we take; the message says the limit."""


class NoRoom(EverturnError):
    """All files together have reached their limit."""


class Full(EverturnError):
    """A bound was reached; `retry_after_s` says when the sender may try again."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Spent(EverturnError):
    """A spending limit is reached; the message is for the user."""


class ToolFailed(EverturnError):
    """A tool call failed; the message is its result. `unknown`: it may have happened."""

    def __init__(self, result: str, *, unknown: bool = False) -> None:
        super().__init__(result)
        self.unknown = unknown


class Unanswerable(EverturnError):
    """The agent cannot answer this turn; the message is for the user and holds no secret."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class PlatformError(EverturnError):
    """A platform call failed; the subclass says what the outbox does next."""


class TryLater(PlatformError):
    """Nothing was sent. Try again after `delay_s`; where that is more than 0 it was ordered, and is no failed try."""

    def __init__(self, message: str, delay_s: float) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class Refused(PlatformError):
    """The platform will never accept it. Stop, and report it to the owner."""


class OutcomeUnknown(PlatformError):
    """Delivery unknown: it may have been sent. Look it up by key, repeat it with the key, or follow the policy."""
