"""Errors of reading a host."""


class HostDevicesError(Exception):
    """The host cannot be read as expected."""


class UnreadableFile(HostDevicesError):
    """A file's content is not what the kernel writes; the text names the file."""


class ReadStuck(UnreadableFile):
    """A read of the same hardware has not returned; the text names its file."""


class HostExhausted(HostDevicesError):
    """No file descriptor or thread is left, here or on the node: whether missing things exist is unknown."""
