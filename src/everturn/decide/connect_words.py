"""What a person is told who connects a platform: what was found, what is missing, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bot:
    """What Telegram says of a bot."""

    id: int
    username: str
    joins_groups: bool
    reads_groups: bool
    hook: str = ""  # where its updates go now, if anywhere


@dataclass(frozen=True, slots=True)
class Account:
    """What a homeserver says of an account."""

    user_id: str
    device_id: str
    rooms: int
    encrypted: int  # of them
    plain_http: bool = False


def about_bot(bot: Bot) -> list[str]:
    """What can be said of a bot whose token works."""
    told = [f"The token works: it is that of @{bot.username}."]
    if not bot.joins_groups:
        told.append("It can not be added to groups; if it should be: @BotFather, /setjoingroups.")
    if not bot.reads_groups:
        told.append(
            "Privacy mode is on: in groups it hears commands, replies to it and mentions, which is enough for most."
            " To let it hear everything: @BotFather, /setprivacy, Disable; then remove it from the group and add it again."
        )
    if bot.hook:
        told.append(
            "Its updates go to a webhook now. Whoever put it there will get nothing more once the gateway polls;"
            " what waits there is kept."
        )
    return told


def next_steps(bot: Bot, *, running: bool, owner: bool = False) -> list[str]:
    """What remains to be done; an `owner` may speak already."""
    start = "everturn restart" if running else "everturn run"
    if owner:
        return [f"1. {start}", f"2. Write to https://t.me/{bot.username}."]
    return [
        f"1. {start}",
        f"2. Write to https://t.me/{bot.username}. Nobody may speak to the agent yet: the bot answers you with a code.",
        "3. everturn pair approve CODE --owner",
    ]


@dataclass(frozen=True, slots=True)
class Writer:
    """Somebody who wrote to a bot directly."""

    id: str
    name: str


def write_to(bot: Bot) -> str:
    """For who shall be let in first."""
    return (
        f"To be let in as the owner, write anything to https://t.me/{bot.username} now; it is answered once the gateway runs."
        "\nThen press Enter here. (Or only press Enter: later the bot gives you a code.)"
    )


def is_it_you(writer: Writer) -> str:
    """The question to who sits there."""
    return f"{writer.name} ({writer.id}) wrote to the bot. Is that you, and shall you be the owner?"


def owner_of_account(account: Account) -> str:
    """The same where nobody can have written yet."""
    server = account.user_id.partition(":")[2]
    return f"Your own account, to be let in as the owner (@you:{server}; empty: later)"


def is_owner(person: str) -> str:
    """It was done."""
    return f"{person} is the owner of this gateway."


def add_owner(person: str, file: str) -> str:
    """The settings have rights, which are the owner's to change."""
    return f'{file} has [rights] already; add "{person}" to its owners.'


NOBODY_WROTE = "Nobody wrote to the bot directly in the last day; it will give you a code."


def no_such_token(status: int) -> str:
    """Telegram does not know the token."""
    if status in {401, 404}:
        return "Telegram does not know this token; @BotFather shows it again with /token, or makes a bot with /newbot"
    return f"Telegram answered with HTTP {status}; try again later"


def no_telegram(url: str) -> str:
    """Something else answers there."""
    return f"what answers at {url} is not Telegram's Bot API"


def about_account(account: Account, before: str = "") -> list[str]:
    """What can be said of an account whose token works; `before` is the device that it had."""
    told = [f"The access token works: it is {account.user_id}'s, on the device {account.device_id or '(none)'}."]
    if not account.device_id:
        told.append(
            "It belongs to no device, so that the homeserver may not recognise what was sent before. Better: run this again"
            " with the account's password."
        )
    elif before not in {"", account.device_id}:
        told.append(
            f"Before, it was the device {before}: a reply that is being sent just now may appear twice. Nothing else is lost."
        )
    if account.plain_http:
        told.append("The way to the homeserver is plain http: only on your own machine or network is that safe.")
    if not account.rooms:
        told.append("It is in no room yet: invite it, once you are let in (see below).")
    if account.encrypted:
        told.append(
            f"{account.encrypted} of its {account.rooms} rooms are encrypted. Encrypted messages are not read: encryption can"
            " not be switched off in a room, so make one without it and invite the account there."
        )
    return told


def matrix_steps(account: Account, *, running: bool, owner: bool = False) -> list[str]:
    """What remains to be done; an `owner` may speak already."""
    start = "everturn restart" if running else "everturn run"
    server = account.user_id.partition(":")[2]
    let_in = (
        f"everturn pair allow matrix:@YOU:{server} --owner    (your own account: invitations of others are declined)"
    )
    invite = f"Invite {account.user_id} to a chat or room without encryption, and write to it."
    steps = [start, invite] if owner else [start, let_in, invite]
    return [f"{number}. {step}" for number, step in enumerate(steps, 1)]


def refused_by_homeserver(status: int, code: str) -> str:
    """The homeserver says no to a login or a token."""
    if code in {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"}:
        return (
            "the homeserver does not know this access token: it was revoked, or its device was logged out. Run this again"
            " with the account's password; it makes a new token"
        )
    if code == "M_USER_DEACTIVATED":
        return "the account was deactivated"
    if code == "M_FORBIDDEN":
        return "the homeserver does not accept this name with this password"
    return f"the homeserver answered with HTTP {status}{f' ({code})' if code else ''}; try again later"


def no_account_name(user: str) -> str:
    """It is no Matrix id, and no homeserver was named."""
    return f"{user!r} is not an account: it looks like @name:example.org. Or name the server: --homeserver https://..."


def no_homeserver(url: str) -> str:
    """Something else answers there."""
    return f"there is no Matrix homeserver at {url}; --homeserver says where it is (Element shows it in its settings)"


def unreachable(host: str, why: str) -> str:
    """Nothing answers there."""
    return f"{host} can not be reached: {why}; --homeserver says where the homeserver is"


def no_passwords() -> str:
    """It wants people to log in through a browser."""
    return (
        "this homeserver takes no passwords here. Log in with a client instead, copy its access token (Element: Settings,"
        " Help & About, Access Token) and give it with --token-file. Do not log that client out: the token dies with it"
    )


def another_account(found: str, wanted: str) -> str:
    """The token is somebody else's."""
    return f"the access token is {found}'s, not {wanted}'s"


def nobody_to_ask(question: str) -> str:
    """There is no terminal, and nothing more to be read."""
    return f"there is nobody to ask: {question}? The options of `everturn connect` tell how to give it without a terminal (--help)"


def left_as_it_is(file: str, platform: str, table: str) -> str:
    """The settings can not be changed by us."""
    return f"{file} speaks of [platforms.{platform}] already, and was left as it is; it should say:\n\n{table}"
