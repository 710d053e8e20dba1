"""Matrix, through the client-server API of a homeserver."""

from everturn.platform.matrix.adapter import MatrixPlatform, MatrixSettings

__all__ = ["MatrixPlatform", "MatrixSettings"]
