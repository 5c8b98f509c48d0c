"""What happened, made of what the rooms say: devices that came, fell ill or went, leases that began or ended.

scans, commits -> devices, leases -> telemetry.EventLog -> `nodeplug events`; cluster -> Events of Kubernetes
"""
