"""Every text that the commands print: heads of tables, sentences, questions, hints and errors.

Help texts stand with their commands, where click reads them. What the page and the chat show, too, is in the rooms' texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

START_IT = "start it with: everturn run"
START_BY = "start it with `everturn run`"
YES, NO, NOTHING = "yes", "no", "-"


# The gateway, the home and the settings.


def no_gateway(home: object) -> str:
    """No gateway runs, and that is fine."""
    return f"No gateway runs on {home}."


def not_running(home: object, hint: str) -> str:
    """No gateway runs, which is needed."""
    return f"no gateway runs on {home}; {hint}"


def no_home(home: object) -> str:
    """The home does not exist."""
    return f"the home {home} does not exist; `everturn run` creates it"


def never_ran(home: object) -> str:
    """The home has no store yet."""
    return f"no gateway has run on {home} yet; start it once with `everturn run`"


def home_is_locked(home: object, holder: object) -> str:
    """Another process has the home, and does not answer."""
    return f"the home {home} is locked by {holder or 'a process'}, which does not answer"


def token_refused(url: str, file: object) -> str:
    """The gateway runs on another home, or the token was replaced."""
    return f"the gateway at {url} does not accept the token in {file}"


def gateway_error(url: str, error: str) -> str:
    """The gateway refused a request."""
    return f"the gateway at {url} reports an error: {error}"


def no_answer(gateway: object, error: object) -> str:
    """The gateway is gone, or hangs."""
    return f"the gateway ({gateway}) does not answer: {error}"


CHAT_NEEDS_PLATFORM = "--chat needs --platform"
SETTING_COLUMNS = ("setting", "value", "from")


def unknown_platform(platform: str, known: Sequence[str]) -> str:
    """There is no such platform in the settings."""
    return f"unknown platform {platform!r}; there are {', '.join(known)}"


def settings_head(home: object, file: object) -> str:
    """Where the settings come from."""
    return f"home  {home}\nfile  {file or 'none (all settings are optional)'}\n"


# `everturn stop` and `everturn restart`.

STOPPED = "The gateway is stopped."
SUPERVISOR_STARTS_IT = "its supervisor is about to start it"


def asked_to(kind: str, pid: int) -> str:
    """The request to stop or to restart was sent."""
    return f"asked process {pid} to {kind}; waiting for running turns and deliveries"


def stopping_supervisor(pid: int) -> str:
    """The supervisor gets a signal."""
    return f"stopping the supervisor (process {pid}), so that it does not start the gateway again"


def did_not_stop(process: object) -> str:
    """The gateway still runs."""
    return f"{process} did not stop"


def supervisor_did_not_stop(process: object) -> str:
    """The supervisor still runs."""
    return f"the supervisor, {process}, did not stop"


def not_ready_again(process: object) -> str:
    """The gateway does not run again."""
    return f"{process} did not become ready after its restart"


def took_too_long(failure: str, patience_s: float) -> str:
    """The command waits no longer."""
    return f"{failure} within {patience_s:g} s; look at its log, or wait longer with --timeout"


def still_waiting(seconds: float) -> str:
    """The command waits on."""
    return f"still waiting ({seconds:.0f} s)"


def ready_again(process: object) -> str:
    """The restart is complete."""
    return f"The gateway is ready again: {process}."


def cannot_restart(process: object) -> str:
    """A process that does not answer cannot be asked to restart."""
    return f"{process} does not answer and cannot restart; to end it: everturn stop"


def on_another_machine(process: object) -> str:
    """This machine cannot send the process a signal."""
    return f"{process} does not answer, and this machine cannot signal it; end it on its own machine"


def sending_sigterm(process: object) -> str:
    """A process that does not answer gets a signal."""
    return f"{process} does not answer; sending it SIGTERM"


def cannot_be_ended(process: object, why: str | None) -> str:
    """The system refused the signal."""
    return f"{process} cannot be ended: {why}"


# `everturn status`, `sessions`, `channels`, `explain`, `dead` and `recoveries`.

NONE_OPEN, NOW = "none", "now"
CRASH_LOOP = "resumes delayed"
SESSION_COLUMNS = ("key", "session", "state", "messages", "running", "unclean ends", "last active")
CHANNEL_COLUMNS = ("name", "address", "kind", "aliases", "last seen")
NO_CHANNELS = "No chat is known yet. The gateway learns them from platforms and conversations."
DEAD_COLUMNS = ("id", "kind", "since", "platform", "chat", "sender", "error", "text")
DEAD_MESSAGE = "message"
RECOVERY_COLUMNS = ("ended at", "exit", "ready after", "continued", "suspended", "queued again", "by instance")


def gateway_runs(home: object, pid: object, url: object) -> str:
    """The gateway runs."""
    return f"The gateway runs on {home}: process {pid}, {url}"


def no_sessions(home: object) -> str:
    """The list of sessions is empty."""
    return f"There are no sessions in {home}."


def is_alias(alias: str, address: str) -> str:
    """The chat has the alias."""
    return f"{alias} is {address}."


def no_longer_alias(alias: str) -> str:
    """The alias was removed."""
    return f"{alias} is no longer an alias."


def no_alias(alias: str) -> str:
    """The alias cannot be removed."""
    return f"there is no alias {alias}"


def no_such_message(message_id: str, home: object) -> str:
    """`everturn explain` found nothing."""
    return f"no message with the id {message_id!r} is known in {home}"


def timeline_head(message_id: str, key: str) -> str:
    """The line above a timeline."""
    return f"{message_id} in {key}"


def no_dead_letters(home: object) -> str:
    """The list of dead letters is empty."""
    return f"There are no dead letters in {home}."


def no_dead_letter(dead_id: str) -> str:
    """No dead letter has this id."""
    return f"there is no dead letter {dead_id}; `everturn dead list` lists them"


def not_a_dead_id(text: str) -> str:
    """The text cannot be the id of a dead letter."""
    return f"{text!r} is not the id of a dead letter; `everturn dead list` lists them"


def no_recoveries(home: object) -> str:
    """The list of recoveries is empty."""
    return f"There are no recoveries in {home}."


def ready_after(seconds: float | None, previous_exit: str) -> str:
    """How soon the next process was ready. An unclean end is counted from the last heartbeat: it was then or later."""
    most = "at most " if previous_exit == "unclean" else ""
    return NOTHING if seconds is None else f"{most}{seconds:.1f} s"


# `everturn keys`, `login`, `logout` and `pair`.

KEY_COLUMNS = ("name", "begins with", "scopes", "made", "last used", "revoked", "made by")
REQUEST_COLUMNS = ("request", "person", "name", "expires")
PEOPLE_COLUMNS = ("person", "name", "state", "since")
CODE_OR_REQUEST = "give the CODE that the person was shown, or --request NUMBER"


def shown_once(name: str, scopes: Sequence[str]) -> str:
    """The line above a new key."""
    return f"The key {name!r} ({', '.join(scopes)}); it is not shown again:"


def key_maker(maker: str | None, *, revoked: bool) -> str:
    """The maker of a key; `-` for keys from before makers were recorded."""
    return f"{maker or NOTHING}{' (revoked)' if revoked else ''}"


def key_revoked(name: str, also: Sequence[str], left: Sequence[str]) -> list[str]:
    """Lines about a key that was revoked, and the keys that were made with it."""
    lines = [f"The key {name!r} is revoked."]
    if also:
        lines.append(f"So are the keys that were made with it: {', '.join(also)}.")
    if left:
        lines.append(f"Still valid, and made with it: {', '.join(left)}. To revoke one: everturn keys revoke NAME.")
    return lines


def link_works_once(minutes: int) -> str:
    """The line above a login link."""
    return f"This link works once, within {minutes} minutes:"


def logged_out(browsers: int) -> str:
    """How many browsers were logged out."""
    return f"Logged out: {browsers} {'browser' if browsers == 1 else 'browsers'}."


def person_state(state: str, *, owner: bool) -> str:
    """What a person may do, for a list."""
    return "owner" if owner else "approved" if state == "granted" else state


def is_approved(person: str, *, owner: bool) -> str:
    """The person may speak."""
    return f"{person} is approved{' as an owner' if owner else ''}."


def is_revoked(person: str, stopped: int) -> str:
    """The person may speak no longer; how many of their tasks were stopped."""
    return f"{person} is revoked; {stopped} running {'task was' if stopped == 1 else 'tasks were'} stopped."


# `everturn chat`.

CONNECTED = "connected"
CONNECTION_LOST = "the connection was lost; reconnecting"
OLDER_EVENTS = "older events of this chat are no longer kept"
INTERRUPTED = "interrupted"


def resumed(attempt: int) -> str:
    """The turn runs again."""
    return f"resumed (attempt {attempt})"


def waiting_for_gateway(home: object) -> str:
    """The gateway ended; the next one is connected to."""
    return f"no gateway runs on {home} now; waiting for it"


def connection_refused(why: str) -> str:
    """The gateway does not want this client."""
    return f"the gateway refused the connection: {why}"


def not_accepted(why: str) -> str:
    """The gateway refused a line."""
    return f"not accepted: {why}"


def lines_not_saved(count: int) -> str:
    """What is lost by leaving now."""
    return f"not accepted by the gateway, and not saved: {count} lines"


def no_reply(message_id: str) -> str:
    """The last line of piped input got no reply."""
    return f"the last line ended without a reply; everturn explain {message_id} may say why"


def last_timeline(message_id: str) -> str:
    """How to look at the last message again."""
    return f"timeline of your last message: everturn explain {message_id}"


# `everturn connect`.

NEXT = "Next:"
BOT_TOKEN = "The bot's token"  # noqa: S105  a question
ACCESS_TOKEN = "The access token"  # noqa: S105  a question
GATEWAYS_ACCOUNT = "The gateway's own account (@name:server)"
PASSWORD = "The account's password (used once; empty: give an access token instead)"  # noqa: S105  a question
NO_TOKEN = "this is not a bot token; @BotFather's look like 123456:ABC..."  # noqa: S105  an error
OWNER_IS_NUMBER = "--owner must be a number; @userinfobot shows you yours"
PASSWORD_OR_TOKEN = "give a password or an access token, not both"  # noqa: S105  an error
NOT_TEXT = "it is not text"
NOBODY_WROTE = "Nobody wrote to the bot in a direct chat in the last day; it will give you a pairing code."


@dataclass(frozen=True, slots=True)
class Bot:
    """A bot, as Telegram describes it."""

    id: int
    username: str
    joins_groups: bool
    reads_groups: bool
    hook: str = ""  # where its updates go now, if anywhere


@dataclass(frozen=True, slots=True)
class Account:
    """A Matrix account, as its homeserver describes it."""

    user_id: str
    device_id: str
    rooms: int
    encrypted: int  # of them
    plain_http: bool = False


def about_bot(bot: Bot) -> list[str]:
    """Lines about a bot whose token works."""
    lines = [f"The token works: it belongs to @{bot.username}."]
    if not bot.joins_groups:
        lines.append("The bot cannot be added to groups. To allow it: @BotFather, /setjoingroups.")
    if not bot.reads_groups:
        lines.append(
            "Privacy mode is on: in groups the bot gets commands, replies to it and mentions, which is enough for most."
            " To let it get every message: @BotFather, /setprivacy, Disable; then remove it from the group and add it again."
        )
    if bot.hook:
        lines.append(
            "The bot's updates go to a webhook now. The program behind it gets no more updates once the gateway polls;"
            " updates that are queued at Telegram are kept."
        )
    return lines


def next_steps(bot: Bot, *, running: bool, owner: bool = False) -> list[str]:
    """The next steps; an `owner` is approved already."""
    start = "everturn restart" if running else "everturn run"
    if owner:
        return [f"1. {start}", f"2. Write to https://t.me/{bot.username}."]
    return [
        f"1. {start}",
        f"2. Write to https://t.me/{bot.username}. Nobody is approved yet: the bot answers you with a pairing code.",
        "3. everturn pair approve CODE --owner",
    ]


@dataclass(frozen=True, slots=True)
class DirectSender:
    """A person who wrote to the bot in a direct chat."""

    id: str
    name: str


def write_to(bot: Bot) -> str:
    """Ask the first owner to write to the bot."""
    return (
        f"To be approved as the owner, write anything to https://t.me/{bot.username} now; the gateway answers it once it runs."
        "\nThen press Enter here. (Or only press Enter: the bot gives you a pairing code later.)"
    )


def is_it_you(writer: DirectSender) -> str:
    """Ask whether this person is the one at the terminal."""
    return f"{writer.name} ({writer.id}) wrote to the bot. Is that you, and do you want to be the owner?"


def owner_of_account(account: Account) -> str:
    """Ask for the owner's account, where nobody can have written yet."""
    server = account.user_id.partition(":")[2]
    return f"Your own account, approved as the owner (@you:{server}; empty: later)"


