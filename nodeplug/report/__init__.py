"""What somebody needs who helps from afar, without credentials: `nodeplug bundle`."""
