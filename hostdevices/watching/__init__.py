"""Watching the host: uevents and inotify wake, what is there is read again."""
