"""Watching the host: uevents and inotify trigger a new read of the host."""
