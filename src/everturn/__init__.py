"""Everturn: a gateway between chat platforms and an AI agent that never loses a turn."""

__version__ = "0.1.0"
