"""The Telegram adapter. Needs the extra `telegram`."""

from everturn.platform.telegram.adapter import TelegramPlatform, TelegramSettings

__all__ = ["TelegramPlatform", "TelegramSettings"]
