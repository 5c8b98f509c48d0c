"""Whether this machine has what nodeplug needs. Each check works from outside, whether or not a daemon runs.

configuration -> the daemon, the kubelet, the runtime, the host, the API server -> findings, each with what to do
"""

__all__: list[str] = []
