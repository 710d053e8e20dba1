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


def next_steps(bot: Bot, *, running: bool) -> list[str]:
    """What remains to be done."""
    start = "everturn restart" if running else "everturn run"
    return [
        f"1. {start}",
        f"2. Write to https://t.me/{bot.username}. Nobody may speak to the agent yet: the bot answers you with a code.",
        "3. everturn pair approve CODE --owner",
    ]


def no_such_token(status: int) -> str:
    """Telegram does not know the token."""
    if status in {401, 404}:
        return "Telegram does not know this token; @BotFather shows it again with /token, or makes a bot with /newbot"
    return f"Telegram answered with HTTP {status}; try again later"
