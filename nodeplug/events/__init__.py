"""The events that are derived from scans and commits: device changes, and leases that began or ended.

scans, commits -> devices, leases -> telemetry.EventLog -> `nodeplug events`; cluster -> Events of Kubernetes
"""
