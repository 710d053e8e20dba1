"""The texts about the model that runs on this machine. Each completes "I could not answer: ..."."""

from __future__ import annotations

_STILL = "the demo's `work 3` and `crash` still answer"


def not_installed(missing: str) -> str:
    """The reason for a turn that needs the local model where its packages are not installed."""
    return (
        f"the model for this machine is not installed ({missing} is missing; `make run` installs it,"
        f" or set agent.kind to another one); {_STILL}"
    )


def not_running(why: str, again_s: float) -> str:
    """The reason for a turn that needs the local model while its process does not start."""
    return f"the model on this machine does not start ({why}); the next start is in {again_s:.0f} s; {_STILL}"


def ended(code: int, last_line: str) -> str:
    """How the model's process ended."""
    how = f"its process was ended by signal {-code}" if code < 0 else f"its process ended with code {code}"
    return f"{how}: {last_line}" if last_line else how


def slow(limit_s: float) -> str:
    """Why a process of the model was ended that was not ready in time."""
    return f"it was not ready within {limit_s:.0f} s"
