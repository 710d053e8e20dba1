"""`[telemetry]`: where the gateway sends traces."""

from __future__ import annotations

import re
from dataclasses import dataclass

from everturn.settings.agent import url_problem, variable_problem
from everturn.settings.rules import setting


def _service_problem(name: str) -> str | None:
    return None if re.fullmatch(r"\S{1,100}", name) else "it is empty, too long, or has a space"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """`[telemetry]`."""

    endpoint: str = setting(
        "", "The collector to which the gateway sends traces, by OTLP over HTTP. Empty: no traces. Needs everturn[otel].",
        form='empty, or "http://HOST:4318"', check=url_problem, secret=True,
    )  # fmt: skip
    service_name: str = setting(
        "everturn", "The name of this gateway in traces. Gateways that share a database use the same name; others have their own.",
        form="a name without spaces", check=_service_problem,
    )  # fmt: skip
    headers_env: str = setting(
        "", "The NAME of the environment variable with headers for the collector, as name=value,name=value.",
        form="the name of an environment variable in capitals, such as OTEL_HEADERS", check=variable_problem, hide=True,
    )  # fmt: skip
    sample_ratio: float = setting(
        1.0, "The share of messages that the gateway traces. 0: none, as without a collector.", between=(0, 1)
    )
