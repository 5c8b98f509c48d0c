"""DRA's gRPC side: the driver's two sockets, its services, the kubelet's calls, and the health streams."""
