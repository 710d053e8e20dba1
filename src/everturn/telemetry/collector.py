"""Opens the trace exporter. OpenTelemetry is imported only where the settings name a collector."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.errors import ConfigError
from everturn.settings import TelemetryConfig
from everturn.telemetry.spans import Tracer


def open_tracer(config: TelemetryConfig, env: Mapping[str, str]) -> Tracer | None:
    """Return the tracer; None where no collector is set, or no message is sampled. Raises ConfigError with what is missing."""
    if not config.endpoint or not config.sample_ratio:
        return None
    if config.headers_env and config.headers_env not in env:
        raise ConfigError(f"telemetry.headers_env names the variable {config.headers_env}, which is not set")
    try:
        from everturn.telemetry.otel import OtelTracer  # noqa: PLC0415  its library is optional
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            "telemetry.endpoint names a collector, but the library for it is missing: pip install everturn[otel]"
        ) from error
    return OtelTracer(
        endpoint=config.endpoint,
        service=config.service_name,
        headers=env.get(config.headers_env, ""),
        ratio=config.sample_ratio,
    )
