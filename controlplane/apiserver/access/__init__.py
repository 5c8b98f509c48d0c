"""The users of requests, what they can do, and their certificates and tokens."""
