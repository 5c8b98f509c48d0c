"""Prepares claims: plans, leases, describes them to the runtime, and undoes all that."""
