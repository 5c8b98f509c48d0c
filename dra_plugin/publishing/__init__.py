"""What DRA offers: devices as ResourceSlices name them, and the slices kept so on the API server."""
