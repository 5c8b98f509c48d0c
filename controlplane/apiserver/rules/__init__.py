"""The rules and defaults of the other built-in kinds."""
