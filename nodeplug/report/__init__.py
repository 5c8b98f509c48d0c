"""The archive for remote support, without credentials: `nodeplug bundle`."""
