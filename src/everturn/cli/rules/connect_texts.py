"""Texts of `everturn connect`: what was found, what is missing, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass


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


NOBODY_WROTE = "Nobody wrote to the bot in a direct chat in the last day; it will give you a pairing code."


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
