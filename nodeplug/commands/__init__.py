"""The commands, one file each; the table of a command is in a file beside it."""
