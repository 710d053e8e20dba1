"""What people read when a model does not answer. Each says what is true and who can do what; none holds a secret."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.decide.names import clean_text
from everturn.decide.outcomes import Kind


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, and how often: for the words about its failure."""

    model: str
    tries: int = 1
    key_env: str | None = None
    detail: str = ""  # what the provider said, scrubbed


def no_answer(kind: Kind, asked: Asked) -> str:
    """The reason, as a part of the sentence `I could not answer: ...`."""
    model = clean_text(asked.model, 80)
    tried = "once" if asked.tries == 1 else f"{asked.tries} times"
    key = f"the variable {asked.key_env}" if asked.key_env else "agent.api_key_env"
    reasons = {
        Kind.EMPTY: "the model gave an empty answer, also when asked again",
        Kind.CUT: f"the model's answer broke off before its end, {tried}",
        Kind.LENGTH: "the model used up its tokens before it said anything; the owner can raise agent.max_output_tokens",
        Kind.REFUSED: "the model, or its provider's content filter, declined to answer this",
        Kind.OVERFLOW: "this conversation is longer than the model can read; send /compress to shorten it, or /new to start afresh",
        Kind.DENIED: f"the model's provider refused our key; the owner should check {key}",
        Kind.MISSING: f"the provider does not know the model {model!r}; the owner should check agent.model and agent.base_url",
        Kind.QUOTA: "the account with the model's provider has no credit left; its owner can top it up",
        Kind.LIMITED: f"the model's provider takes no more requests from us at the moment (asked {tried})",
        Kind.SERVER: f"the model's provider has a problem at the moment (asked {tried})",
        Kind.CONNECTION: f"the model's provider can not be reached (tried {tried}); the owner can check agent.base_url",
        Kind.STALLED: f"the model stopped answering (asked {tried})",
        Kind.UNREADABLE: f"what the model's provider sent can not be read (asked {tried})",
    }
    detail = f" ({clean_text(asked.detail, 200)})" if asked.detail else ""
    if kind is Kind.REJECTED:
        return f"the model's provider does not accept the request{detail}"
    return reasons.get(kind, f"the call of the model failed in an unexpected way{detail}")


def waiting(kind: Kind, wait_s: float, failed: int, limit: int) -> str:
    """For the user, when it takes long until the model is asked again."""
    why = {
        Kind.LIMITED: "The model's provider asks us to wait",
        Kind.CONNECTION: "The model's provider can not be reached",
        Kind.STALLED: "The model stopped answering",
    }.get(kind, "The model's provider has a problem")
    return f"{why}. I'll try again in about {_about(wait_s)} (try {failed + 1} of {limit + 1})."


def other_model(model: str) -> str:
    """For the user, when a fallback model is asked."""
    return f"The model does not answer; I'm asking {clean_text(model, 80)} instead."


def too_many_steps(limit: int) -> str:
    """In place of an answer: the turn took as many steps as it may."""
    return (
        f"I stopped after {limit} steps without coming to an end. What was done is kept: write to let me go on,"
        " or say what I should do differently."
    )


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} second{'' if round(seconds) <= 1 else 's'}"
    return f"{round(seconds / 60)} minutes"
