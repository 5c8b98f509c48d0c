"""Claims made ready: planned, leased, described to the runtime, and undone."""
