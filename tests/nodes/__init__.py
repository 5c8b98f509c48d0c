"""Whole machines, recorded: what `nodeplug discover` must find in them."""