def is_owner(person: str) -> str:
    """The owner is in the settings."""
    return f"{person} is the owner of this gateway."


def add_owner(person: str, file: str) -> str:
    """The settings have [rights] already, which only the owner changes."""
    return f'{file} has [rights] already; add "{person}" to its owners.'


def no_such_token(status: int) -> str:
    """Telegram refused the request."""
    if status in {401, 404}:
        return "Telegram does not know this token; @BotFather shows it again with /token, or makes a bot with /newbot"
    return f"Telegram refused the request (HTTP {status}); try again later"


def no_telegram(url: str) -> str:
    """The server at this address is not the Bot API."""
    return f"what answers at {url} is not Telegram's Bot API"


def about_account(account: Account, before: str = "") -> list[str]:
    """Lines about an account whose token works; `before` is the device that it had."""
    lines = [f"The access token works: it belongs to {account.user_id}, on the device {account.device_id or '(none)'}."]
    if not account.device_id:
        lines.append(
            "The token belongs to no device, so the homeserver may not recognise what was sent before. Better: run this"
            " command again with the account's password."
        )
    elif before not in {"", account.device_id}:
        lines.append(
            f"The earlier device was {before}: a reply that is being sent now may appear twice. Nothing else is lost."
        )
    if account.plain_http:
        lines.append("The homeserver is reached by plain http, which is safe only on your own machine or network.")
    if not account.rooms:
        lines.append("The account is in no room yet: invite it, once you are approved (see below).")
    if account.encrypted:
        lines.append(
            f"{account.encrypted} of its {account.rooms} rooms are encrypted. The gateway cannot read encrypted messages, and encryption"
            " cannot be switched off in a room: make a room without it and invite the account there."
        )
    return lines


