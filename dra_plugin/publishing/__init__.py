"""What DRA offers: devices as ResourceSlices name them, and the controller that keeps the slices on the API server."""
