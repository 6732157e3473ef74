"""The API server of the integration tests, for what takes longer than they may."""

from tests.integration.conftest import api_server

__all__ = ["api_server"]
