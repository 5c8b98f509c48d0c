"""Recorded machines, and what `nodeplug discover` must find in them."""
