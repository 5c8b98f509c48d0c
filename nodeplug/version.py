"""The version of nodeplug; pyproject.toml reads it from here."""

VERSION = "0.1.0"
"""The release."""
