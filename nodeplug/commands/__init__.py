"""The commands, one file each, its table beside it."""