def matrix_steps(account: Account, *, running: bool, owner: bool = False) -> list[str]:
    """The next steps; an `owner` is approved already."""
    start = "everturn restart" if running else "everturn run"
    server = account.user_id.partition(":")[2]
    approve = f"everturn pair allow matrix:@YOU:{server} --owner    (your own account: the gateway declines invitations of others)"
    invite = f"Invite {account.user_id} to a chat or room without encryption, and write to it."
    steps = [start, invite] if owner else [start, approve, invite]
    return [f"{number}. {step}" for number, step in enumerate(steps, 1)]


def refused_by_homeserver(status: int, code: str) -> str:
    """The homeserver refused a login or a token."""
    if code in {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"}:
        return (
            "the homeserver does not know this access token: it was revoked, or its device was logged out. Run this"
            " command again with the account's password: it makes a new token"
        )
    if code == "M_USER_DEACTIVATED":
        return "the account was deactivated"
    if code == "M_FORBIDDEN":
        return "the homeserver does not accept this name with this password"
    return f"the homeserver refused the request (HTTP {status}){f' ({code})' if code else ''}; try again later"


def no_account_name(user: str) -> str:
    """The text is not a Matrix id, and no homeserver was given."""
    return f"{user!r} is not an account: one looks like @name:example.org. Or give the server: --homeserver https://..."


def no_homeserver(url: str) -> str:
    """The server at this address is not a homeserver."""
    return f"there is no Matrix homeserver at {url}; give its address (see Element's settings) with --homeserver"


def unreachable(host: str, why: str) -> str:
    """No server answers at this address."""
    return f"{host} cannot be reached: {why}; check the network, or give the homeserver's address with --homeserver"


def no_passwords() -> str:
    """The homeserver has no login by password."""
    return (
        "this homeserver has no login by password. Log in with a client instead, copy its access token (Element: Settings,"
        " Help & About, Access Token) and give it with --token-file. Do not log that client out: that revokes the token"
    )


def another_account(found: str, wanted: str) -> str:
    """The token belongs to another account."""
    return f"the access token belongs to {found}, not to {wanted}"


def nobody_to_ask(question: str) -> str:
    """There is no terminal, and standard input has ended."""
    return f"there is no terminal to ask for this: {question}. Give it with an option instead; see `everturn connect --help`"


def left_as_it_is(file: str, platform: str, table: str) -> str:
    """The settings have a table of this platform already, or cannot take one."""
    return f"{file} has [platforms.{platform}] already, and was left as it is; it should say:\n\n{table}"


def bot_token_saved(file: object) -> str:
    """Where the bot's token is."""
    return f"The token is in {file}, which only you can read."


def access_token_saved(file: object) -> str:
    """Where the access token is."""
    return f"The access token is in {file}, which only you can read."


def telegram_unreachable(url: str, why: str) -> str:
    """No server answers at this address."""
    return f"Telegram cannot be reached at {url}: {why}"


def not_an_account(text: str) -> str:
    """The text is not a Matrix id."""
    return f"{text!r} is not an account: one looks like @name:example.org"


def cannot_be_read(file: object, why: str) -> str:
    """The system refused to read a file."""
    return f"{file} cannot be read: {why}"


def cannot_be_written(file: object, why: str) -> str:
    """The system refused to write a file."""
    return f"{file} cannot be written: {why}"


def invalid_toml(file: object, why: object) -> str:
    """The settings cannot be read."""
    return f"{file} is not valid TOML: {why}"
